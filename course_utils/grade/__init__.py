"""Grade a notebook that nbgrader cannot, because it lost its metadata, as it may in Colab.

    python -m course_utils.grade FILE.ipynb [--json OUT] [--lesson NN] [--time-limit SECONDS]

A task's answer is the global of the task's name: a function, with the kernels beside it, or a dict.
Of an answer that is defined more than once, the last counts. Each task of the lesson is reported;
one whose answer is missing, or stands under another name, earns nothing, and the report says why.
Kernels run in the interpreter, so that points do not depend on the machine.

The exit status is 0 if the notebook was graded, whatever it earned, and 2 if it could not be.

What a notebook can do to its own points:

The grading process reads the notebook and runs none of it. All cells run once in a fork of it, with
a time limit, only to report which of them fail. For each answer another fork is made, of the
grading process as it was before any cell ran; there the statements run that the answer needs, and
then the checks. So it makes no difference what else cells do: print, change `checks`, `torch` or
`torch.testing`, leave files, call `sys.exit`, loop for ever, read the keyboard, write to every open
file. Answers that are dicts return from their fork as plain numbers and texts, and are judged where
nothing of the notebook has run. The reader's progress is neither read nor written.

Not guarded against: the code of a function, and what it needs, runs in the process that judges
it, so one that is written to deceive the judge (by changing `torch` while it is called, say) can do
so: read answers that earn much. Nor is this a sandbox against harm to the machine: what may write
files or use the network here, the notebook may too. Grade strangers' notebooks in a container, as
Gradescope does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils import checks
from course_utils.grade import notebook as notebooks
from course_utils.grade import sandbox
from course_utils.grade.notebook import GradeError, Notebook
from course_utils.grade.report import MISSING, Report, Result
from course_utils.lessons import LESSONS, lesson

if TYPE_CHECKING:
    from course_utils.checks.base import Task

__all__ = ["TIME_LIMIT", "GradeError", "Report", "Result", "grade"]

TIME_LIMIT = checks.TIME_LIMIT
"""Seconds for all cells together; and for each answer."""


def grade(path: Path, which: str | None = None, time_limit: float = TIME_LIMIT) -> Report:
    """Grade a notebook; in a process that has not used a GPU, since it is forked.

    Args:
        path: the notebook.
        which: number or name of the lesson; None to tell it by the file's name and the answers.
        time_limit: seconds for running all cells, and for each answer.

    Raises:
        GradeError: it cannot be graded; the message says why in one line.
    """
    begin = time.monotonic()
    notebook = notebooks.read(path)
    tasks = _tasks(notebook, which)
    failures = sandbox.run_cells(notebook.statements, time_limit)
    results = tuple(_grade_task(notebook, task, time_limit) for task in tasks)
    notes = (*notebook.notes, *failures)
    return Report(path.name, tasks[0].lesson, results, notes, time.monotonic() - begin)


def _tasks(notebook: Notebook, which: str | None) -> tuple[Task, ...]:
    """Return the tasks that a notebook should answer."""
    everything = checks.tasks()
    named = next((e.number for e in LESSONS if e.slug in notebook.path.stem), None)
    answered = Counter(task.lesson for task in everything if notebook.binders(task.name))
    found = answered or Counter(t.lesson for t in everything if _seems_answered(notebook, t))
    if which is not None:
        try:
            number = f"{lesson(which).number:02d}"
        except KeyError as error:
            raise GradeError(str(error.args[0])) from None
    elif not found:
        raise GradeError(
            f"{notebook.path} answers no task of the course: is it the right notebook? "
            "To grade it all the same, name the lesson: --lesson NN"
        )
    elif named is not None and f"{named:02d}" in found:
        number = f"{named:02d}"
    else:
        number = found.most_common(1)[0][0]
    tasks = tuple(task for task in everything if task.lesson == number)
    if not tasks:
        known = ", ".join(sorted({task.lesson for task in everything}))
        raise GradeError(f"lesson {number} has no tasks; the lessons that have are {known}")
    others = ", ".join(sorted(answered.keys() - {number}))
    if others:
        notebook.notes.append(f"it also answers tasks of lesson {others}: graded with --lesson")
    return tasks


def _seems_answered(notebook: Notebook, task: Task) -> bool:
    return bool(notebook.broken_cells(task.name) or _other_name(notebook, task))


def _other_name(notebook: Notebook, task: Task) -> str:
    """Return the name under which a task's answer seems to stand; "" if none does."""
    solution = getattr(task, "solution", ())
    parameters, code = notebooks.definition(solution[-1]) if solution else ((), "")
    return notebook.near(task.name, parameters, code, [other.name for other in checks.tasks()])


def _grade_task(notebook: Notebook, task: Task, time_limit: float) -> Result:
    broken = [
        f"code cell {n}, which seems to define {task.name}, is left out: {notebook.broken[n][1]}"
        for n in notebook.broken_cells(task.name)
    ]
    binders = notebook.binders(task.name)
    if not binders:
        return _result(task, MISSING, *_missing(notebook, task, broken, time_limit))
    cells = sorted({statement.cell for statement in binders})
    notes = list(broken)
    if len(cells) > 1:
        words = ", ".join(map(str, cells[:-1]))
        notes.append(f"defined in code cells {words} and {cells[-1]}: the last counts")
    judged = _judge(notebook, task, task.name, time_limit)
    notes += judged.failures
    if judged.state is None:
        return _result(task, MISSING, f"{task.name} has no value when the cells have run", notes)
    reason = "" if judged.state != checks.FAILED else judged.problem
    return _result(task, judged.state, reason, notes, judged.text)


def _missing(
    notebook: Notebook, task: Task, broken: Sequence[str], time_limit: float
) -> tuple[str, list[str]]:
    """Say why a task has no answer."""
    if broken:
        return broken[0], []
    other = _other_name(notebook, task)
    if not other:
        return f"nothing here is called {task.name}", []
    judged = _judge(notebook, task, other, time_limit)
    would = "would pass" if judged.state == checks.PASSED else "would not pass"
    return (
        f"found {other}, did you rename {task.name}?",
        [f"under the name {task.name} it {would}, for {task.points} points"],
    )


def _judge(notebook: Notebook, task: Task, called: str, time_limit: float) -> sandbox.Judged:
    return sandbox.judge(task.name, called, notebook.needed_for(called), time_limit)


def _result(task: Task, state: str, reason: str, notes: Sequence[str], card: str = "") -> Result:
    first = " ".join(reason.splitlines()[:1])
    return Result(task.name, task.title, state, task.points, first, card, tuple(notes))
