"""Questions and plain functions: what is accepted, what is said of the rest, and what is not."""

# The machine is asked before triton is imported.
# ruff: noqa: E402

from __future__ import annotations

import itertools
import os
import re
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest

import course_utils

course_utils.machine()

import torch
import triton
import triton.language as tl

from course_utils import Meter, checks, gpus
from course_utils.authoring import notebooks
from course_utils.checks import card
from course_utils.checks import question_task as question_module
from course_utils.checks.draw import Case
from course_utils.checks.expression import UnreadableError, evaluate, is_open, without_unit
from course_utils.checks.function_task import FunctionTask
from course_utils.checks.question_task import Choice, Number, QuestionTask, Slip
from course_utils.checks.variants import Alternative, Mistake
from course_utils.checks.verdict import FAILED, NOT_ATTEMPTED, PASSED, Step, Verdict

LESSONS = ("01", "02", "03")
TASKS = [task for lesson in LESSONS for task in checks.tasks(lesson)]
QUESTION_TASKS = [task for task in TASKS if isinstance(task, QuestionTask)]
LETTERS = {"M": 3.0, "N": 5.0, "K": 7.0}


# -- numbers as people write them -------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (10, 10),
        (2.5, 2.5),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (torch.tensor([3.0]), 3),
        ("10", 10),
        (" 1/4 ", 0.25),
        ("1e9", 1e9),
        ("-2", -2),
        ("+2", 2),
        ("7 // 2", 3),
        ("3 * 4 * 2**20", 3 * 2**22),
        ("2^20", 2**20),
        ("2²⁸", 2**28),
        ("10⁻⁹", 1e-9),
        ("2 × 3 · 4 ÷ 8", 3),
        ("5 − 3", 2),
        ("1,024", 1024),
        ("1 048 576", 2**20),
        ("1,048,576.5", 2**20 + 0.5),
        ("1,024 * 1,024", 2**20),
        ("10 trips", 10),
        ("1 trip", 1),
        ("10Trips", 10),
        ("((2))", 2),
        ("[1 + 2] * {3}", 9),
        ("8∗3∕4", 6),
        ("8 • 3 ⁄ 4", 6),
        ("12 : 8", 1.5),
        ("1 + ½", 1.5),
        ("= 4", 4),
        ("≈ 203", 203),
        ("~10", 10),
        ("1\u202f024", 1024),
    ],
)
def test_a_number_can_be_written_in_many_ways(answer, value):
    assert evaluate(answer, unit="trips") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("M * N * K", 105),
        ("2 * M*N / (K + 1)", 3.75),
        ("K³", 343),
        ("M·N·K", 105),
        ("1 / (1/M + 1/N)", 1.875),
        ("4", 4),
        ("2⋅M∕[12⋅N]", 0.1),
        ("M²∕N²", 0.36),
    ],
)
def test_a_formula_is_worked_out_of_its_letters(formula, value):
    assert evaluate(formula, LETTERS) == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("ten", "'ten' is unknown; a number is wanted, without letters"),
        ("0,5", "'0,5' is no number; write a decimal point, as in 2.5"),
        ("1,5", "is no number"),
        ("12,34", "is no number"),
        ("1,024,5", "is no number"),
        ("2½", "'2½' is no number; write 2.5 or \"2 + 1/2\""),
        ("2 1/2", "'2 1/2' is no number; write 2.5 or \"2 + 1/2\""),
        ("65T/320G", "'65T/320G' is no number; write 65e12 for 65 T"),
        ("65 T / 320 G", "write 65e12 for 65 T"),
        ("(1/2", "in '(1/2' a bracket is not closed"),
        ("1/2]", "in '1/2]' a bracket is not opened"),
        ("25 %", "'25 %' is no number; write for example 10"),
        ("10 or 11", "is no number"),
        ("1j", "is no number"),
        ("(-1) ** 0.5", "is no number"),
        ("True", "is no number"),
        ("1if 2else 3", "is no number"),
        ("\x00", "is no number"),
        ("1/0", "divides by zero"),
        ("1e999", "is not finite"),
        (float("nan"), "is not finite"),
        (10**400, "is too large"),
        (True, "True is no number"),
        (len, "a function is no number"),
        (lambda: 10, "a function is no number"),
        ([10], "something of type list is not one number"),
        ({"a": 1}, "something of type dict is not one number"),
        (torch.ones(2), "something of type Tensor is not one number"),
    ],
)
def test_what_is_no_number_is_said_to_be_none(answer, words):
    with pytest.raises(UnreadableError) as error:
        evaluate(answer)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("m * N", "'m' is unknown; the letters are M, N and K"),
        ("MNK", "write a `*` between factors: 'M * N * K'"),
        ("8MN/(4MN+4N)", "write a `*` between factors: '8 * M * N / (4 * M * N + 4 * N)'"),
        ("2 M N K", "write a `*` between factors: '2 * M * N * K'"),
        ("M²/(6M²)", "write a `*` between factors: 'M ** 2 / (6 * M ** 2)'"),
        ("2(M + N)(K)", "write a `*` between factors: '2 * (M + N) * K'"),
        ("MX", "'MX' is unknown; the letters are M, N and K"),
        ("2 3 * M", 'write a formula as a text, such as "2 * M"; the letters are M, N and K'),
        ("2 * (M + N", "in '2 * (M + N' a bracket is not closed"),
        ("1if 2else M", "write a formula as a text"),
        ("1 / (M - 3)", "divides by zero"),
    ],
)
def test_what_is_no_formula_is_told_how_to_write_one(formula, words):
    with warnings.catch_warnings(record=True) as warned, pytest.raises(UnreadableError) as error:
        warnings.simplefilter("always")
        evaluate(formula, LETTERS)
    assert not warned  # nbgrader takes a warning for a failure
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("answer", "unit", "number"),
    [
        (f"153{text}", "FLOP/byte", "153")
        for text in ("", " FLOP/byte", " FLOP/B", " FLOPs/byte", " FLOP / byte", " flop per byte")
    ]
    + [
        (text, "trips", "7")
        for text in ("7 trips", "7 passes", "7 trip", "7 trips over x", "7pass")
    ]
    + [("1 kernel", "kernels", "1"), ("2 kernels", "kernels", "2"), ("12 B", "bytes", "12")]
    + [("7 bytes", "trips", "7 bytes"), ("7 trips", "", "7 trips"), ("1 / B", "trips", "1 / B")],
)
def test_a_unit_can_be_written_in_many_ways(answer, unit, number):
    assert without_unit(answer, unit) == number


