"""What a check found, as plain data; it travels from the process that checked to the notebook."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

PASSED, FAILED, NOT_ATTEMPTED = "passed", "failed", "not attempted yet"


class CheckFailedError(AssertionError):
    """A check that did not pass, where that has to cost points."""


@dataclass(frozen=True)
class Step:
    """One thing that was looked at.

    Attributes:
        name: what, such as "right answer".
        passed: None where it was not reached, or could not be done here.
        detail: what was seen, in a few words.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Where:
    """The first element that is wrong.

    Attributes:
        case: the inputs, in words.
        element: its index as the reader would write it, such as "[1, 3]".
        expected: what should stand there.
        got: what stands there.
        wrong: how many are wrong.
        total: of how many.
        program: the id of the program that stored it; None if none did.
        lane: the lane of that program's tile.
        line: the line that stored it.
    """

    case: str
    element: str
    expected: str
    got: str
    wrong: int
    total: int
    program: str | None = None
    lane: str | None = None
    line: str | None = None


@dataclass(frozen=True)
class Reached:
    """What a kernel that passed has reached.

    Attributes:
        case: the inputs, in words.
        nbytes: requested bytes.
        budget: requested bytes allowed.
        trips: requested bytes in passes over the largest tensor.
        flops: floating-point operations.
        intensity: FLOPs per byte.
        measured: what was timed on this machine's GPU, in words; None where there is none.
        rate: FLOP/s measured there; None where there is none.
    """

    case: str
    nbytes: int
    budget: int
    trips: float
    flops: int
    intensity: float
    measured: str | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a check says of one answer; shows itself as a card in a notebook.

    Attributes:
        task: the task's name.
        title: its title.
        state: "passed", "failed" or "not attempted yet".
        steps: what was looked at, in order.
        problem: what is wrong, in plain words.
        where: the first wrong element.
        mistake: the name of the known mistake that explains it; None where none does.
        likely: that mistake in one sentence.
        line: the line to look at, with its number within its function.
        hint: what to think about next.
        reached: what a kernel that passed has reached.
        notes: more that is worth saying.
        printed: what the answer printed meanwhile.
        points: points earned.
        points_possible: points that the task is worth.
        seconds: how long the check took.
    """

    task: str
    title: str
    state: str
    steps: tuple[Step, ...] = ()
    problem: str = ""
    where: Where | None = None
    mistake: str | None = None
    likely: str | None = None
    line: str | None = None
    hint: str | None = None
    reached: Reached | None = None
    notes: tuple[str, ...] = ()
    printed: str = ""
    points: int = 0
    points_possible: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the answer is right in every respect that was looked at."""
        return self.state == PASSED

    @property
    def text(self) -> str:
        """The card as plain text."""
        from course_utils.checks import card

        return card.to_text(self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from course_utils.checks import card

        return card.to_html(self)

    def with_points(self, possible: int) -> Verdict:
        """Return the same, worth so many points."""
        return replace(self, points=possible if self.passed else 0, points_possible=possible)
