"""Find, read, write and look into the course's notebooks."""

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import rwbase

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("notebooks", "solutions", "exercises")
LESSON = re.compile(r"\d\d_\w+\.ipynb")
SETUP_CALL = "course_utils.setup()"
BADGE_ID = "colab-badge"


class NotebookError(Exception):
    """A notebook that cannot be read or run; the message says which and why."""


def find(root: Path = ROOT) -> list[Path]:
    """Every notebook of the course, in reading order."""
    found = (p for folder in FOLDERS for p in sorted((root / folder).rglob("*.ipynb")))
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def lessons(root: Path = ROOT) -> list[Path]:
    """The lessons: notebooks/NN_name.ipynb."""
    return sorted(p for p in (root / "notebooks").glob("*.ipynb") if LESSON.fullmatch(p.name))


def solutions(root: Path = ROOT) -> list[Path]:
    """The solutions of the lessons' tasks: solutions/NN_name/NN_name.ipynb."""
    found = sorted((root / "solutions").glob("*/*.ipynb"))
    return [p for p in found if LESSON.fullmatch(p.name) and p.stem == p.parent.name]


def name(path: Path, root: Path = ROOT) -> str:
    """The notebook's path as people write it: relative to the course's folder."""
    path = Path(path).resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def keeps_outputs(path: Path) -> bool:
    """Whether the notebook is committed executed: lessons are, exercises and solutions are not."""
    folders = [folder.name for folder in Path(path).resolve().parents[:2]]
    return folders[0] == "notebooks" or not {"exercises", "solutions"} & set(folders)


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook as it is, without repairing it.

    Raises `NotebookError` for what is no notebook of format 4.
    """
    try:
        notebook = nbformat.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise NotebookError(f"{name(path)} cannot be read: {error}") from error
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or "cells" not in notebook:
        raise NotebookError(f"{name(path)} is no notebook of format 4: open and save it in Jupyter")
    return rwbase.rejoin_lines(notebook)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The notebook's code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """The cell's tags."""
    return cell.metadata.get("tags", [])


def is_setup(cell: nbformat.NotebookNode) -> bool:
    """Whether this is the cell that every notebook starts with."""
    return cell.cell_type == "code" and SETUP_CALL in cell.source


def prose(markdown: str) -> str:
    """Markdown without its fenced code blocks."""
    return re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", markdown, flags=re.MULTILINE | re.DOTALL)


def headings(notebook: nbformat.NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Each heading's level, text and cell id."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for marks, text in re.findall(
                r"^(#{1,6})[ \t]+(.+)$", prose(cell.source), re.MULTILINE
            ):
                yield len(marks), text.strip(), cell.get("id", "")


def syntax_tree(cell: nbformat.NotebookNode) -> ast.Module:
    """The code cell's syntax tree, with IPython's `%` and `!` lines turned into calls.

    Raises `SyntaxError`.
    """
    return ast.parse(TransformerManager().transform_cell(cell.source))


def source_hash(notebook: nbformat.NotebookNode) -> str:
    """Fingerprint of the code that made the outputs.

    The set-up cell counts as present or absent only: rendering another repository address into it
    changes no output.
    """
    sources = ["setup" if is_setup(cell) else cell.source.strip() for cell in code_cells(notebook)]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def executed_source(notebook: nbformat.NotebookNode) -> str | None:
    """The fingerprint of the code that was last executed, as the notebook remembers it."""
    return notebook.metadata.get("course", {}).get("executed_source")


def text_outputs(cell: nbformat.NotebookNode) -> Iterator[str]:
    """Every text among the cell's outputs: streams, tracebacks, and text of each MIME type."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join(output.traceback)
        else:
            for kind, data in output.data.items():
                if not kind.startswith("image/") or kind == "image/svg+xml":
                    yield data if isinstance(data, str) else json.dumps(data)