class Spiteful:
    def __float__(self):
        raise KeyError("no")


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9**9",
        "(2**1000)**1000",
        "((9**999)**999)**999",
        "1" + "*9" * 199,
        "M" * 400,
        "M" + "M**9" * 99,
        "(" * 199 + "2M" + ")" * 199,
        "(" * 199 + "1" + ")" * 199,
        "-" * 399 + "1",
        "1" * 100_000,
        "1" + "+1" * 1_000_000,
        "__import__('os').abort()",
        "[1] * 9**9",
        "'a' * 9**9",
        "(lambda: 1)()",
        "x := 1",
        "f'{1}'",
        "1 +",
        "#",
        Spiteful(),
    ],
    ids=range(20),
)
@pytest.mark.parametrize("letters", [{}, LETTERS], ids=["", "MNK"])
def test_a_malicious_answer_costs_nothing(answer, letters):
    begin = time.perf_counter()
    try:
        value = evaluate(answer, letters)
    except UnreadableError as error:
        assert len(str(error)) < 300
    else:
        assert abs(value) < 1e200
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize("answer", [None, ..., "", "  ", "...", "?", "___", "\n"])
def test_an_answer_that_is_still_open(answer):
    assert is_open(answer)


@pytest.mark.parametrize("answer", [0, 0.0, "0", False, "-", [], {}, "0."])
def test_an_answer_that_is_there(answer):
    assert not is_open(answer)


# -- questions ---------------------------------------------------------------------------------

TRUTH = 12345.678


def question_task(**change):
    questions = (
        Number(
            "moved",
            "bytes that it moves",
            truth=lambda: TRUTH,
            unit="bytes",
            slips=(
                Slip("forgot_the_write", 777, "the write is missing"),
                Slip("counted", lambda: 888, "that is what the other one moves"),
            ),
        ),
        Choice(
            "limit",
            "what sets the limit",
            options={"memory": "the bytes", "compute": "the FLOPs", "launch": "the launch"},
            right=lambda: "memory",
            slips=(Slip("not_compute", "compute", "there is hardly any arithmetic"),),
            also={"memory-bound": "memory"},
        ),
    )
    given = {"minutes": 1, "difficulty": 1, "place": 1, "hints": ("Think.",), **change}
    return QuestionTask("guess", "01", "Guess", questions=questions, **given)


