"""Exercises are generated from solutions by nbgrader, and each rule for solutions has teeth."""

import dataclasses
import json
from dataclasses import dataclass

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_utils.authoring import (
    canonical,
    colab,
    exercise_rules,
    exercises,
    notebooks,
    task_cells,
)
from course_utils.authoring.notebooks import NotebookError
from course_utils.checks.base import Task

WORDS = "Double each number. " + "Worked example, signature, and why it matters. " * 3
SETUP = "import course_utils\n\nmachine = course_utils.setup()"
ANSWER = '''\
LIMIT = 10


def helper(x):
    return x + x


def double(x):
    """Twice x."""
    assert x < LIMIT
    ### BEGIN SOLUTION
    # First the sum,
    y = helper(x)

    # then that.
    result = y
    ### END SOLUTION
    return result
'''
SKELETON = '''\
LIMIT = 10


def helper(x):
    return x + x


def double(x):
    """Twice x."""
    assert x < LIMIT
    # Your lines go here.
    pass
    return result'''
GUESS = """\
guess = {"a": None, "b": None}
### BEGIN SOLUTION
guess["a"] = 10
guess["b"] = 2
### END SOLUTION
"""
HINTS = ("First.", "Second, `x`.", "Third.")
SLUG = "03_fusion"


def helper(x):
    return x + x


def double(x):
    assert x < LIMIT  # noqa: F821 (the notebook has it)
    y = helper(x)
    result = y
    return result


@dataclass(frozen=True)
class Sample(Task):
    """A task with just as much as its cells are made of."""

    solution: tuple | None = None
    mistakes: tuple = ()
    broken: str = ""
    kind: str = "function"


@dataclass(frozen=True)
class Broken:
    """A mistake that a repair begins with."""

    name: str
    text: str

    def source(self, solution):
        return self.text


DOUBLE = Sample(
    "double", "03", "Double", minutes=5, difficulty=1, place=1, points=3, hints=HINTS,
    solution=(helper, double),
)  # fmt: skip
PREDICT = Sample(
    "guess", "03", "Guess", minutes=1, difficulty=2, place=2, points=1, hints=HINTS, kind="predict"
)
TASKS = (DOUBLE, PREDICT)


def tasks(lesson):
    assert lesson == "03"
    return TASKS


def cells(**answers):
    """A solution notebook as an author writes it: words and answers only."""
    answers = {"double": ANSWER, "guess": GUESS} | answers
    made = [
        new_markdown_cell("# Exercises", id="title"),
        new_code_cell(SETUP, id="setup"),
        new_code_cell("from course_utils import checks", id="imports"),
    ]
    for name, answer in answers.items():
        made.append(new_markdown_cell(WORDS, id=f"task-{name}"))
        made.append(new_code_cell(answer, id=f"answer-{name}"))
    return new_notebook(cells=made)


@pytest.fixture
def solution(course):
    """The path of a solution notebook, as its author left it, in a course of its own."""
    path = course / "solutions" / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir()
    nbformat.write(cells(), path)
    return path


@pytest.fixture
def exercise(course, solution):
    """The path of the exercise that was made of it."""
    exercises.write(course, tasks)
    return course / "exercises" / SLUG / f"{SLUG}.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


def source(path, cell_id):
    (found,) = (cell for cell in read(path).cells if cell.id == cell_id)
    return found.source


def edit(path, cell_id, change):
    notebook = read(path)
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    cell.source = change(cell.source)
    nbformat.write(notebook, path)


# What is written from the task


def test_a_task_writes_all_but_words_and_answer():
    made = task_cells.rendered(cells(), TASKS)
    assert [cell.id for cell in made.cells[3:]] == [
        "task-double", "answer-double", "check-double", "task-guess", "answer-guess", "check-guess",
    ]  # fmt: skip
    words, answer, check = made.cells[3:6]
    lines = words.source.split("\n\n")
    assert lines[:3] == [
        "## Double",
        "*Difficulty 1 of 3 · 5 minutes · 3 points · the hole: 2 lines in `double`*",
        WORDS.strip(),
    ]
    assert lines[6:9] == ["<details><summary>Hint 2</summary>", "Second, `x`.", "</details>"]
    assert answer.source == ANSWER
    assert answer.metadata.nbgrader == {
        "grade": False, "grade_id": "answer-double", "locked": False, "schema_version": 3,
        "solution": True, "task": False,
    }  # fmt: skip
    assert check.source.splitlines() == [
        "checks.check_double(double)",
        "### BEGIN HIDDEN TESTS",
        "checks.grade_double(double)",
        "### END HIDDEN TESTS",
    ]
    assert check.metadata.nbgrader == {
        "grade": True, "grade_id": "check-double", "locked": True, "points": 3,
        "schema_version": 3, "solution": False, "task": False,
    }  # fmt: skip
    assert made.cells[1].metadata.nbgrader.locked
    assert "1 minute · 1 point · the hole: 2 lines*" in made.cells[6].source


