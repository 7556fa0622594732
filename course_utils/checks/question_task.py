"""Tasks whose answer is a dict: numbers to predict, designs to choose.

A wrong number is compared with the slips that people make at this question. If one of them gives
that very number it is named; else the card says how far off the number is, where a plain factor
tells, and nothing more. The right number is never shown.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from course_utils.checks.base import Task
from course_utils.checks.expression import NotANumberError, evaluate, is_open
from course_utils.checks.verdict import FAILED, NOT_ATTEMPTED, PASSED, Step, Verdict

_FACTORS = {
    2: "twice what it is",
    1 / 2: "half of what it is",
    3: "three times what it is",
    1 / 3: "a third of what it is",
    4: "four times what it is",
    1 / 4: "a quarter of what it is",
    8: "eight times what it is",
    1 / 8: "an eighth of what it is",
    1000: "a thousand times what it is: is a prefix off?",
    1 / 1000: "a thousandth of what it is: is a prefix off?",
    1024: "1024 times what it is: is a prefix off?",
    1 / 1024: "1/1024 of what it is: is a prefix off?",
    1e6: "a million times what it is: is a prefix off?",
    1e-6: "a millionth of what it is: is a prefix off?",
    1e9: "10⁹ times what it is: is a prefix off?",
    1e-9: "10⁻⁹ of what it is: is a prefix off?",
    1.024**3: "7 % too much, as GB are if GiB are meant",
    1.024**-3: "7 % too little, as GiB are if GB are meant",
}


@dataclass(frozen=True)
class Slip:
    """A wrong answer that people give.

    Attributes:
        name: in snake_case, one of a kind within the task.
        value: the wrong number, of the letters where the question has some; or the wrong choice.
        says: what went wrong, in one sentence to the reader.
    """

    name: str
    value: Any
    says: str


@dataclass(frozen=True)
class Number:
    """A number to predict.

    Attributes:
        name: the key of the answer's dict.
        asks: what it is, in a few words.
        truth: counts or computes it; of the letters where there are some.
        unit: its unit, in the plural.
        slips: wrong answers with their causes.
        letters: for a formula, the values at which it is tried.
        tolerance: relative distance from the truth that is still right.
        aliases: right answers in another form, for the tests of the checks.
    """

    name: str
    asks: str
    truth: Callable[..., float]
    unit: str
    slips: Sequence[Slip] = ()
    letters: Mapping[str, Sequence[float]] = field(default_factory=dict)
    tolerance: float = 0.01
    aliases: Sequence[Any] = ()

    def judge(self, answer: Any) -> tuple[Step, Slip | None]:
        """Judge one answer."""
        try:
            mine = self._values(lambda letters: evaluate(answer, letters, self.unit))
        except NotANumberError as error:
            return Step(self.name, False, str(error)), None
        truth = self._values(lambda letters: float(self.truth(**letters)))
        if self._same(mine, truth):
            return Step(self.name, True, f"{answer}{f' {self.unit}' if self.unit else ''}"), None
        for slip in self.slips:
            wrong = self._values(
                lambda letters, slip=slip: float(
                    slip.value(**letters) if callable(slip.value) else slip.value
                )
            )
            if self._same(mine, wrong):
                return Step(self.name, False, slip.says), slip
        return Step(self.name, False, self._how_far(mine, truth)), None

    def _values(self, of: Callable[[dict[str, float]], float]) -> list[float]:
        places = list(zip(*self.letters.values(), strict=True)) or [()]
        return [of(dict(zip(self.letters, place, strict=True))) for place in places]

    def _same(self, ones: Sequence[float], others: Sequence[float]) -> bool:
        return all(
            math.isclose(a, b, rel_tol=self.tolerance, abs_tol=1e-12)
            for a, b in zip(ones, others, strict=True)
        )

    def _how_far(self, mine: Sequence[float], truth: Sequence[float]) -> str:
        for factor, words in _FACTORS.items():
            if self._same(mine, [value * factor for value in truth]):
                return f"that is {words}"
        if self.letters:
            return "the formula gives other numbers than what is counted"
        if not truth[0]:
            return "that is too much"
        return f"that is too {'much' if mine[0] > truth[0] else 'little'}"


@dataclass(frozen=True)
class Choice:
    """One of several options to choose.

    Attributes:
        name: the key of the answer's dict.
        asks: what is to be chosen, in a few words.
        options: what can be answered, in words.
        right: the right one; or a function that finds it.
        slips: why each of the others is wrong; ``value`` is the option.
    """

    name: str
    asks: str
    options: Mapping[Any, str]
    right: Any
    slips: Sequence[Slip] = ()

    @property
    def truth(self) -> Callable[[], Any]:
        """Finds the right option."""
        return self.right if callable(self.right) else lambda: self.right

    def judge(self, answer: Any) -> tuple[Step, Slip | None]:
        """Judge one answer."""
        key = answer.strip() if isinstance(answer, str) else answer
        if isinstance(answer, str | int | float) and key in self.options:
            if key == self.truth():
                return Step(self.name, True, str(key)), None
            slip = next((slip for slip in self.slips if slip.value == key), None)
            return Step(self.name, False, slip.says if slip else f"{key!r} is not it"), slip
        known = ", ".join(repr(option) for option in self.options)
        return Step(self.name, False, f"{answer!r} is none of {known}"), None


@dataclass(frozen=True)
class QuestionTask(Task):
    """Answer questions in a dict.

    Attributes:
        questions: in the order of the dict.
    """

    _: KW_ONLY
    questions: Sequence[Number | Choice]

    @property
    def kind(self) -> str:  # type: ignore[override]
        """ "choose" if there is nothing to predict, else "predict"."""
        choices = all(isinstance(question, Choice) for question in self.questions)
        return "choose" if choices else "predict"

    def judge(self, answer: Any, seed: int, time_limit: float) -> Verdict:
        """Judge a dict: each question by itself; all must be right."""
        if is_open(answer):
            return self.verdict(NOT_ATTEMPTED)
        names = [question.name for question in self.questions]
        if not isinstance(answer, Mapping):
            words = ", ".join(f'"{name}": ...' for name in names)
            return self.verdict(
                FAILED,
                problem=f"{self.name} is a {type(answer).__name__}; a dict is wanted: {{{words}}}",
            )
        if all(is_open(value) for value in answer.values()):
            return self.verdict(NOT_ATTEMPTED)
        unknown = [key for key in answer if key not in names]
        steps, first = [], None
        for question in self.questions:
            value = answer.get(question.name)
            if is_open(value):
                steps.append(Step(question.name, None, f"{question.asks}: no answer yet"))
                continue
            step, slip = question.judge(value)
            steps.append(step)
            if not step.passed and first is None:
                first = (question, step, slip)
        if first is None and all(step.passed for step in steps):
            return self.verdict(PASSED, steps=tuple(steps))
        return self._failed(steps, unknown, first)

    def _failed(self, steps: Sequence[Step], unknown: Sequence[Any], first: Any | None) -> Verdict:
        notes = tuple(self._unknown(key) for key in unknown)
        if first is None:
            missing = " and ".join(repr(step.name) for step in steps if step.passed is None)
            return self.verdict(
                FAILED, steps=tuple(steps), problem=f"no answer yet to {missing}", notes=notes
            )
        question, step, slip = first
        return self.verdict(
            FAILED,
            steps=tuple(steps),
            problem=f"{question.name!r} ({question.asks}): "
            + ("not right" if slip else step.detail),
            mistake=slip.name if slip else None,
            likely=slip.says if slip else None,
            hint=self.hints[0] if self.hints else None,
            notes=notes,
        )

    def _unknown(self, key: Any) -> str:
        names = [question.name for question in self.questions]
        near = difflib.get_close_matches(str(key), names, 1)
        return f"{key!r} is no question here" + (f"; did you mean {near[0]!r}?" if near else "")