def judged(answer, task=None):
    return (task or question_task()).check(answer, seed=0, time_limit=10)


RIGHT = {"moved": TRUTH, "limit": "memory"}


@pytest.mark.parametrize(
    "answer",
    [None, ..., "", {}, {"moved": None, "limit": None}, {"moved": "", "limit": ...}, {"x": None}],
)
def test_nothing_is_said_of_what_is_not_attempted(answer):
    verdict = judged(answer)
    assert (verdict.state, str(verdict)) == (NOT_ATTEMPTED, f"guess: {NOT_ATTEMPTED}")


@pytest.mark.parametrize(
    "limit",
    [
        "memory",
        " Memory",
        "MEMORY",
        "the bytes",
        "memory-bound",
        "Memory bound",
        "(memory)",
        "memory.",
        "memory: the bytes",
        ["memory"],
        {"memory"},
    ],
    ids=str,
)
@pytest.mark.parametrize("moved", [TRUTH, "12,345.678 bytes", "12345.678", 12300])
def test_right_answers_pass(moved, limit):
    verdict = judged({"moved": moved, "limit": limit})
    assert (verdict.state, verdict.points) == (PASSED, 2)
    assert [step.passed for step in verdict.steps] == [True, True]


def test_a_slip_is_named():
    verdict = judged({**RIGHT, "moved": "777 bytes"})
    assert (verdict.state, verdict.mistake) == (FAILED, "forgot_the_write")
    assert verdict.likely == "the write is missing"
    assert verdict.problem == '"moved" (bytes that it moves) is not right'
    assert verdict.hint is None
    assert judged({**RIGHT, "moved": 888}).mistake == "counted"
    assert judged({**RIGHT, "limit": "compute"}).mistake == "not_compute"


def test_where_no_slip_is_known_the_hint_helps():
    verdict = judged({**RIGHT, "moved": 20000})
    assert verdict.mistake is None
    assert verdict.problem.endswith("is not right: that is too much")
    assert verdict.hint == "Think."
    assert judged({**RIGHT, "moved": 10}).problem.endswith("that is too little")
    assert judged({**RIGHT, "limit": "launch"}).problem.endswith("is not right: that is not it")


PLAIN = [
    (2, "twice"),
    (3, "three times"),
    (4, "four times"),
    (8, "eight times"),
    (10, "ten times"),
    (10**3, "a thousand times"),
    (2**10, "1024 times"),
    (10**6, "a million times"),
    (2**20, "2²⁰ times"),
    (10**9, "10⁹ times"),
    (2**30, "2³⁰ times"),
    (10**12, "10¹² times"),
    (1 / 2, "half"),
    (1 / 3, "a third of"),
    (1 / 4, "a quarter of"),
    (1 / 8, "an eighth of"),
    (1 / 10, "a tenth of"),
    (1e-3, "a thousandth of"),
    (1 / 2**10, "1/1024 of"),
    (1e-6, "a millionth of"),
    (1 / 2**20, "2⁻²⁰ of"),
    (1e-9, "10⁻⁹ of"),
    (1 / 2**30, "2⁻³⁰ of"),
    (1e-12, "10⁻¹² of"),
]


@pytest.mark.parametrize(("factor", "words"), PLAIN)
def test_a_plain_factor_is_named(factor, words):
    verdict = judged({**RIGHT, "moved": TRUTH * factor})
    assert f"is not right: that is {words} the right number" in verdict.problem
    assert verdict.problem.endswith("prefix off?") == (not 1e-3 < factor < 1e3)
    assert verdict.mistake is None
    for unit, words_on_it in (("FLOP/byte", verdict.problem), ("trips", "the right number")):
        said = Number("n", "n", truth=lambda: TRUTH, unit=unit).judge(TRUTH * factor)
        assert words_on_it.endswith(said) or said.endswith(words_on_it)


def test_every_factor_is_tried():
    assert len(PLAIN) == len(question_module._FACTORS)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.024**2, "5 % too much: is it MB, not MiB?"),
        (1.024**3, "7 % too much: is it GB, not GiB?"),
        (1.024**4, "10 % too much: is it TB, not TiB?"),
        (1.024**-2, "5 % too little: is it MiB, not MB?"),
        (1.024**-3, "7 % too little: is it GiB, not GB?"),
        (1.024**-4, "9 % too little: is it TiB, not TB?"),
    ],
)
def test_a_binary_prefix_is_named_where_bytes_are_asked_for(factor, words):
    assert judged({**RIGHT, "moved": TRUTH * factor}).problem.endswith(words)
    number = Number("n", "n", truth=lambda: TRUTH, unit="FLOP/byte")
    assert number.judge(TRUTH * factor) in ("that is too much", "that is too little")


