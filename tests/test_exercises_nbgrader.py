"""nbgrader itself, from solution to exported grades: what is right earns its points, no more."""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig

import nbformat
import pytest

from course_utils import checks
from course_utils.authoring import notebooks, task_cells

LESSON = "01"


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A course of one lesson, in which two students' work was graded by nbgrader's commands."""
    (source,) = (path for path in notebooks.solutions() if path.name.startswith(LESSON))
    slug = source.stem
    course = tmp_path_factory.mktemp("course")
    shutil.copy(notebooks.ROOT / "nbgrader_config.py", course)
    shutil.copytree(source.parent, course / "solutions" / slug)

    nbgrader(course, "generate_assignment", slug)
    released = course / "exercises" / slug / f"{slug}.ipynb"
    names = [task.name for task in checks.tasks(LESSON)]
    for student, solved in {"right": names, "half": names[: len(names) // 2]}.items():
        hand_in(released, source, course / "submitted" / student / slug / f"{slug}.ipynb", solved)
    nbgrader(course, "autograde", slug)
    nbgrader(course, "generate_feedback", slug)
    nbgrader(course, "export", "--to", "grades.csv")
    return course


def nbgrader(course, *arguments):
    """Run one of nbgrader's commands in the course's folder."""
    path = [str(notebooks.ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        # nbgrader calls alembic by its bare name.
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "WRITING_FAST_KERNELS_PROGRESS": str(course / "progress.json"),
        "JUPYTER_CONFIG_DIR": str(course / "jupyter"),
        "JUPYTER_DATA_DIR": str(course / "jupyter"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=course,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def hand_in(released, source, place, solved):
    """What a student hands in: the released notebook with these tasks solved."""
    notebook, solution = notebooks.read(released), notebooks.read(source)
    for name in solved:
        answer = task_cells.cell(notebook, "answer", name)
        answer.source = task_cells.cell(solution, "answer", name).source
    place.parent.mkdir(parents=True)
    nbformat.write(notebook, place)


def points(solved):
    return sum(task.points for task in solved)


def test_the_exported_grades_are_the_points_of_what_is_right(graded):
    tasks = checks.tasks(LESSON)
    with open(graded / "grades.csv", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert {name: float(row["score"]) for name, row in rows.items()} == {
        "right": points(tasks),
        "half": points(tasks[: len(tasks) // 2]),
    }
    assert {float(row["max_score"]) for row in rows.values()} == {points(tasks)}


def test_feedback_shows_why_points_were_lost(graded):
    texts = {path.parts[-3]: path.read_text() for path in graded.glob("feedback/*/*/*.html")}
    assert set(texts) == {"right", "half"}
    missing = len(checks.tasks(LESSON)) - len(checks.tasks(LESSON)) // 2
    assert "CheckFailedError" not in texts["right"]
    assert texts["half"].count(checks.NOT_ATTEMPTED) >= missing


def test_nbgrader_alone_releases_what_is_committed(graded):
    """An instructor's own `nbgrader generate_assignment` gives the notebook of exercises/."""
    (made,) = graded.glob("exercises/*/*.ipynb")
    committed = notebooks.read(notebooks.ROOT / made.relative_to(graded))
    cells = [cell for cell in committed.cells if cell.id != notebooks.BADGE_ID]
    assert [c for c in notebooks.read(made).cells if c.id != notebooks.BADGE_ID] == cells


def test_grading_leaves_the_reader_s_own_progress_alone(graded):
    assert not (graded / "progress.json").exists()