def test_what_is_written_replaces_what_was_written():
    once = task_cells.rendered(cells(), TASKS)
    assert task_cells.rendered(once, TASKS) == once
    other = dataclasses.replace(DOUBLE, title="Twice", points=5, hints=("Other.",))
    made = task_cells.rendered(once, (other, PREDICT))
    words = task_cells.cell(made, "task", "double").source
    assert words.startswith("## Twice\n\n*Difficulty 1 of 3 · 5 minutes · 5 points")
    assert "Double\n" not in words and words.count("Difficulty") == 1
    assert words.count("Hint") == 1 and "Other." in words
    assert task_cells.own_words(words) == WORDS.strip()
    assert task_cells.cell(made, "check", "double").metadata.nbgrader.points == 5


def test_a_hole_is_counted_in_each_function_and_a_repair_in_what_changes():
    two = "def f():\n    ### BEGIN SOLUTION\n    a = 1\n    ### END SOLUTION\n    pass\n\n\n"
    both = two + two.replace("f()", "g()").replace("a = 1", "a = 1\n    b = 2")
    made = task_cells.rendered(cells(double=both), TASKS)
    assert "the hole: 1 line in `f`, 2 lines in `g`*" in made.cells[3].source

    repair = dataclasses.replace(DOUBLE, kind="repair")
    given = "def double(x):\n    y = 3 * x\n    return y\n"
    mended = f"{given}\n\n### BEGIN SOLUTION\n{given.replace('3', '2')}### END SOLUTION\n"
    made = task_cells.rendered(cells(double=mended), (repair,))
    assert "· to repair: 1 line*" in made.cells[3].source


@pytest.mark.parametrize("line", [task_cells.BEGIN, task_cells.END])
def test_marks_come_in_pairs(line):
    with pytest.raises(ValueError, match="no partner"):
        list(task_cells.regions(f"{line}\nx = 1\n"))


# What nbgrader makes of it


def test_an_exercise_is_the_solution_without_its_solution(solution, exercise):
    assert source(exercise, "answer-double") == SKELETON
    guess = source(exercise, "answer-guess")
    assert guess == 'guess = {"a": None, "b": None}\n# Your lines go here.\npass'
    assert source(exercise, "check-double") == "checks.check_double(double)"
    assert source(exercise, "task-double") == source(solution, "task-double")
    assert [cell.id for cell in read(exercise).cells] == [c.id for c in read(solution).cells]
    assert canonical.is_canonical(exercise) and canonical.is_canonical(solution)
    locked = {c.id for c in read(exercise).cells if c.metadata.get("editable") is False}
    assert locked == {"setup", "check-double", "check-guess"}


def test_making_it_again_changes_nothing_and_leaves_nothing_behind(course, exercise):
    before = {path: path.read_bytes() for path in course.rglob("*") if path.is_file()}
    assert exercises.write(course, tasks) == []
    assert exercises.stale(course) == exercises.outdated(course, tasks) == []
    assert {path: path.read_bytes() for path in course.rglob("*") if path.is_file()} == before
    names = {path.name for path in before}
    assert names == {"pyproject.toml", "README.md", f"{SLUG}.ipynb"}


def test_what_changes_is_stale_until_it_is_made_again(course, solution, exercise):
    name = exercise.relative_to(course).as_posix()
    edit(solution, "answer-double", lambda text: text.replace("LIMIT = 10", "LIMIT = 20"))
    assert exercises.stale(course) == [name]
    assert exercises.write(course, tasks) == [name]
    assert "LIMIT = 20" in source(exercise, "answer-double")

    edit(exercise, "title", lambda text: text + "!")
    (exercise.parent / "left_over.png").write_text("x")
    (solution.parent / "data.txt").write_text("1 2 3")
    stale = exercises.stale(course)
    assert stale == [name, f"exercises/{SLUG}/data.txt", f"exercises/{SLUG}/left_over.png"]
    assert exercises.write(course, tasks) == stale
    assert exercises.stale(course) == []