def test_zero_signs_and_ratios_the_wrong_way_round():
    ratio = Number("ratio", "", truth=lambda: 40.0, unit="FLOP/byte")
    assert ratio.judge(0) == "that is nothing, and there is something"
    assert ratio.judge(-40) == "that is below zero"
    assert ratio.judge("1/40") == "that is upside down: FLOP/byte is asked for"
    nothing = Number("nothing", "", truth=lambda: 0.0, unit="trips")
    assert nothing.judge(0) is None
    assert nothing.judge(2) == "that is not nothing, and nothing is what it is"


def test_the_tolerance_holds_on_both_sides():
    number = Number("n", "", truth=lambda: 100.0, unit="trips", tolerance=0.01)
    assert number.judge(100.9) is None and number.judge(99.1) is None
    assert number.judge(101.5) == "that is too much"
    assert number.judge(98.5) == "that is too little"


def formula_question():
    return Number(
        "product",
        "",
        truth=lambda M, N: M * N / (M + N),
        unit="FLOP/byte",
        letters={"M": (2, 3, 10), "N": (5, 7, 4)},
        slips=(Slip("sum", "M + N", "that is the sum"), Slip("square", "M / 2", "not square")),
    )


@pytest.mark.parametrize("formula", ["M * N / (M + N)", "1 / (1/M + 1/N) FLOP/byte", "N/(1+N/M)"])
def test_a_formula_is_right_in_any_form(formula):
    assert formula_question().judge(formula) is None


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("2 * M * N / (M + N)", "that is twice the right number"),
        ("(M + N) / (M * N)", "that is upside down"),
        ("M", "that formula gives other numbers than those that are counted"),
        (1.43, "that is one number; a formula of M, N is wanted"),
        ("10 / 7", "that is one number; a formula of M, N is wanted"),
    ],
)
def test_a_wrong_formula_is_told_what_is_wrong(formula, words):
    assert formula_question().judge(formula).startswith(words)


BRACKETS = "is the whole denominator in brackets? a / b * c is (a / b) * c"


@pytest.mark.parametrize(
    ("answer", "truth", "words"),
    [
        ("65 * 10^12/320 * 10^9", 203.125, BRACKETS),
        ("2 / 3 * 4 - 2", 0.2, BRACKETS),
        ("1 + 12 / 4 * 3 trips", 2, BRACKETS),
        ("1 // 6", 1 / 6, "`//` cuts off to a whole number; write `/`"),
    ],
)
def test_a_text_that_would_be_right_if_read_otherwise(answer, truth, words):
    slip = Number("n", "", truth=lambda: truth, unit="trips").judge(answer)
    assert (slip.name, slip.says) == ("not_as_meant", words)
    assert formula_question().judge("M * N / M + N").says == BRACKETS


def test_a_text_that_is_wrong_in_either_reading():
    number = Number("n", "", truth=lambda: 5.0, unit="trips")
    assert number.judge("12 / 4 * 3") == "that is too much"
    assert number.judge("1 / 2 * 0") == "that is nothing, and there is something"


def test_a_slip_may_be_known_from_a_rounded_number():
    slips = [Slip("near", 9.56, "", within=0.05), Slip("exact", 20, "")]
    number = Number("n", "", truth=lambda: 76.0, unit="FLOP/byte", slips=slips)
    assert number.judge(10).name == "near"
    assert number.judge(20.1).name == "exact"
    assert number.judge(10.5) == number.judge(20.5) == "that is too little"


def test_a_number_in_place_of_a_formula_is_too_large_or_too_small():
    letters = {"n": (10, 20)}
    ratio = Number("ratio", "", truth=lambda n: 1 / 6, unit="FLOP/byte", letters=letters)
    assert ratio.judge(0.167) is None
    assert ratio.judge(0.17) == "that is too much"
    assert ratio.judge("n / 7") == "that formula gives other numbers than those that are counted"


def test_a_slip_can_be_a_formula():
    assert formula_question().judge("N + M").name == "sum"
    assert formula_question().judge("0.5 * M").name == "square"


