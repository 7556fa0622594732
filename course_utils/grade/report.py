"""What grading found: as text for people, and as the JSON that Gradescope reads."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.checks.verdict import FAILED, PASSED

MISSING = "missing"
_LONGEST = 10_000  # characters of one card


@dataclass(frozen=True)
class Result:
    """What one task earned.

    Attributes:
        task: its name.
        title: its title.
        state: "passed", "failed", "not attempted yet" or "missing".
        possible: points that it is worth.
        reason: why it earned none, in one line; empty where it passed.
        card: what the check says.
        notes: more that is worth knowing, a sentence each.
    """

    task: str
    title: str
    state: str
    possible: int
    reason: str = ""
    card: str = ""
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Points earned."""
        return self.possible if self.state == PASSED else 0

    @property
    def line(self) -> str:
        """The state and its reason, which may be the same words."""
        return f"{self.state}: {self.reason}" if self.reason else self.state

    @property
    def shortened(self) -> str:
        """The card, cut where it is too long."""
        if len(self.card) <= _LONGEST:
            return self.card
        left_out = len(self.card) - _LONGEST
        return f"{self.card[:_LONGEST]}\n... {left_out:,} characters left out"


@dataclass(frozen=True)
class Report:
    """A graded notebook.

    Attributes:
        file: the notebook's name.
        lesson: number of the lesson whose tasks were graded, such as "04".
        results: of each of its tasks, in the lesson's order.
        notes: what happened in the notebook beside its answers, a sentence each.
        seconds: how long grading took.
    """

    file: str
    lesson: str
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def points(self) -> int:
        """Points earned."""
        return sum(result.points for result in self.results)

    @property
    def possible(self) -> int:
        """Points that the lesson's tasks are worth together."""
        return sum(result.possible for result in self.results)

    @property
    def heading(self) -> str:
        """The outcome in one line."""
        return f"{self.file}, lesson {self.lesson}: {self.points} of {self.possible} points"

    @property
    def text(self) -> str:
        """The whole report, for people."""
        width = max(len(result.task) for result in self.results)
        lines = [self.heading, ""]
        for result in self.results:
            points = f"{result.points} of {result.possible}"
            lines.append(f"  {result.task:{width}}  {points}  {result.line}")
            lines += [f"  {'':{width}}  {note}" for note in result.notes]
        if self.notes:
            lines += ["", *self._notes()]
        for result in self.results:
            if result.state == FAILED and result.card:
                lines += ["", result.shortened]
        return "\n".join(lines) + "\n"

    def gradescope(self) -> dict[str, Any]:
        """The same as Gradescope's autograders write it to ``results.json``."""
        return {
            "score": self.points,
            "execution_time": round(self.seconds),
            "output": "\n".join([self.heading, *self._notes()]),
            "output_format": "text",
            "visibility": "visible",
            "stdout_visibility": "hidden",  # it says nothing that is not here
            "tests": [
                {
                    "name": result.title,
                    "number": f"{self.lesson}.{number}",
                    "score": result.points,
                    "max_score": result.possible,
                    "status": "passed" if result.state == PASSED else "failed",
                    "output": "\n".join((result.line, *result.notes, result.shortened)).strip(),
                    "output_format": "text",
                    "tags": [result.task],
                    "visibility": "visible",
                }
                for number, result in enumerate(self.results, start=1)
            ],
        }

    def write(self, path: Path) -> None:
        """Write Gradescope's JSON, replacing an old file in one step.

        Raises:
            OSError: it cannot be written; then nothing has changed.
        """
        text = json.dumps(self.gradescope(), indent=1) + "\n"
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)  # mkstemp makes it the owner's alone
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _notes(self) -> list[str]:
        if not self.notes:
            return []
        return [
            "Beside the answers, which are judged by themselves:",
            *(f"- {n}" for n in self.notes),
        ]