def test_one_lesson_alone_can_be_made(course, solution, exercise):
    edit(solution, "title", lambda text: text + " of lesson 03")
    assert exercises.write(course, tasks, ["04"]) == []
    assert exercises.write(course, tasks, ["03"]) == [f"exercises/{SLUG}/{SLUG}.ipynb"]


def test_only_a_lesson_s_own_notebook_is_its_solution(course, solution, write_notebook):
    for name in ("04_x/03_fusion.ipynb", "notes/notes.ipynb", f"{SLUG}/deeper/{SLUG}.ipynb"):
        write_notebook(course / "solutions" / name, "# Title")
    assert notebooks.solutions(course) == [solution]


def test_a_changed_task_is_found(course, exercise):
    changed = (dataclasses.replace(DOUBLE, minutes=6), PREDICT)
    assert exercises.outdated(course, lambda lesson: changed) == [f"solutions/{SLUG}/{SLUG}.ipynb"]


def test_the_badge_leads_to_the_exercise(course, solution, exercise):
    colab.set_repository("someone/course", course)
    exercises.write(course, tasks)
    badge = read(exercise).cells[0]
    assert badge.id == "colab-badge"
    assert f"blob/main/exercises/{SLUG}/{SLUG}.ipynb" in badge.source
    assert [cell.id for cell in read(solution).cells] == [c.id for c in read(exercise).cells[1:]]
    assert exercises.stale(course) == []
    assert colab.stale(course) == ["README.md"]


def test_what_nbgrader_refuses_is_one_sentence(course, solution):
    exercises.write(course, tasks)
    edit(solution, "imports", lambda text: f"{text}\n### BEGIN SOLUTION\n### END SOLUTION")
    with pytest.raises(NotebookError, match=rf"^solutions/{SLUG}.*Solution region .*non-solution"):
        exercises.stale(course)


def test_code_that_does_not_parse_is_one_sentence(course, solution):
    edit(solution, "imports", lambda text: "import (")
    with pytest.raises(NotebookError, match=rf"^solutions/{SLUG}.*'imports'"):
        exercises.write(course, tasks)


# The rules


def breaches(notebook, own=TASKS):
    notebook = task_cells.rendered(notebook, own)
    return exercise_rules.of_solution(notebook, own)


def without(notebook, cell_id):
    notebook.cells = [cell for cell in notebook.cells if cell.id != cell_id]
    return notebook


def swapped(notebook, one, other):
    ids = [cell.id for cell in notebook.cells]
    i, j = ids.index(one), ids.index(other)
    notebook.cells[i], notebook.cells[j] = notebook.cells[j], notebook.cells[i]
    return notebook


def worded(words):
    notebook = cells()
    task_cells.cell(notebook, "task", "double").source = words
    return notebook


def with_cell(index, cell_id, source="x = 1"):
    notebook = cells()
    notebook.cells.insert(index, new_code_cell(source, id=cell_id))
    return notebook


def made_of_code():
    notebook = cells()
    words = task_cells.cell(notebook, "task", "guess")
    notebook.cells[notebook.cells.index(words)] = new_code_cell("x = 1", id=words.id)
    return notebook


def repeated():
    notebook = cells()
    notebook.cells.append(notebook.cells[3])
    return notebook


def test_a_good_solution_breaks_no_rule(course, exercise):
    assert breaches(cells()) == []
    assert breaches(with_cell(4, "given-data")) == []
    assert exercises.breaches(course, tasks) == []