def test_every_wrong_answer_is_told_of_at_once():
    verdict = judged({"moved": 777, "limit": "memroy"})
    assert verdict.mistake == "forgot_the_write"
    assert verdict.notes == (
        '"limit" (what sets the limit) cannot be read: \'memroy\' is none of "memory", "compute", '
        '"launch"; did you mean "memory"?',
    )
    verdict = judged({"moved": "many", "limit": "compute"})
    assert (verdict.mistake, verdict.hint) == (None, None)
    assert verdict.problem == (
        '"moved" (bytes that it moves) cannot be read: '
        "'many' is unknown; a number is wanted, without letters"
    )
    assert verdict.notes == (
        '"limit" (what sets the limit) is not right: there is hardly any arithmetic',
    )


@pytest.mark.parametrize(
    "option", [True, 1, ["memory", "launch"], [], "memory or launch", "x" * 500]
)
def test_what_is_no_option_is_said_to_be_none(option):
    verdict = judged({**RIGHT, "limit": option})
    assert 'is none of "memory", "compute", "launch"' in verdict.problem
    assert len(verdict.problem) < 250


def letter_question():
    return Choice(
        "which", "", options={"A": "if x is large", "B": "m.t()", "C": "m.t() + 1"}, right="B"
    )


@pytest.mark.parametrize("answer", ["B", "b", "(B)", "B)", "B.", '"B"', ["B"], "B: m.t()", "m.t()"])
def test_a_letter_can_be_written_in_many_ways(answer):
    assert letter_question().judge(answer) is None


@pytest.mark.parametrize("answer", ["AB", "A, B", "A or B", "D", ["A", "B"], "B if x is large"])
def test_what_is_no_letter_is_not_guessed(answer):
    with pytest.raises(UnreadableError, match=r'is none of "A", "B", "C"; give one letter$'):
        letter_question().judge(answer)


def test_half_an_answer_is_no_answer():
    verdict = judged({"moved": TRUTH, "limit": None})
    assert (verdict.state, verdict.points) == (FAILED, 0)
    assert verdict.problem == 'no answer yet to "limit"'
    assert [step.passed for step in verdict.steps] == [True, None]


def test_a_key_that_is_nearly_right_is_named():
    verdict = judged({"MOVED": 777, "limt": "memory", 3: 4})
    assert verdict.problem == 'no answer yet to "moved" and "limit"'
    assert verdict.notes == (
        "'MOVED' is no question here; did you mean \"moved\"?",
        "'limt' is no question here; did you mean \"limit\"?",
        "3 is no question here",
    )
    assert judged({**RIGHT, "extra": 1}).passed


@pytest.mark.parametrize("answer", [3, [1, 2], "7", len])
def test_an_answer_that_is_no_dict(answer):
    verdict = judged(answer)
    assert verdict.state == FAILED
    assert verdict.problem.startswith(
        f"`guess` is of type {type(answer).__name__}; a dict is wanted"
    )
    assert verdict.problem.endswith('{"moved": ..., "limit": ...}')


def test_the_truth_is_never_shown():
    for moved, limit in itertools.product(
        (1, 777, "x", TRUTH * 2, TRUTH / 1024, None), ("compute", "launch", "nonsense")
    ):
        verdict = judged({"moved": moved, "limit": limit})
        card = str(verdict) + verdict._repr_html_()
        assert "12345" not in card and "12,345" not in card
        assert "the bytes" not in card


def test_the_kind_follows_from_the_questions():
    number, choice = question_task().questions
    assert question_task().kind == "predict"
    given = {"minutes": 1, "difficulty": 1, "place": 1}
    assert QuestionTask("q", "01", "Q", questions=[choice], **given).kind == "choose"
    assert QuestionTask("q", "01", "Q", questions=[number], **given).kind == "predict"


# -- functions ---------------------------------------------------------------------------------


def total(numbers, factor=1):
    return factor * sum(numbers)


def by_loop(numbers, factor=1):
    result = 0
    while numbers:
        result += factor * numbers.pop()
    return result


def function_task():
    return FunctionTask(
        "total",
        "01",
        "Total",
        minutes=1,
        difficulty=1,
        place=1,
        hints=("Add.",),
        solution=(total,),
        reference=total,
        cases=lambda draw: [
            Case("two numbers", ([1.0, 2.5],)),
            Case("a factor", ([3.0, draw.integer(4, 9)],), keywords={"factor": 2}),
            Case("nothing", ([],)),
        ],
        mistakes=(
            Mistake("no_factor", [("factor * sum(numbers)", "sum(numbers)")], says="no factor"),
            Mistake(
                "printed",
                [("return factor * sum(numbers)", "print(factor * sum(numbers))")],
                says="printed",
                hint="Return it.",
            ),
            Mistake("mean", [("sum(numbers)", "sum(numbers) / len(numbers)")], says="the mean"),
            Mistake("nan", [("sum(numbers)", "float('nan')")], says="nothing"),
        ),
        alternatives=(Alternative("by_loop", functions=(by_loop,)),),
    )


