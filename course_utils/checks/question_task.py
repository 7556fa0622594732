"""Tasks whose answer is a dict: numbers to predict, designs to choose.

A wrong number is compared with the slips that people make at this question. If one of them gives
that very number it is named; else the card says how far off the number is, where a plain factor
tells, and nothing more. The right number is never shown.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from course_utils.checks.base import Task
from course_utils.checks.expression import (
    UnreadableError,
    evaluate,
    is_open,
    letters_of,
    other_readings,
    shown,
    without_unit,
)
from course_utils.checks.verdict import FAILED, NOT_ATTEMPTED, PASSED, Step, Verdict

# No cause is named: a factor alone proves none.
_FACTORS = {
    2: "twice",
    1 / 2: "half",
    3: "three times",
    1 / 3: "a third of",
    4: "four times",
    1 / 4: "a quarter of",
    8: "eight times",
    1 / 8: "an eighth of",
    10: "ten times",
    1 / 10: "a tenth of",
    1e3: "a thousand times",
    1e-3: "a thousandth of",
    1024: "1024 times",
    1 / 1024: "1/1024 of",
    1e6: "a million times",
    1e-6: "a millionth of",
    2**20: "2²⁰ times",
    2**-20: "2⁻²⁰ of",
    1e9: "10⁹ times",
    1e-9: "10⁻⁹ of",
    2**30: "2³⁰ times",
    2**-30: "2⁻³⁰ of",
    1e12: "10¹² times",
    1e-12: "10⁻¹² of",
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
        within: relative distance at which a number is still taken for it, if larger than the
            question's own tolerance: for what is printed somewhere, rounded.
    """

    name: str
    given: Any
    says: str
    within: float = 0.0

    @property
    def value(self) -> Any:
        """What the reader answered."""
        return self.given() if callable(self.given) else self.given


_Finding = Slip | str | UnreadableError


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
        """Say what is wrong with an answer: a known slip, or words; None if it is right.

        Raises:
            UnreadableError: it says nothing that could be right or wrong.
        """
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
        mine = self._values(answer)
        truth = [float(self.truth(**letters)) for letters in self._places()]
        if self._same(mine, truth):
            return None
        for text, words in other_readings(answer, self.unit):
            if self._gives(text, truth):
                return Slip("not_as_meant", text, words)
        for slip in self.slips:
            if self._same(mine, self._values(slip.value), slip.within):
                return slip
        formula = bool(letters_of(answer, self.letters))
        if self._is_formula(truth) and not formula:
            return f"that is one number; a formula of {', '.join(self.letters)} is wanted"
        return self._how_far(mine, truth, formula)

    def shown(self, answer: Any) -> str:
        """Write a number with its unit; what is none as it stands."""
        try:
            self._values(answer)
        except UnreadableError:
            return shown(answer)
        if isinstance(answer, str):
            return f"{without_unit(answer, self.unit)} {self.unit}"
        return f"{float(answer):.6g} {self.unit}"

    def _places(self) -> list[dict[str, float]]:
        places = zip(*self.letters.values(), strict=True)
        return [dict(zip(self.letters, place, strict=True)) for place in places] or [{}]

    def _values(self, answer: Any) -> list[float]:
        return [evaluate(answer, letters, self.unit) for letters in self._places()]

    def _same(self, ones: Sequence[float], others: Sequence[float], within: float = 0.0) -> bool:
        tolerance = max(self.tolerance, within)
        return all(
            math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)
            for a, b in zip(ones, others, strict=True)
        )

    def _gives(self, text: str, truth: Sequence[float]) -> bool:
        try:
            return self._same(self._values(text), truth)
        except UnreadableError:
            return False

    def _is_formula(self, truth: Sequence[float]) -> bool:
        return not self._same(truth, [truth[0]] * len(truth))

    def _how_far(self, mine: Sequence[float], truth: Sequence[float], formula: bool) -> str:
        if not any(truth):
            return "that is not nothing, and nothing is what it is"
        if not any(mine):
            return "that is nothing, and there is something"
        if min(mine) < 0 <= min(truth):
            return "that is below zero"
        for factor, words in _FACTORS.items():
            if self._same(mine, [value * factor for value in truth]):
                prefixed = "byte" in self.unit and not 1e-3 < factor < 1e3
                return f"that is {words} the right number{': is a prefix off?' * prefixed}"
        for factor, words in _PREFIX_GAPS.items() if self.unit == "bytes" else ():
            if self._same(mine, [value * factor for value in truth]):
                return f"that is {words}"
        if "/" in self.unit and all(truth) and self._same(mine, [1 / value for value in truth]):
            return f"that is upside down: {self.unit} is asked for"
        if formula:
            return "that formula gives other numbers than those that are counted"
        return f"that is too {'much' if mine[0] > truth[0] else 'little'}"


