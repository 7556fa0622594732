"""Tasks whose answer is a dict: numbers to predict, designs to choose.

A wrong number is compared with the slips that people make at this question. If one of them gives
that very number it is named; else the card says how far off the number is, where a plain factor
tells, and nothing more. The right number is never shown.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from course_utils.checks.base import Task
from course_utils.checks.expression import (
    NotANumberError,
    evaluate,
    is_open,
    letters_of,
    shown,
    without_unit,
)
from course_utils.checks.verdict import FAILED, NOT_ATTEMPTED, PASSED, Step, Verdict

# Why a factor is off is asked, not said: a factor alone proves nothing.
_FACTORS = {
    2: "twice what it is: is something counted twice, or 4 bytes a number where it has 2?",
    1 / 2: "half of what it is: is a read, a write or a factor of 2 left out?",
    3: "three times what it is",
    1 / 3: "a third of what it is",
    4: "four times what it is: have the 4 bytes of a float32 crept in?",
    1 / 4: "a quarter of what it is: are those numbers, where bytes are asked for?",
    8: "eight times what it is: bits against bytes, or 4 bytes in and 4 out against one number?",
    1 / 8: "an eighth of what it is: bits against bytes, or 4 bytes in and 4 out forgotten?",
    10: "ten times what it is: has a decimal place slipped?",
    1 / 10: "a tenth of what it is: has a decimal place slipped?",
    1e3: "a thousand times what it is: is a prefix off?",
    1e-3: "a thousandth of what it is: is a prefix off?",
    1024: "1024 times what it is: is a prefix off?",
    1 / 1024: "1/1024 of what it is: is a prefix off?",
    1e6: "a million times what it is: is a prefix off?",
    1e-6: "a millionth of what it is: is a prefix off?",
    2**20: "2²⁰ times what it is: is a prefix off?",
    2**-20: "2⁻²⁰ of what it is: is a prefix off?",
    1e9: "10⁹ times what it is: is a prefix off?",
    1e-9: "10⁻⁹ of what it is: is a prefix off?",
    2**30: "2³⁰ times what it is: is a prefix off?",
    2**-30: "2⁻³⁰ of what it is: is a prefix off?",
    1e12: "10¹² times what it is: is a prefix off?",
    1e-12: "10⁻¹² of what it is: is a prefix off?",
}
# Where bytes are asked for, decimal and binary prefixes lie this close together.
_PREFIX_GAPS = {
    1.024**power: f"{100 * (1.024**power - 1):.0f} % too much: is it {decimal}, not {binary}?"
    for power, decimal, binary in ((2, "MB", "MiB"), (3, "GB", "GiB"), (4, "TB", "TiB"))
} | {
    1.024**-power: f"{100 * (1 - 1.024**-power):.0f} % too little: is it {binary}, not {decimal}?"
    for power, decimal, binary in ((2, "MB", "MiB"), (3, "GB", "GiB"), (4, "TB", "TiB"))
}


@dataclass(frozen=True)
class Slip:
    """A wrong answer that people give.

    Attributes:
        name: in snake_case, one of a kind within the task.
        given: what is answered: a number, a formula as a text, an option; or, where it has to be
            counted, a function that counts it.
        says: what went wrong, in one sentence to the reader.
    """

    name: str
    given: Any
    says: str

    @property
    def value(self) -> Any:
        """What the reader answered."""
        return self.given() if callable(self.given) else self.given


@dataclass(frozen=True)
class Question:
    """One entry of the answer's dict.

    Attributes:
        name: the key of the answer's dict.
        asks: what is asked, in a few words.
        slips: wrong answers with their causes.
        aliases: right answers in other forms, for the tests of the checks.
    """

    name: str
    asks: str
    _: KW_ONLY
    slips: Sequence[Slip] = ()
    aliases: Sequence[Any] = ()

    def judge(self, answer: Any) -> Slip | str | None:
        """Say what is wrong with an answer: a known slip, or words; None if it is right."""
        raise NotImplementedError

    def shown(self, answer: Any) -> str:
        """Write an answer as the reader did."""
        return shown(answer)


@dataclass(frozen=True)
class Number(Question):
    """A number to predict, or a formula.

    Attributes:
        truth: counts or computes it; of the letters where there are some.
        unit: its unit, in the plural.
        letters: for a formula, the values at which it is tried.
        tolerance: relative distance from the truth that is still right.
    """

    _: KW_ONLY
    truth: Callable[..., float]
    unit: str
    letters: Mapping[str, Sequence[float]] = field(default_factory=dict)
    tolerance: float = 0.01

    def judge(self, answer: Any) -> Slip | str | None:
        """Compare a number with the truth, and then with the slips."""
        try:
            mine = self._values(answer)
        except NotANumberError as error:
            return str(error)
        truth = [float(self.truth(**letters)) for letters in self._places()]
        if self._same(mine, truth):
            return None
        for slip in self.slips:
            if self._same(mine, self._values(slip.value)):
                return slip
        if self._is_formula(truth) and not letters_of(answer, self.letters):
            return f"that is one number; a formula of {', '.join(self.letters)} is wanted"
        return self._how_far(mine, truth)

    def shown(self, answer: Any) -> str:
        """Write a number with its unit; what is none as it stands."""
        try:
            self._values(answer)
        except NotANumberError:
            return shown(answer)
        if isinstance(answer, str):
            return f"{without_unit(answer, self.unit)} {self.unit}"
        return f"{float(answer):.6g} {self.unit}"

    def _places(self) -> list[dict[str, float]]:
        places = zip(*self.letters.values(), strict=True)
        return [dict(zip(self.letters, place, strict=True)) for place in places] or [{}]

    def _values(self, answer: Any) -> list[float]:
        return [evaluate(answer, letters, self.unit) for letters in self._places()]

    def _same(self, ones: Sequence[float], others: Sequence[float]) -> bool:
        return all(
            math.isclose(a, b, rel_tol=self.tolerance, abs_tol=1e-12)
            for a, b in zip(ones, others, strict=True)
        )

    def _is_formula(self, truth: Sequence[float]) -> bool:
        return not self._same(truth, [truth[0]] * len(truth))

    def _how_far(self, mine: Sequence[float], truth: Sequence[float]) -> str:
        if not any(truth):
            return "that is not nothing, and nothing is what it is"
        if not any(mine):
            return "that is nothing, and there is something"
        if min(mine) < 0 <= min(truth):
            return "that is below zero"
        in_bytes = "byte" in self.unit and "/" not in self.unit
        factors = _FACTORS | (_PREFIX_GAPS if in_bytes else {})
        for factor, words in factors.items():
            if self._same(mine, [value * factor for value in truth]):
                return f"that is {words}"
        if "/" in self.unit and all(truth) and self._same(mine, [1 / value for value in truth]):
            return f"that is upside down: {self.unit} is asked for"
        if len(truth) > 1:
            return "that formula gives other numbers than those that are counted"
        return f"that is too {'much' if mine[0] > truth[0] else 'little'}"


@dataclass(frozen=True)
class Choice(Question):
    """One of several options to choose.

    Attributes:
        options: what can be answered, with what it means in words.
        right: the right one; or a function that finds it.
    """

    _: KW_ONLY
    options: Mapping[str, str]
    right: str | Callable[[], str]

    @property
    def truth(self) -> Callable[[], str]:
        """Finds the right option."""
        return self.right if callable(self.right) else lambda: str(self.right)

    def judge(self, answer: Any) -> Slip | str | None:
        """Compare with the right option; its words will do, in upper or lower case."""
        text = answer.strip().casefold() if isinstance(answer, str) else answer
        chosen = next(
            (
                option
                for option, words in self.options.items()
                if text in (option.casefold(), words.casefold())
            ),
            None,
        )
        if chosen is None:
            known = ", ".join(f'"{option}"' for option in self.options)
            return f"{shown(answer)} is none of {known}{_meant(answer, self.options)}"
        if chosen == self.truth():
            return None
        return next((slip for slip in self.slips if slip.value == chosen), "that is not it")


@dataclass(frozen=True)
class QuestionTask(Task):
    """Answer questions in a dict.

    Attributes:
        questions: in the order of the dict.
    """

    _: KW_ONLY
    questions: Sequence[Question]

    @property
    def kind(self) -> str:  # type: ignore[override]
        """ "choose" if there is nothing to predict, else "predict"."""
        choices = all(isinstance(question, Choice) for question in self.questions)
        return "choose" if choices else "predict"

    def judge(self, answer: Any, seed: int, time_limit: float) -> Verdict:
        """Judge a dict: each question by itself; all must be right."""
        if is_open(answer):
            return self.verdict(NOT_ATTEMPTED)
        if not isinstance(answer, Mapping):
            words = ", ".join(f'"{question.name}": ...' for question in self.questions)
            kind = type(answer).__name__
            problem = f"{self.name} is of type {kind}; a dict is wanted: {{{words}}}"
            return self.verdict(FAILED, problem=problem)
        if all(is_open(value) for value in answer.values()):
            return self.verdict(NOT_ATTEMPTED)
        steps, wrong = [], []
        for question in self.questions:
            value = answer.get(question.name)
            if is_open(value):
                steps.append(Step(question.name, None, "no answer yet"))
                continue
            finding = question.judge(value)
            steps.append(Step(question.name, finding is None, question.shown(value)))
            if finding is not None:
                wrong.append((question, finding))
        if all(step.passed for step in steps):
            return self.verdict(PASSED, steps=tuple(steps))
        names = [question.name for question in self.questions]
        unknown = [key for key in answer if key not in names]
        notes = [f"{shown(key)} is no question here{_meant(key, names)}" for key in unknown]
        return self._failed(steps, wrong, notes)

    def _failed(
        self,
        steps: Sequence[Step],
        wrong: Sequence[tuple[Question, Slip | str]],
        notes: Sequence[str],
    ) -> Verdict:
        """Tell of the first wrong answer at length, and of the others in a note each."""
        if not wrong:
            missing = " and ".join(f'"{step.name}"' for step in steps if step.passed is None)
            problem = f"no answer yet to {missing}"
            return self.verdict(FAILED, steps=tuple(steps), problem=problem, notes=tuple(notes))
        (question, finding), *others = wrong
        slip = finding if isinstance(finding, Slip) else None
        problem = f'"{question.name}" ({question.asks}) is not right'
        more = [
            f'"{other.name}" ({other.asks}) is not right: '
            + (found.says if isinstance(found, Slip) else found)
            for other, found in others
        ]
        return self.verdict(
            FAILED,
            steps=tuple(steps),
            problem=problem if slip else f"{problem}: {finding}",
            mistake=slip.name if slip else None,
            likely=slip.says if slip else None,
            hint=self.hints[0] if self.hints and not slip else None,
            notes=(*more, *notes),
        )


def _meant(word: Any, known: Iterable[str]) -> str:
    """Ask whether a word that is nearly the same was meant; nothing where there is none."""
    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(str(word).strip().casefold(), names, 1)
    return f'; did you mean "{names[near[0]]}"?' if near else ""