def tried(answer, **options):
    return function_task().check(answer, seed=0, **{"time_limit": 20, **options})


def test_a_right_function_passes_even_if_it_uses_its_arguments_up():
    assert tried(total).state == PASSED
    verdict = tried(by_loop)
    assert (verdict.state, verdict.points) == (PASSED, 2)
    assert verdict.steps[-1].detail == "3 cases"


@pytest.mark.parametrize("answer", [None, ...])
def test_no_function_is_no_attempt(answer):
    assert tried(answer).state == NOT_ATTEMPTED


def test_a_hole_is_no_attempt():
    def total(numbers, factor=1):
        """Add."""
        # Your lines go here.
        pass

    def nothing(numbers, factor=1):
        return None

    def later(numbers, factor=1):
        raise NotImplementedError

    assert {tried(answer).state for answer in (total, nothing, later)} == {NOT_ATTEMPTED}


def test_a_known_mistake_is_named_and_what_it_prints_is_not_shown():
    def wrong(numbers, factor=1):
        print("mine", sum(numbers))
        return sum(numbers)

    verdict = tried(wrong)
    assert (verdict.mistake, verdict.likely, verdict.hint) == ("no_factor", "no factor", None)
    assert verdict.problem.startswith("`total` is wrong for a factor: it returned ")
    assert verdict.printed.splitlines() == ["mine 3.5", *verdict.printed.splitlines()[1:]]
    assert all(line.startswith("mine") for line in verdict.printed.splitlines())

    def printed(numbers, factor=1):
        print("only", factor * sum(numbers))

    verdict = tried(printed)
    assert (verdict.mistake, verdict.hint) == ("printed", "Return it.")
    assert verdict.problem.endswith("it returned None. Is there a `return`?")
    assert [line.split()[0] for line in verdict.printed.splitlines()] == ["only"] * 3


def test_a_mistake_may_raise_or_give_no_number():
    def mean(numbers, factor=1):
        return factor * (sum(numbers) / len(numbers))

    assert tried(mean).mistake == "mean"
    assert tried(lambda numbers, factor=1: factor * float("nan")).mistake == "nan"


def test_a_mistake_is_not_guessed():
    verdict = tried(lambda numbers, factor=1: 3.5)
    assert (verdict.mistake, verdict.likely, verdict.hint) == (None, None, "Add.")


@pytest.mark.parametrize("result", ["3.5", b"3", True, [3.5], torch.ones(2), print])
def test_a_result_of_another_kind_is_no_number(result):
    verdict = tried(lambda numbers, factor=1: result)
    kind = type(result).__name__
    assert f"it returned something of type {kind}; a number is wanted" in verdict.problem


@pytest.mark.parametrize("kind", [np.float64, Fraction, torch.tensor])
def test_a_number_may_be_of_any_type(kind):
    assert tried(lambda numbers, factor=1: kind(factor * sum(numbers))).passed


def test_what_is_no_function_or_fails():
    assert tried(3.5).problem == "`total` is of type float; a function is wanted"

    def fails(numbers, factor=1):
        return numbers[5]

    verdict = tried(fails)
    assert verdict.problem == "it raised IndexError: list index out of range (two numbers)"
    assert verdict.line == "fails: return numbers[5]"

    def ends(numbers, factor=1):
        os._exit(3)

    assert "ended with exit status 3" in tried(ends).problem

    def sleeps(numbers, factor=1):
        time.sleep(30)

    assert "did not end within 0.3 seconds" in tried(sleeps, time_limit=0.3).problem


# -- the tasks of lessons 01 to 03 ---------------------------------------------------------------


def test_there_are_as_many_tasks_as_there_should_be():
    assert [task.key for task in TASKS] == [
        "01/predict_trips",
        "01/trips_of",
        "01/moves_nothing",
        "02/intensity",
        "02/attainable",
        "02/ridges",
        "02/which_bound",
        "03/predict_fusions",
        "03/best_partition",
        "03/chain_with_reduction",
    ]