@dataclass(frozen=True)
class Choice(Question):
    """One of several options to choose.

    Attributes:
        options: what can be answered, with what it means in words.
        right: the right one; or a function that finds it.
        also: other words for an option, each with that option.
    """

    _: KW_ONLY
    options: Mapping[str, str]
    right: str | Callable[[], str]
    also: Mapping[str, str] = field(default_factory=dict)

    @property
    def truth(self) -> Callable[[], str]:
        """Finds the right option."""
        return self.right if callable(self.right) else lambda: str(self.right)

    def judge(self, answer: Any) -> Slip | str | None:
        """Compare with the right option; its words will do, and so will ``(B)`` or ``["B"]``."""
        if isinstance(answer, list | tuple | set | frozenset) and len(answer) == 1:
            (answer,) = answer
        chosen = self._known().get(_plain(answer)) if isinstance(answer, str) else None
        if chosen is None:
            known = ", ".join(f'"{option}"' for option in self.options)
            letters = all(len(option) == 1 for option in self.options)
            meant = "; give one letter" if letters else _meant(answer, self.options)
            raise UnreadableError(f"{shown(answer)} is none of {known}{meant}")
        if chosen == self.truth():
            return None
        return next((slip for slip in self.slips if slip.value == chosen), "that is not it")

    def _known(self) -> dict[str, str]:
        """The option that is meant, for all that can be answered."""
        pairs = [
            (text, option)
            for option, words in self.options.items()
            for text in (option, words, f"{option} {words}")
        ]
        return {_plain(text): option for text, option in (*pairs, *self.also.items())}


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
            problem = f"`{self.name}` is of type {kind}; a dict is wanted: {{{words}}}"
            return self.verdict(FAILED, problem=problem)
        if all(is_open(value) for value in answer.values()):
            return self.verdict(NOT_ATTEMPTED)
        steps, wrong = [], []
        for question in self.questions:
            value = answer.get(question.name)
            if is_open(value):
                steps.append(Step(question.name, None, "no answer yet"))
                continue
            finding = _finding(question, value)
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
        wrong: Sequence[tuple[Question, _Finding]],
        notes: Sequence[str],
    ) -> Verdict:
        """Tell of the first wrong answer at length, and of the others in a note each."""
        if not wrong:
            missing = " and ".join(f'"{step.name}"' for step in steps if step.passed is None)
            problem = f"no answer yet to {missing}"
            return self.verdict(FAILED, steps=tuple(steps), problem=problem, notes=tuple(notes))
        (question, finding), *others = wrong
        slip = finding if isinstance(finding, Slip) else None
        unreadable = isinstance(finding, UnreadableError)
        more = [
            f"{_wrong(other, found)}: {found.says if isinstance(found, Slip) else found}"
            for other, found in others
        ]
        problem = _wrong(question, finding)
        return self.verdict(
            FAILED,
            steps=tuple(steps),
            problem=problem if slip else f"{problem}: {finding}",
            mistake=slip.name if slip else None,
            likely=slip.says if slip else None,
            hint=self.hints[0] if self.hints and not slip and not unreadable else None,
            notes=(*more, *notes),
        )


def _finding(question: Question, answer: Any) -> _Finding | None:
    try:
        return question.judge(answer)
    except UnreadableError as error:
        return error


def _wrong(question: Question, finding: _Finding) -> str:
    state = "cannot be read" if isinstance(finding, UnreadableError) else "is not right"
    return f'"{question.name}" ({question.asks}) {state}'


def _plain(text: str) -> str:
    """Words alone, without case and without what stands between and around them."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _meant(word: Any, known: Iterable[str]) -> str:
    """Ask whether a word that is nearly the same was meant; nothing where there is none."""
    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(str(word).strip().casefold(), names, 1)
    return f'; did you mean "{names[near[0]]}"?' if near else ""