BAD = {
    "no words": (lambda: without(cells(), "task-double"), "['answer']"),
    "no answer": (lambda: without(cells(), "answer-guess"), "['task']"),
    "a task too many": (lambda: cells(other="x = 1"), "'other' belong to no task"),
    "a task twice": (repeated, "['task', 'answer', 'check', 'task']"),
    "order of tasks": (
        lambda: cells_in_other_order(),
        "order ['guess', 'double']",
    ),
    "order of cells": (lambda: swapped(cells(), "task-guess", "answer-guess"), "['answer', "),
    "a cell between": (lambda: with_cell(4, "more"), "stands 'more'"),
    "no text": (lambda: worded(""), "say what to do"),
    "a heading": (lambda: worded(f"{WORDS}\n\n### Why"), "no heading"),
    "a fold-out": (lambda: worded(f"<details>x</details> {WORDS}"), "no heading or fold-out"),
    "nothing to solve": (lambda: cells(guess="guess = {}"), "'answer-guess' has no"),
    "half a mark": (lambda: cells(guess="guess = {}\n### END SOLUTION"), "no partner"),
    "marks elsewhere": (lambda: with_cell(3, "more", GUESS), "'more' is no answer but has"),
    "code in place of words": (
        lambda: made_of_code(),
        "'guess' are ['code', 'code', 'code'], not Markdown",
    ),
    "other code": (
        lambda: cells(double=ANSWER.replace("y = helper(x)", "y = 2 * x")),
        "'answer-double' is not the code",
    ),
    "another name": (lambda: cells(guess=GUESS.replace("guess", "guesses")), "not define 'guess'"),
}  # fmt: skip


def cells_in_other_order():
    notebook = cells()
    return new_notebook(cells=[*notebook.cells[:3], *notebook.cells[5:], *notebook.cells[3:5]])


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "-"))
def test_a_breach_is_named(case):
    make, says = BAD[case]
    found = breaches(make())
    assert any(says in sentence for sentence in found), found


def test_a_missing_task_is_named():
    (found,) = breaches(cells(), (*TASKS, dataclasses.replace(PREDICT, name="third")))
    assert "'third' is missing" in found


def test_a_task_has_three_hints():
    (found,) = breaches(cells(), (DOUBLE, dataclasses.replace(PREDICT, hints=("One.",))))
    assert "'guess' has 1 hints, not 3" in found


def of_exercise(answer, given, task=DOUBLE):
    made = [cells(double=text) for text in (answer, given)]
    return exercise_rules.of_exercise(*made, (task,))


def test_solving_only_adds_lines():
    assert of_exercise(ANSWER, SKELETON) == []
    (found,) = of_exercise(ANSWER, SKELETON.replace("LIMIT = 10", "LIMIT = 11"))
    assert "lacks the given line 'LIMIT = 11'" in found


KERNEL = "@triton.jit\ndef double_kernel(x_ptr):\n    # Your lines go here.\n    pass\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (KERNEL, None),
        (KERNEL.replace("pass", "raise NotImplementedError"), "a kernel cannot raise"),
        (KERNEL.replace("pass", "..."), "`...` in double_kernel"),
        (KERNEL.replace("    # Your lines go here.\n", ""), "without a comment"),
    ],
)
def test_the_stub_of_a_kernel_is_a_comment_and_pass(given, says):
    found = exercise_rules.stubs_do_nothing(None, cells(double=given), (DOUBLE,))
    assert [says in sentence for sentence in found] == ([True] if says else [])


def test_a_repair_begins_with_its_mistake():
    wrong = "def double(x):\n    return 3 * x\n"
    task = dataclasses.replace(
        DOUBLE, kind="repair", broken="thrice", mistakes=(Broken("thrice", wrong),)
    )
    given = wrong + "\n\n# Your lines go here.\npass\n"
    assert list(exercise_rules.repair_starts_broken(None, cells(double=given), (task,))) == []
    (found,) = exercise_rules.repair_starts_broken(None, cells(double=SKELETON), (task,))
    assert "broken code of 'thrice'" in found


def test_the_command_says_what_is_stale_and_what_makes_it(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "outdated", lambda: ["solutions/a.ipynb"])
    monkeypatch.setattr(exercises, "stale", lambda: ["exercises/a.ipynb"])
    monkeypatch.setattr(exercises, "breaches", lambda **_: [])
    assert exercises.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "solutions/a.ipynb: not what" in said and "exercises/a.ipynb: not what" in said
    assert said.endswith("repair: make exercises\n")


def test_the_course_that_is_generated_is_plain_json(exercise):
    """No time, path or version of the machine that made it."""
    text = exercise.read_text()
    assert json.loads(text)["metadata"] == canonical.METADATA
    assert str(exercise.parents[2]) not in text
