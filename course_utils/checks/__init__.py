"""Checks of the exercises: ``checks.check_<task>(answer)`` says what is right and what is wrong.

Each task is a module of ``checks/library/``, loaded when it is first asked for: that imports
Triton, so ``setup()`` comes before. An answer runs in a process of its own, with a time limit.

    from course_utils import checks
    checks.check_scale_add(scale_add)
"""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from course_utils import course_map
from course_utils.checks.verdict import (
    FAILED,
    NOT_ATTEMPTED,
    PASSED,
    CheckFailedError,
    Verdict,
)

if TYPE_CHECKING:
    from course_utils.checks.base import Task

__all__ = [
    "FAILED",
    "NOT_ATTEMPTED",
    "PASSED",
    "CheckFailedError",
    "Verdict",
    "run",
    "task",
    "tasks",
]

TIME_LIMIT = 60.0
"""Seconds for one check; a right answer takes a few."""

UNDER_NBGRADER = "NBGRADER_EXECUTION"
"""The environment variable that nbgrader sets while it runs a notebook."""

_session_seed = secrets.randbits(48)


def tasks(lesson: str | None = None) -> tuple[Task, ...]:
    """Return every task, or those of one lesson such as "04", in the order of the course."""
    found = [task(name) for name, number in _modules() if lesson in (None, number)]
    return tuple(sorted(found, key=lambda task: (task.lesson, task.place)))


@functools.cache
def task(name: str) -> Task:
    """Return the task of that name.

    Raises:
        ValueError: there is none.
    """
    known = dict(_modules())
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        words = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"there is no task {name!r}; {words}")
    import course_utils

    course_utils.machine()  # decides how kernels run, which has to be before Triton is imported
    return importlib.import_module(f"{__name__}.library.l{known[name]}_{name}").TASK


def run(
    name: str,
    answer: Any,
    *,
    fresh: bool = False,
    time_limit: float = TIME_LIMIT,
    record: bool = True,
) -> Verdict:
    """Judge an answer to a task, and note in the reader's progress that it passed.

    Args:
        name: the task's name.
        answer: the reader's function; a dict of answers where the task asks questions.
        fresh: draw inputs that nobody has seen before. Else they stay the same for a session, so
            that a reader who mends an answer sees the same numbers again.
        time_limit: seconds.
        record: whether passing is noted.

    Raises:
        ValueError: there is no such task.
    """
    chosen = task(name)
    seed = secrets.randbits(48) if fresh else _session_seed
    verdict = chosen.check(answer, seed=seed, time_limit=time_limit)
    if verdict.passed and record:
        course_map.mark_passed(chosen.key)
    return verdict


def __getattr__(name: str) -> Callable[[Any], Verdict | None]:
    """Make ``check_<task>`` and ``grade_<task>``."""
    kind, _, of = name.partition("_")
    if kind not in ("check", "grade") or not of:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        chosen = task(of)
    except ValueError as error:
        raise AttributeError(f"checks.{name}: {error}") from None
    return _check(chosen) if kind == "check" else _grade(chosen)


def __dir__() -> list[str]:
    return sorted([*globals(), *(f"check_{name}" for name, _ in _modules())])


def _check(chosen: Task) -> Callable[[Any], Verdict | None]:
    def check(answer: Any) -> Verdict | None:
        graded = UNDER_NBGRADER in os.environ
        verdict = run(chosen.name, answer, record=not graded)
        return _for_points(verdict) if graded else verdict

    return _named(check, f"check_{chosen.name}", chosen, "Check")


def _grade(chosen: Task) -> Callable[[Any], None]:
    def grade(answer: Any) -> None:
        _for_points(run(chosen.name, answer, fresh=True, record=False))

    return _named(grade, f"grade_{chosen.name}", chosen, "Grade, on fresh inputs,")


def _for_points(verdict: Verdict) -> None:
    """Raise where an answer did not pass; return nothing, for nbgrader takes that for points."""
    if not verdict.passed:
        raise CheckFailedError(f"\n{verdict}")
    print(verdict)


def _named(function: Any, name: str, chosen: Task, verb: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{verb} an answer to the task {chosen.name!r}: {chosen.title}."
    return function


def _modules() -> list[tuple[str, str]]:
    """The name and the lesson of each task."""
    keys = (key.split("/") for key in course_map.tasks())
    return [(name, lesson) for lesson, name in keys]
