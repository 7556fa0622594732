"""The one byte-exact form in which notebooks are committed.

    python -m course_utils.authoring.canonical --check [NOTEBOOK ...]
    python -m course_utils.authoring.canonical --fix [NOTEBOOK ...]

Two people who make the same change get the same bytes, whatever editor they use, so a diff shows
what was changed and nothing else.
"""

import argparse
import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat

from course_utils.authoring import notebooks
from course_utils.authoring.notebooks import NotebookError

METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4"},
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# What nbgrader needs, and what an author says on purpose. Everything else is an editor's memory.
CELL_METADATA = ("tags", "nbgrader", "editable", "deletable")

# nbformat, JupyterLab and Colab make up identifiers: 8 hexadecimal digits, a UUID, 12 characters.
MADE_UP_ID = re.compile(r"[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Hyphens between words; underscores in what is named after a task.
READABLE_ID = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*")
ID_LENGTH = 48

# What setup() prints names the machine: its CPU, how its GPU is hidden, its build of torch.
MACHINE_LINE = (
    (
        re.compile(r"^Interpreter mode on .* \([^()]*\): ", re.M),
        "Interpreter mode on CPU (no GPU found): ",
    ),
    (re.compile(r"(?<=torch )(\d[\w.]*)\+\w+"), r"\1"),
    (re.compile(r"(?<=Python )(\d+\.\d+)\.\d+"), r"\1"),
)


def canonical(notebook: nbformat.NotebookNode, *, outputs: bool) -> nbformat.NotebookNode:
    """The notebook's canonical form, as a new notebook.

    `outputs` says whether outputs and execution counts are kept. Raises `NotebookError`, without
    the notebook's name, where a cell does not parse.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    cells = [_cell(cell) for cell in notebook.cells if cell.get("source", "").strip()]
    fresh = notebooks.executed_source(notebook) == notebooks.source_hash(notebook)
    notebook.cells = _with_ids(cells)
    _format_code(notebook)
    _number(notebook, outputs)

    executed = notebooks.executed_source(notebook)
    notebook.metadata = nbformat.from_dict(copy.deepcopy(METADATA))
    if outputs and executed:
        # Formatting changes no output: what was executed stays so.
        executed = notebooks.source_hash(notebook) if fresh else executed
        notebook.metadata.course = {"executed_source": executed}
    return notebook


def text(notebook: nbformat.NotebookNode) -> str:
    """The bytes of the file: keys sorted, one space of indent, a final newline."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def canonical_text(path: Path) -> str:
    """What the file should hold. Raises `NotebookError`."""
    try:
        form = canonical(notebooks.read(path), outputs=notebooks.keeps_outputs(path))
        nbformat.validate(form)
    except (NotebookError, nbformat.ValidationError) as error:
        raise NotebookError(f"{notebooks.name(path)}: {str(error).splitlines()[0]}") from error
    return text(form)


def is_canonical(path: Path) -> bool:
    """Whether the file is byte for byte its own canonical form. Raises `NotebookError`."""
    return Path(path).read_bytes() == canonical_text(path).encode()


def fix(path: Path) -> bool:
    """Rewrite the file in its canonical form; says whether that changed it."""
    wanted = canonical_text(path).encode()
    if Path(path).read_bytes() == wanted:
        return False
    Path(path).write_bytes(wanted)
    return True


def _cell(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    source = cell.source.replace("\r\n", "\n").strip("\n").rstrip()
    form = {
        "cell_type": cell.cell_type,
        "id": cell.get("id", ""),
        "metadata": {key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata},
        "source": source,
    }
    if "tags" in form["metadata"]:
        form["metadata"]["tags"] = list(dict.fromkeys(form["metadata"]["tags"]))
        if not form["metadata"]["tags"]:
            del form["metadata"]["tags"]
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        form["metadata"]["jupyter"] = {"source_hidden": True}
    if cell.cell_type == "code":
        form["execution_count"] = cell.get("execution_count")
        form["outputs"] = _outputs(cell.get("outputs", []))
    elif "attachments" in cell:
        form["attachments"] = cell.attachments
    return nbformat.from_dict(form)


def _outputs(outputs: list[nbformat.NotebookNode]) -> list[dict]:
    kept = []
    for output in outputs:
        if output.output_type == "stream":
            said = _any_machine(output.text)
            before = kept[-1] if kept else {}
            if before.get("name") == output.name and before["output_type"] == "stream":
                before["text"] += said
            else:
                kept.append({"name": output.name, "output_type": "stream", "text": said})
        elif output.output_type == "error":
            kept.append({k: output[k] for k in ("ename", "evalue", "output_type", "traceback")})
        else:
            data = {kind: value for kind, value in output.data.items() if kind != WIDGET_VIEW}
            for kind in data:
                if kind.startswith("image/") and kind != "image/svg+xml":
                    data[kind] = data[kind].strip()
            if not data:
                continue
            metadata = {kind: value for kind, value in output.metadata.items() if kind in data}
            form = {"data": data, "metadata": metadata, "output_type": output.output_type}
            if output.output_type == "execute_result":
                form["execution_count"] = output.get("execution_count")
            kept.append(form)
    return kept


def _any_machine(said: str) -> str:
    """The line that setup() prints as any machine without a GPU would print it."""
    if "Interpreter mode on " in said:
        for pattern, general in MACHINE_LINE:
            said = pattern.sub(general, said)
    return said


def _number(notebook: nbformat.NotebookNode, outputs: bool) -> None:
    cells = notebooks.code_cells(notebook)
    executed = all(cell.execution_count is not None for cell in cells)
    for count, cell in enumerate(cells, 1):
        if not outputs:
            cell.outputs, cell.execution_count = [], None
        elif executed:
            cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count


def _with_ids(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Give each cell a readable identifier of its own; those that are so already stay."""
    kept = set()
    for cell in cells:
        good = READABLE_ID.fullmatch(cell.id) and not MADE_UP_ID.fullmatch(cell.id)
        good = good and re.search(r"[a-z]{2}", cell.id) and len(cell.id) <= 64
        cell.id = cell.id if good and cell.id not in kept else ""
        kept.add(cell.id)
    for cell in cells:
        if not cell.id:
            words = _words(cell)
            cell.id = next(
                name for name in _numbered(words) if name not in kept and len(name) <= 64
            )
            kept.add(cell.id)
    return cells


def _numbered(words: str):
    yield words
    count = 2
    while True:
        yield f"{words}-{count}"
        count += 1


def _words(cell: nbformat.NotebookNode) -> str:
    """What a cell is about, in kebab case: its heading, its definition, or its first words."""
    if notebooks.is_setup(cell):
        return "setup"
    source = cell.source
    if cell.cell_type == "code":
        defined = re.search(r"^(?:def|class)\s+(\w+)", source, re.MULTILINE)
        lines = [line for line in source.splitlines() if line.strip() and not line.startswith("#|")]
        about = defined[1] if defined else (lines[0] if lines else "")
    else:
        heading = re.search(r"^#{1,6}\s+(.+)$", source, re.MULTILINE)
        about = heading[1] if heading else re.sub(r"\]\([^)]*\)|<[^>]*>", " ", source)
    words = re.findall(r"[a-z0-9]+", about.lower().replace("'", "").replace("’", ""))
    slug = ""
    for word in words[:7]:
        longer = f"{slug}-{word}" if slug else word
        if len(longer) > ID_LENGTH:
            break
        slug = longer
    return slug if re.search(r"[a-z]{2}", slug) else f"{cell.cell_type}-cell"


def _format_code(notebook: nbformat.NotebookNode) -> None:
    """Format the code cells with ruff, as `ruff format` would in the file."""
    cells = notebooks.code_cells(notebook)
    if not cells:
        return
    bare = nbformat.v4.new_notebook(metadata=METADATA)
    bare.cells = [
        nbformat.from_dict(
            {
                "cell_type": "code",
                "execution_count": None,
                "id": cell.id,
                "metadata": {},
                "outputs": [],
                "source": cell.source,
            }
        )
        for cell in cells
    ]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "cells.ipynb"]
    command += ["--config", str(notebooks.ROOT / "pyproject.toml"), "-"]
    done = subprocess.run(command, input=json.dumps(bare), capture_output=True, text=True)
    if done.returncode:
        where = re.search(r"cells\.ipynb:(\d+):(\d+):\d+: (.*)", done.stderr)
        if not where:
            raise NotebookError(f"ruff cannot format the code: {done.stderr.strip()}")
        cell = cells[int(where[1]) - 1]
        raise NotebookError(f"cell {cell.id!r}, line {where[2]} does not parse: {where[3]}")
    for cell, formatted in zip(cells, json.loads(done.stdout)["cells"], strict=True):
        cell.source = "".join(formatted["source"])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Check or restore notebooks' canonical form.")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="say which notebooks differ")
    mode.add_argument("--fix", action="store_true", help="rewrite those that differ")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of the course")
    options = parser.parse_args(arguments)
    wrong = 0
    for path in options.notebooks or notebooks.find():
        try:
            if options.fix:
                if fix(path):
                    print(f"{notebooks.name(path)}: rewritten")
            elif not is_canonical(path):
                wrong += 1
                print(f"{notebooks.name(path)}: not in canonical form; repair it with `make fix`")
        except NotebookError as error:
            wrong += 1
            print(error)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