@pytest.mark.parametrize("task", QUESTION_TASKS, ids=lambda task: task.name)
def test_every_question_knows_the_slips_that_people_make(task):
    every = [slip.name for question in task.questions for slip in question.slips]
    assert len(every) == len(set(every))
    for question in task.questions:
        if isinstance(question, Choice):
            assert {slip.value for slip in question.slips} | {question.truth()} == {
                *question.options
            }
        else:
            assert len(question.slips) >= 3


def question_of(task, name):
    return next(question for question in checks.task(task).questions if question.name == name)


@pytest.mark.parametrize("words", ["bandwidth-bound", "memory-bound", "Memory bound", "bandwidth"])
def test_a_bound_can_be_named_as_in_the_lesson(words):
    assert question_of("which_bound", "gelu").judge(words) is None
    assert question_of("which_bound", "rows_1024").judge("compute-bound") is None
    assert question_of("which_bound", "tiny_add").judge("launch-bound") is None


def test_a_ridge_that_is_another_is_named():
    a100 = question_of("ridges", "a100_80gb")
    assert a100.judge(gpus.gpu("a100").ridge("tf32")).name == "a100_80gb_of_a100_40gb"
    assert a100.judge(10).name == "a100_80gb_peak_of_fp32"
    assert question_of("ridges", "t4").judge(25).name == "t4_peak_of_fp32"
    assert question_of("ridges", "t4").judge("65 * 2**40 / (320 * 2**30)").name == (
        "t4_binary_tera_and_giga"
    )


# -- what the checks count is what kernels do ----------------------------------------------------


