"""Tasks whose answer is a plain Python function, compared with a reference over many arguments."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

from course_utils.checks import isolation
from course_utils.checks.base import Task
from course_utils.checks.draw import Case, Draw
from course_utils.checks.observe import Raised, describe
from course_utils.checks.variants import (
    Alternative,
    Mistake,
    has_hole,
    is_empty,
    line_like,
)
from course_utils.checks.verdict import FAILED, NOT_ATTEMPTED, PASSED, Step, Verdict

ATTEMPTED = "attempted"
RUNS = "runs"
RIGHT = "right answer"
_STEPS = (ATTEMPTED, RUNS, RIGHT)


@dataclass(frozen=True)
class FunctionTask(Task):
    """Write a function.

    Attributes:
        solution: the right answer's functions, the answer last.
        reference: finds what is right for a case's arguments.
        cases: draws the arguments that it is tried with.
        mistakes: wrong versions that people write.
        alternatives: right versions in another style.
        tolerance: relative distance from what is right that is still right.
    """

    _: KW_ONLY
    solution: Sequence[Any]
    reference: Callable[..., Any]
    cases: Callable[[Draw], Iterable[Case]]
    mistakes: Sequence[Mistake] = ()
    alternatives: Sequence[Alternative] = ()
    tolerance: float = 1e-6

    kind: ClassVar[str] = "function"

    def judge(self, answer: Any, seed: int, time_limit: float) -> Verdict:
        """Judge a function."""
        if answer is None or answer is Ellipsis:
            return self.verdict(NOT_ATTEMPTED)
        if not callable(answer):
            problem = f"`{self.name}` is of type {type(answer).__name__}; a function is wanted"
            return self._wrong(ATTEMPTED, problem)
        if is_empty(answer):
            return self.verdict(NOT_ATTEMPTED)
        try:
            verdict, printed = isolation.run(lambda: self._judge_here(answer, seed), time_limit)
        except isolation.TookTooLongError as error:
            problem = f"it did not end within {error.seconds:g} seconds, and was stopped"
            return replace(self._wrong(RUNS, problem), printed=error.printed)
        except isolation.DiedError as error:
            problem = f"the process that ran it ended {error.cause}; your notebook is unharmed"
            return replace(self._wrong(RUNS, problem), printed=error.printed)
        except isolation.FailedError as error:
            last = str(error).strip().splitlines()[-1]
            return self._wrong(RIGHT, f"the check could not judge this answer: {last}")
        return replace(verdict, printed=printed)

    def _judge_here(self, answer: Callable[..., Any], seed: int) -> Verdict:
        cases = list(self.cases(Draw(seed)))
        results = [_call(answer, case) for case in cases]
        if has_hole(answer) and all(result is None for result in results):
            return self.verdict(NOT_ATTEMPTED)
        truths = [_apply(self.reference, case) for case in cases]
        for case, got, wanted in zip(cases, results, truths, strict=True):
            if isinstance(got, Raised):
                problem = f"it raised {got} ({case.name})"
                return self._explained(answer, cases, results, RUNS, problem, line=got.line)
            if not self._same(got, wanted):
                problem = f"`{self.name}` is wrong for {case.name}: {_difference(got, wanted)}"
                return self._explained(answer, cases, results, RIGHT, problem)
        details = {RIGHT: f"{len(cases)} cases"}
        steps = tuple(Step(name, True, details.get(name, "")) for name in _STEPS)
        return self.verdict(PASSED, steps=steps)

    def _explained(
        self,
        answer: Callable[..., Any],
        cases: Sequence[Case],
        results: Sequence[Any],
        step: str,
        problem: str,
        line: str | None = None,
    ) -> Verdict:
        mistake = self._explain(cases, results)
        if mistake is not None:
            line = line_like(self.solution, mistake, [answer]) or line
        return replace(
            self._wrong(step, problem),
            line=line,
            mistake=mistake.name if mistake else None,
            likely=mistake.says if mistake else None,
            hint=mistake.hint or None if mistake else self._first_hint(),
        )

    def _first_hint(self) -> str | None:
        return self.hints[0] if self.hints else None

    def _explain(self, cases: Sequence[Case], results: Sequence[Any]) -> Mistake | None:
        """Return the known mistake that gives the same results in every case."""
        for mistake in self.mistakes:
            wrong = mistake.build(self.solution)
            with contextlib.redirect_stdout(io.StringIO()):  # what it prints is not the reader's
                theirs = (_call(wrong, case) for case in cases)
                if all(self._alike(a, b) for a, b in zip(results, theirs, strict=True)):
                    return mistake
        return None

    def _alike(self, one: Any, other: Any) -> bool:
        if isinstance(one, Raised) or isinstance(other, Raised):
            return type(one) is type(other) and one.kind == other.kind
        return self._same(one, other)

    def _same(self, got: Any, wanted: Any) -> bool:
        """Whether two results are the same, numbers within the tolerance."""
        if isinstance(wanted, Mapping):
            return (
                isinstance(got, Mapping)
                and got.keys() == wanted.keys()
                and all(self._same(got[key], value) for key, value in wanted.items())
            )
        if isinstance(wanted, list | tuple):
            return (
                isinstance(got, list | tuple)
                and len(got) == len(wanted)
                and all(self._same(a, b) for a, b in zip(got, wanted, strict=True))
            )
        if not _is_number(wanted):
            return type(got) is type(wanted) and bool(got == wanted)
        value = _as_number(got)
        return value is not None and (
            math.isclose(value, float(wanted), rel_tol=self.tolerance, abs_tol=1e-12)
            or (math.isnan(value) and math.isnan(wanted))
        )

    def _wrong(self, step: str, problem: str) -> Verdict:
        at = _STEPS.index(step)
        steps = tuple(
            Step(name, True if i < at else False if i == at else None)
            for i, name in enumerate(_STEPS)
        )
        return self.verdict(FAILED, steps=steps, problem=problem, hint=self._first_hint())


def _call(function: Callable[..., Any], case: Case) -> Any:
    try:
        return _apply(function, case)
    except Exception as error:
        return describe(error)


def _apply(function: Callable[..., Any], case: Case) -> Any:
    """Call a function with a case's arguments, of which it gets its own: it may change them."""
    arguments, keywords = copy.deepcopy((case.arguments, case.keywords))
    return function(*arguments, **keywords)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _as_number(value: Any) -> float | None:
    """Return one number, a tensor's of one element too; None for what is none, such as "10"."""
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except Exception:  # whatever a type's own __float__ may raise
        return None


def _difference(got: Any, wanted: Any) -> str:
    """Say how a result differs from what is right."""
    if got is None:
        return "it returned None. Is there a `return`?"
    if _is_number(wanted) and _as_number(got) is None:
        return f"it returned something of type {type(got).__name__}; a number is wanted"
    return f"it returned {_words(got)}, where {_words(wanted)} is right"


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
