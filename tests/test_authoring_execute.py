"""Execution in place: outputs as any machine without a GPU makes them, or one clear failure."""

import json
import os
import sys

import nbformat
import pytest

from course_utils import course_map
from course_utils.authoring import canonical, execute, notebooks, rules
from course_utils.authoring.notebooks import NotebookError

RAISES = {
    "cell_type": "code",
    "id": "meant-to-fail",
    "source": "1 / 0",
    "outputs": [],
    "execution_count": None,
    "metadata": {"tags": ["raises-exception"]},
}


def outputs(path):
    return [
        " ".join(notebooks.text_outputs(cell)).strip()
        for cell in notebooks.code_cells(notebooks.read(path))
    ]


@pytest.fixture
def run(course, write_notebook):
    """Execute a lesson of the given cells; returns its path."""

    def run(*cells, **options):
        path = write_notebook(course / "notebooks" / "01_x.ipynb", *cells)
        execute.execute(path, **options)
        return path

    return run


def test_a_lesson_is_executed_in_its_folder_under_this_python_without_a_gpu(run):
    path = run(
        "# Title",
        "import os\nimport sys\n\nprint(sys.executable)",
        "print(os.path.basename(os.getcwd()))",
        'print(repr(os.environ["CUDA_VISIBLE_DEVICES"]), os.environ["OMP_NUM_THREADS"])',
        'print(os.environ.get("TRITON_INTERPRET"))',
    )
    assert outputs(path) == [sys.executable, "notebooks", "'' 1", "None"]
    assert canonical.is_canonical(path)
    notebook = notebooks.read(path)
    assert not list(rules.executed(notebook, path))
    assert [cell.execution_count for cell in notebooks.code_cells(notebook)] == [1, 2, 3, 4]


def test_installed_kernelspecs_do_not_matter(run, tmp_path, monkeypatch):
    spec = tmp_path / "share" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = ["no-such-python", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "x"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    assert outputs(run("# Title", "print(1)")) == ["1"]


def test_a_second_run_changes_no_byte(run):
    path = run(
        "# Title",
        "import matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()",
        'print({"b", "a", "c"})',
        "import numpy as np\n\nprint(np.ones(1000, dtype=np.float32).sum())",
    )
    first = path.read_bytes()
    assert b"image/png" in first
    assert execute.execute(path) is False
    assert path.read_bytes() == first


def test_a_change_of_the_code_is_noticed(run):
    path = run("# Title", "print(1)")
    notebook = notebooks.read(path)
    notebook.cells[1].source = "print(2)"
    nbformat.write(notebook, path)
    assert "changed after it was executed" in next(rules.executed(notebook, path))
    execute.execute(path)
    assert outputs(path) == ["2"]
    assert not list(rules.executed(notebooks.read(path), path))


def test_a_failure_names_notebook_cell_and_line_and_leaves_the_file(course, write_notebook, capsys):
    path = write_notebook(
        course / "notebooks" / "01_x.ipynb", "# Title", "one = 1", "two = 2\nnone = two / 0"
    )
    before = path.read_bytes()
    assert execute.main([str(path)]) == 1
    said = capsys.readouterr().out
    assert "01_x.ipynb, cell 'two-2', line 2: ZeroDivisionError: division by zero" in said
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.part"))


def test_a_syntax_error_is_named_too(course, write_notebook):
    path = write_notebook(course / "notebooks" / "01_x.ipynb", "# Title", "def f(:\n    pass")
    with pytest.raises(NotebookError, match=r"01_x\.ipynb.*does not parse"):
        execute.execute(path)


def test_a_cell_that_is_meant_to_fail_may(run):
    path = run("# Title", RAISES, "print(2)")
    assert outputs(path)[1] == "2"
    assert "ZeroDivisionError" in outputs(path)[0]
    assert not list(rules.no_errors(notebooks.read(path), path))


def test_a_cell_that_takes_too_long_is_named(run):
    with pytest.raises(NotebookError, match=r"cell 'slow-2': took longer than 1 s"):
        run("# Title", "slow = 1", "slow = 2\nwhile True:\n    pass", cell_seconds=1)


def test_a_kernel_that_dies_is_named(run):
    with pytest.raises(NotebookError, match=r"cell 'import-os': ended the kernel"):
        run("# Title", "import os\n\nos._exit(1)")


def test_exercises_are_not_executed_in_place(course, write_notebook):
    path = write_notebook(course / "solutions" / "04_x" / "04_x.ipynb", "# Title", "print(1)")
    with pytest.raises(NotebookError, match="only lessons"):
        execute.execute(path)


def test_without_lessons_there_is_nothing_to_do(monkeypatch, course, capsys):
    monkeypatch.setattr(notebooks, "lessons", lambda: [])
    assert execute.main([]) == 0
    assert "no lessons" in capsys.readouterr().out


def test_the_environment_of_this_process_is_left_alone(tmp_path):
    before = dict(os.environ)
    execute.environment(str(tmp_path))
    assert dict(os.environ) == before


def test_a_readers_progress_neither_shows_nor_changes(run, tmp_path, monkeypatch):
    file = tmp_path / "progress.json"
    monkeypatch.setenv(course_map.PATH_VARIABLE, str(file))
    course_map.mark_passed("04/gelu_tanh")
    before = file.read_bytes()
    path = run(
        "# Title",
        "from course_utils import course_map\n\nprint(course_map.passed())",
        'course_map.mark_passed("04/scale_add")\nprint(course_map.passed())',
    )
    assert outputs(path) == ["[]", "['04/scale_add']"]
    assert file.read_bytes() == before