@triton.jit
def gelu_of(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def mean_kernel(x_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(mean_ptr, tl.sum(gelu_of(tl.load(x_ptr + at)), 0) / n)


@triton.jit
def rest_kernel(x_ptr, w_ptr, mean_ptr, p_ptr, q_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h, w = gelu_of(tl.load(x_ptr + at)), tl.load(w_ptr + at)
    tl.store(p_ptr + at, (h - tl.load(mean_ptr)) * w)
    tl.store(q_ptr + at, h + w)


def test_the_best_partition_is_what_real_kernels_need():
    from course_utils.checks.library.l03_best_partition import BEST, GRAPH, ONE_EACH

    x, w = torch.randn(2**14), torch.randn(2**14)
    with Meter() as eager:
        h = torch.nn.functional.gelu(x)
        p, q = (h - h.mean()) * w, h + w
    mean, mine_p, mine_q = torch.zeros(1), torch.empty_like(x), torch.empty_like(x)
    with Meter() as fused:
        mean_kernel[(16,)](x, mean, x.numel(), BLOCK=1024)
        rest_kernel[(16,)](x, w, mean, mine_p, mine_q, BLOCK=1024)
    torch.testing.assert_close((mine_p, mine_q), (p, q), rtol=1e-4, atol=1e-5)
    assert round(eager.trips(x), 2) == GRAPH.trips(ONE_EACH) == 11
    assert round(fused.trips(x), 1) == GRAPH.trips(BEST) == GRAPH.fewest_trips == 5
    assert GRAPH.fewest_kernels == 2
    assert [set(kernel) for kernel in GRAPH.best] == [set(kernel) for kernel in BEST]


def test_a_reduction_costs_a_kernel_and_a_trip_over_all_and_nothing_over_rows():
    from course_utils.checks.library.l03_chain_with_reduction import ONE_EACH, ROWS, WHOLE

    x = torch.empty(64, 1024, device="meta")
    with Meter() as eager:
        h = torch.nn.functional.gelu(x * 1.5)
        torch.tanh(h / h.max())
    assert round(eager.trips(x), 2) == WHOLE.trips(ONE_EACH) == 9
    assert (WHOLE.fewest_kernels, WHOLE.fewest_trips) == (2, 3)
    assert (ROWS.fewest_kernels, ROWS.fewest_trips) == (1, 2)


@pytest.mark.parametrize("name", ["leaky", "momentum", "affine"])
def test_the_fused_kernels_compute_what_the_ops_do(name):
    from course_utils.checks.library import l03_predict_fusions as fusions

    fused, eager = (
        getattr(fusions, prefix + name)(*fusions.operands(name)) for prefix in ("", "eager_")
    )
    torch.testing.assert_close(fused, eager)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (["gelu", "mean"], "a list of kernels is wanted, each a list of ops"),
        ("gelu", "a list of kernels is wanted"),
        ([["gelu", "center"]], "'center' is no op here; there are gelu, mean, centre"),
        (
            [["gelu", "mean"], ["gelu", "centre"], ["gelu", "gain", "shift"]],
            "that is possible, and makes 8 trips, but fewer are enough; read more than once: x; "
            "written and read again: centre",
        ),
        ([["gelu", "mean"], ["gelu", "centre", "gain"]], "no kernel does `shift`: both results"),
        ([["gelu"], ["centre", "gain", "shift"], ["mean"]], "`mean` is used before it is there: a"),
    ],
)
def test_a_partition_that_no_slip_explains_is_told_what_it_moves(answer, words):
    question = question_of("best_partition", "kernels")
    try:
        found = question.judge(answer)
    except UnreadableError as error:
        assert not words.startswith("that is")
        found = str(error)
    assert (found.says if isinstance(found, Slip) else found).startswith(words)


def test_a_plan_can_be_written_in_many_ways():
    question = question_of("best_partition", "kernels")
    assert len(question.aliases) >= 4
    assert [question.judge(plan) for plan in question.aliases] == [None] * len(question.aliases)


# -- the exercises say what is checked -----------------------------------------------------------


def words_of(name):
    for path in notebooks.solutions(notebooks.ROOT):
        for cell in notebooks.read(path).cells:
            if cell.id == f"task-{name}":
                return cell.source
    raise AssertionError(f"no solution notebook describes {name}")


def test_the_exercises_show_the_snippets_that_are_counted():
    from course_utils.checks.library import l01_moves_nothing, l01_predict_trips

    for key, snippet in l01_predict_trips.SNIPPETS.items():
        assert f"| {key} | `{snippet}` |" in words_of("predict_trips")
    for key, lines in l01_moves_nothing.LINES.items():
        cells = " | ".join(f"`{lines[option]}`" for option in "ABCD")
        assert f"| `{key}` | {cells} |" in words_of("moves_nothing")


def test_the_ridges_follow_from_the_figures_in_the_exercise():
    row = re.compile(r"^\| ([^|]+) \| (.+ TFLOP/s .+) \| (.+) ([GT])B/s \|$", re.MULTILINE)
    ridges = {}
    for name, peaks, bandwidth, prefix in row.findall(words_of("ridges")):
        per_second = float(bandwidth) * {"G": 1e9, "T": 1e12}[prefix]
        for peak, dtype in re.findall(r"([\d.]+) TFLOP/s \((\w+)\)", peaks):
            ridges[f"the ridge of {dtype} on the {name}"] = float(peak) * 1e12 / per_second
    assert len(ridges) == 8
    for question in checks.task("ridges").questions:
        assert question.truth() == pytest.approx(ridges[question.asks])


def test_lesson_02_prints_only_one_of_the_ridges():
    (lesson,) = (notebooks.ROOT / "notebooks").glob("02_*.ipynb")
    (cell,) = (cell for cell in notebooks.read(lesson).cells if cell.id == "ridges")
    lines = [line.split("TB/s") for line in cell.outputs[0].text.splitlines() if "TB/s" in line]
    printed = {name[:24].strip(): numbers.split()[::2] for name, numbers in lines}
    assert printed["A100 80 GB SXM"] == ["10", "153"]
    found = [
        question.name
        for question in checks.task("ridges").questions
        if f"{question.truth():.0f}" in printed[gpus.gpu(question.name).name]
    ]
    assert found == ["t4"]


# -- the card ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("a multiplication is one", "A multiplication is one."),
        ("a GELU counts as one", "A GELU counts as one."),
        ("the write is missing", "The write is missing."),
        ("a is a number", "a is a number."),
        ("x is read once", "x is read once."),
        ("out_ptr is not used", "out_ptr is not used."),
        ("`total` is of type int", "`total` is of type int."),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_with_a_name(words, sentence):
    assert card._sentence(words) == sentence


def test_the_card_keeps_words_whole_and_its_marks_in_line():
    steps = tuple(Step(f"step {passed}", passed) for passed in (True, False, None))
    for length in range(60, 100):
        verdict = Verdict("t", "T", FAILED, steps=steps, problem="x" * length + " memory-bound")
        assert "memory-bound" in verdict.text
    marks = re.findall(
        r'<span aria-hidden="true" style="([^"]+)">(.)</span>', card.to_html(verdict)
    )
    assert [mark for _, mark in marks] == ["✓", "✗", "·"]
    (style,) = {style for style, _ in marks}
    assert "display:inline-block" in style and "width:1.2em" in style
