"""What every task has in common, whatever its kind."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

from course_utils.checks.verdict import Verdict
from course_utils.lessons import lesson


@dataclass(frozen=True)
class Task:
    """One exercise. Its kinds say what an answer is, and how it is judged.

    Attributes:
        name: the answer's name, in snake_case.
        lesson: the lesson's number, such as "04".
        title: in a few words.
        minutes: how long it takes.
        difficulty: 1 to 3.
        place: where it stands among the lesson's tasks, from 1.
        points: what it is worth in a course.
        hints: three, each giving away more than the one before.
    """

    name: str
    lesson: str
    title: str
    _: KW_ONLY
    minutes: int
    difficulty: int
    place: int
    points: int = 2
    hints: tuple[str, ...] = ()

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        lesson(self.lesson)  # raises where there is none
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is no name for a task")
        if self.difficulty not in (1, 2, 3):
            raise ValueError(f"{self.name}: difficulty is 1, 2 or 3, not {self.difficulty}")

    @property
    def key(self) -> str:
        """Its name in the record of progress: "04/scale_add"."""
        return f"{self.lesson}/{self.name}"

    def check(self, answer: Any, *, seed: int, time_limit: float) -> Verdict:
        """Judge an answer.

        Args:
            answer: a function, or a dict of guesses, as the task's kind wants it.
            seed: of the random inputs that it is tried with.
            time_limit: seconds.
        """
        begin = time.monotonic()
        verdict = self.judge(answer, seed, time_limit)
        verdict = replace(verdict, seconds=time.monotonic() - begin)
        return verdict.with_points(self.points)

    def judge(self, answer: Any, seed: int, time_limit: float) -> Verdict:
        """Judge an answer; what each kind does in its own way."""
        raise NotImplementedError

    def verdict(self, state: str, **found: Any) -> Verdict:
        """Make a verdict of this task's."""
        return Verdict(self.name, self.title, state, **found)
