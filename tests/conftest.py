"""What several test modules share: small notebooks and a small course in a temporary folder."""

import os
import shutil
from pathlib import Path

import pytest

# Tests and notebooks run side by side; each on every core would only slow all of them down. This
# file is read before any test module imports torch or numpy, which look at these once.
for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

ROOT = Path(__file__).resolve().parents[1]


def pytest_terminal_summary(terminalreporter):
    """Print what tests recorded under "summary", which their own output would not show."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.section(report.nodeid.split("::")[-1])
                terminalreporter.line(text)


@pytest.fixture
def root() -> Path:
    """The course's folder."""
    return ROOT


@pytest.fixture
def course(tmp_path) -> Path:
    """The folder of a course without notebooks and address: settings, README, empty folders."""
    from course_utils.authoring import colab

    for folder in ("notebooks", "solutions", "exercises", "course_utils"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    colab.set_repository(None, tmp_path)
    (tmp_path / "README.md").write_text("# A small course\n\nText.\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def write_notebook():
    """A function that writes a notebook of the given cells and returns its path.

    A cell is a whole dictionary, or a text: Markdown where it starts with a heading or with "Text",
    code otherwise.
    """
    return _write_notebook


def _write_notebook(path: Path, *cells: str | dict, **metadata) -> Path:
    import nbformat

    notebook = nbformat.v4.new_notebook(metadata=metadata)
    for cell in cells:
        if isinstance(cell, str):
            markdown = cell.startswith(("# ", "## ", "### ", "Text"))
            make = nbformat.v4.new_markdown_cell if markdown else nbformat.v4.new_code_cell
            notebook.cells.append(make(cell))
        else:
            notebook.cells.append(nbformat.from_dict(cell))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
