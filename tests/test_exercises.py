"""The course's own exercises: fresh, and good to start from."""

import importlib
import tempfile
from pathlib import Path

import nbclient
import pytest
from nbgrader.utils import compute_checksum

from course_utils import checks, lessons
from course_utils.authoring import execute, exercises, notebooks

SOLUTIONS = notebooks.solutions()
EXERCISES = sorted((notebooks.ROOT / "exercises").glob("*/*.ipynb"))


def test_exercises_are_fresh_and_keep_the_rules():
    assert exercises.outdated() == exercises.stale() == exercises.breaches() == []


def test_each_lesson_with_tasks_has_a_solution_and_an_exercise(root):
    wanted = {lessons.lesson(task.lesson).slug for task in checks.tasks()}
    for folder in ("solutions", "exercises"):
        there = {path.relative_to(root / folder) for path in (root / folder).rglob("*.ipynb")}
        there = {path for path in there if ".ipynb_checkpoints" not in path.parts}
        assert there == {Path(slug, f"{slug}.ipynb") for slug in wanted}, folder


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_nbgrader_finds_an_exercise_as_it_was_given_out(path):
    own = [cell for cell in notebooks.read(path).cells if "nbgrader" in cell.metadata]
    assert own
    for cell in own:
        assert cell.metadata.nbgrader.checksum == compute_checksum(cell), cell.id


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_runs_and_each_check_says_that_nothing_was_attempted(path):
    notebook = notebooks.read(path)
    client = nbclient.NotebookClient(
        notebook,
        km=execute.OwnKernel(),
        timeout=execute.CELL_SECONDS,
        resources={"metadata": {"path": str(path.parent)}},
    )
    importlib.import_module("matplotlib.font_manager")  # makes its cache here, not in a cell
    with tempfile.TemporaryDirectory() as scratch:
        client.execute(env=execute.environment(scratch))
    checked = [cell for cell in notebooks.code_cells(notebook) if cell.id.startswith("check-")]
    assert len(checked) == len(checks.tasks(path.name[:2]))
    for cell in checked:
        (output,) = cell.outputs
        assert output.output_type in ("execute_result", "display_data"), cell.id
        assert checks.NOT_ATTEMPTED in output.data["text/plain"], cell.id
    for cell in notebooks.code_cells(notebook):
        assert not [out for out in cell.outputs if out.get("name") == "stderr"], cell.id
