"""The shelf: what is exported where, that staleness is seen, and that nothing is lost silently."""

import ast
import subprocess
import sys

import pytest

from course_utils.authoring import export
from course_utils.authoring.notebooks import NotebookError

NAMED = "#| default_exp elementwise"
IMPORTS = "#| export\nimport triton\nimport torch\nimport math"
KERNEL = '#| export\n@triton.jit\ndef gelu_kernel(x):\n    """One program."""\n    pass'
LAUNCH = "#| export\ndef gelu(x: torch.Tensor) -> torch.Tensor:\n    '''GELU of x.'''\n    return x"
ANALYSIS = "print(gelu(1))"


@pytest.fixture
def shelf(course, write_notebook):
    """A course whose lesson 04 exports; returns its folder."""
    path = course / "notebooks" / "04_first.ipynb"
    write_notebook(path, "# Title", NAMED, IMPORTS, KERNEL, LAUNCH, ANALYSIS)
    return course


def test_without_exports_nothing_happens(course, write_notebook):
    write_notebook(course / "notebooks" / "01_x.ipynb", "# Title", "print(1)")
    assert export.modules(course) == {}
    assert export.stale(course) == [] and export.write(course) == []
    assert not (course / export.SHELF).exists()


def test_marked_cells_become_a_module(shelf):
    assert export.write(shelf) == [
        "course_utils/kernels/__init__.py",
        "course_utils/kernels/elementwise.py",
    ]
    text = (shelf / export.SHELF / "elementwise.py").read_text()
    tree = ast.parse(text)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert names == ["gelu_kernel", "gelu"]
    assert "notebooks/04_first.ipynb" in ast.get_docstring(tree)
    assert "make shelf" in ast.get_docstring(tree)
    assert '__all__ = ["gelu", "gelu_kernel"]' in text
    assert "print" not in text and "math" not in text and "%%" not in text


def test_modules_are_as_ruff_wants_them(shelf, root):
    export.write(shelf)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", root / "pyproject.toml", "."],
            cwd=shelf / export.SHELF,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


def test_staleness_is_seen_and_repaired(shelf, write_notebook):
    assert len(export.stale(shelf)) == 2
    export.write(shelf)
    assert export.stale(shelf) == []
    changed = LAUNCH.replace("return x", "return 2 * x")
    write_notebook(shelf / "notebooks/04_first.ipynb", "# T", NAMED, IMPORTS, KERNEL, changed)
    assert export.stale(shelf) == ["course_utils/kernels/elementwise.py"]
    export.write(shelf)
    assert export.stale(shelf) == []


def test_prose_and_unexported_cells_do_not_make_it_stale(shelf, write_notebook):
    export.write(shelf)
    path = shelf / "notebooks/04_first.ipynb"
    write_notebook(path, "# Other", "Text", NAMED, IMPORTS, "1 + 1", KERNEL, LAUNCH)
    assert export.stale(shelf) == []


def test_a_module_that_no_lesson_exports_is_stale_and_goes(shelf):
    export.write(shelf)
    extra = shelf / export.SHELF / "forgotten.py"
    extra.write_text('"""Old."""\n')
    assert export.stale(shelf) == ["course_utils/kernels/forgotten.py"]
    export.write(shelf)
    assert not extra.exists()


def test_a_later_lesson_can_add_to_a_module(shelf, write_notebook):
    later = "#| export elementwise\ndef twice(x):\n    '''Twice x.'''\n    return 2 * x"
    write_notebook(shelf / "notebooks" / "05_later.ipynb", "# Title", later)
    text = export.modules(shelf)["elementwise.py"]
    assert "def twice" in text and "def gelu" in text
    assert "04_first.ipynb and notebooks/05_later.ipynb" in text


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([LAUNCH], "no `#| default_exp MODULE`"),
        ([NAMED, NAMED.replace("elementwise", "other"), LAUNCH], "more than one"),
        ([NAMED, "#| export\ndef f(:"], "05_bad"),
        ([NAMED, LAUNCH], "another lesson's module"),
        (["#| export nowhere\nx = 1"], "cannot be exported"),
    ],
)
def test_what_makes_no_sense_is_refused(shelf, write_notebook, cells, message):
    write_notebook(shelf / "notebooks" / "05_bad.ipynb", "# Title", *cells)
    with pytest.raises(NotebookError, match=message.replace("|", r"\|")):
        export.modules(shelf)


def test_check_names_the_repair(shelf, monkeypatch, capsys):
    monkeypatch.setattr(export, "stale", lambda: ["course_utils/kernels/elementwise.py"])
    assert export.main(["--check"]) == 1
    assert "make shelf" in capsys.readouterr().out
