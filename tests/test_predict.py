"""One line that says how a guess relates to what was counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from course_utils.predict import compare


@pytest.fixture
def line(capsys):
    """Call compare and give the one line that it prints."""

    def call(*args, **kwargs) -> str:
        assert compare(*args, **kwargs) is None
        out, err = capsys.readouterr()
        assert err == ""
        assert out.count("\n") == 1 and out.endswith("\n")
        return out.rstrip("\n")

    return call


def test_without_a_guess_the_line_is_the_truth_alone(line):
    expected = "You: no guess yet. Counted: 10.00 trips."
    for guess in (None, ..., "", "  "):
        assert line(guess, 10, "trips") == expected
    assert line(None, 10.0, "trips") == line(None, np.float64(10), "trips") == expected


def test_an_integer_is_a_count_but_trips_are_a_ratio(line):
    said = line(None, 3, "of 10 raise an error", source="Recorded")
    assert said == "You: no guess yet. Recorded: 3 of 10 raise an error."
    assert line(None, np.int64(1349), "lanes") == "You: no guess yet. Counted: 1,349 lanes."
    assert line(4, 2, "programs").startswith("You: 4. Counted: 2 programs. Twice as much")
    assert "3.00 lanes" in line(None, 3.0, "lanes")
    assert "3.00 trips: m in" in line(None, 1 + 2, "trips: m in, p and q out", source="Computed")


def test_the_source_of_the_truth_can_be_named(line):
    assert line(None, 2.53, "ms", source="Recorded") == "You: no guess yet. Recorded: 2.53 ms."


@pytest.mark.parametrize(
    ("guess", "verdict"),
    [
        (10, "You: 10. Counted: 10.00 trips. Right."),
        (10.005, "Right."),
        (10.4, "Right within 5 %."),
        (9.6, "Right within 5 %."),
        (5, "You: 5. Counted: 10.00 trips. Half of it: did you count both the reads and the"),
        (20, "Twice as much: perhaps"),
        (40, "Four times as much: perhaps"),
        (80, "Eight times as much: perhaps"),
        (2.5, "A quarter of it: perhaps"),
        (1.25, "An eighth of it: perhaps"),
        (1, "A tenth of it: perhaps"),
        (10_000, "10³ times too much: perhaps"),
        (10_240, "2¹⁰ times too much: perhaps"),
        (10e6, "10⁶ times too much: perhaps"),
        (10e9, "10⁹ times too much: perhaps"),
        (10 * 2**30, "2³⁰ times too much: perhaps"),
        (0.01, "10³ times too little: perhaps"),
        (1e-8, "10⁹ times too little: perhaps"),
        (-10, "The right size with the other sign: perhaps"),
        (-3, "The other sign: perhaps"),
        (13, "1.3 times too high."),
        (10 / 2.333, "2.3 times too low."),
        (11, "10 % too high."),
        (9, "11 % too low."),
        (1230, "120 times too high."),
        (0.0123, "810 times too low."),
        (3.1e4, "3,100 times too high."),
        (3.1e10, "3.1e+09 times too high."),
        (0, "Zero, but there is something to count"),
    ],
)
def test_verdicts_on_ten_trips(line, guess, verdict):
    assert verdict in line(guess, 10, "trips")


def test_a_guess_of_ten_trips_is_never_told_about_gibibytes(line):
    # 10.74 is 1.0737 times as much, which for bytes would look like GB against GiB.
    assert "GiB" not in line(10.74, 10, "trips")


@pytest.mark.parametrize(
    ("guess", "truth", "unit", "remark"),
    [
        (10, 10.73741824, "GB", "GB (10⁹ bytes) and GiB (2³⁰ bytes) got mixed"),
        (10.73741824, 10, "GB/s", "GB (10⁹ bytes) and GiB (2³⁰ bytes) got mixed"),
        (100, 104.8576, "MB", "MB (10⁶ bytes) and MiB (2²⁰ bytes) got mixed"),
        (1, 1.024, "kB", "kB (10³ bytes) and KiB (2¹⁰ bytes) got mixed"),
        (1.0995, 1, "TB", "TB (10¹² bytes) and TiB (2⁴⁰ bytes) got mixed"),
    ],
)
def test_decimal_and_binary_prefixes_are_told_apart(line, guess, truth, unit, remark):
    assert remark in line(guess, truth, unit)


@pytest.mark.parametrize(
    ("guess", "unit", "cause"),
    [
        (25, "bytes", "elements were counted and not bytes"),
        (200, "bytes", "4-byte elements where they have 2"),
        (800, "GB", "bits were counted"),
        (50, "FLOPs", "a multiplication and an addition"),
        (50, "TFLOP/s", "a multiplication and an addition"),
        (50, "FLOP/byte", "a multiplication and an addition"),
        (200, "FLOP/byte", "only the reads or only the writes"),
        (50, "FLOP/byte (saxpy)", "2 or 4? If those are right, perhaps a multiplication and"),
        (200, "FLOP/byte", "2 or 4? If those are right, perhaps only the reads"),
        (50, "GB/s", "both the reads and the writes"),
        (25, "trips (a)", "only some of the launches"),
        (50, "trips of a", "both the reads and the writes"),
        (50, "times faster", "is a factor of 2 missing"),
    ],
)
def test_the_common_cause_depends_on_what_is_counted(line, guess, unit, cause):
    assert cause in line(guess, 100, unit)


@pytest.mark.parametrize("unit", ["FLOPs per number", "ops", "rows and columns", "trips: m in"])
@pytest.mark.parametrize("factor", [2, 4, 8, 1 / 2, 1 / 4, 1 / 8])
def test_what_is_computed_has_no_launches_reads_or_multiply_adds(line, unit, factor):
    said = line(100 * factor, 100, unit, source="Computed")
    assert f"a factor of {max(factor, 1 / factor):.0f} " in said
    assert "launch" not in said and "multipl" not in said and "reads" not in said


@pytest.mark.parametrize("source", ["Counted", "Computed"])
def test_a_reciprocal_intensity_is_called_upside_down(line, source):
    assert "Upside down" in line(8, 1 / 8, "FLOP/byte", source=source)
    assert "Upside down" in line(2, 0.5, "FLOP/byte (layer norm)", source=source)
    assert "Upside down" in line("12/2", 2 / 12, "FLOP/byte (saxpy)", source=source)
    assert "Upside down" not in line(1, 1, "FLOP/byte", source=source)
    assert "Upside down" not in line(8, 1 / 8, "trips", source=source)


def test_a_cause_is_a_question_or_a_perhaps(line):
    for factor in (2, 4, 8, 10, 1000, 1024, 1e6, 1e9, -1, 1 / 2, 1 / 4, 1 / 8, 1e-3):
        for unit in ("", "trips", "bytes", "FLOPs", "FLOP/byte"):
            assert line(100 * factor, 100, unit).endswith("?")


def test_the_tolerance_decides_what_is_right(line):
    assert "Right within 20 %." in line(8.5, 10, tolerance=0.2)
    assert line(9.9, 10, tolerance=0).endswith("1 % too low.")
    assert line(10, 10, tolerance=0).endswith("Right.")
    # A factor within the tolerance is right, not "twice as much".
    assert "Right within 60 %." in line(5, 10, tolerance=0.6)


@pytest.mark.parametrize("guess", ["10", " 10 ", "1e1", "20/2", "10 trips", "10.0", Fraction(10)])
def test_many_ways_to_write_ten(line, guess):
    assert line(guess, 10, "trips") == "You: 10. Counted: 10.00 trips. Right."


def test_numbers_of_numpy_and_grouped_digits(line):
    assert line(np.int64(5), 10).startswith("You: 5. Counted: 10. Half of it")
    assert line("1,073,741,824", 2**30, "bytes").endswith("Right.")


@pytest.mark.parametrize("guess", ["ten", "1/0", "10 bananas", "1e999", "nan", "inf"])
def test_text_that_is_no_number_is_refused_with_an_example(guess):
    with pytest.raises(ValueError, match=r"your guess .* write for example 10, 2\.5"):
        compare(guess, 10, "trips")


@pytest.mark.parametrize("guess", [True, [10], {}, 1j, np.ones(3), object()])
def test_things_that_are_no_number_are_refused_with_an_example(guess):
    with pytest.raises(TypeError, match=r"your guess is of type .* write for example 10, 2\.5"):
        compare(guess, 10)


def test_a_guess_or_truth_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="your guess must be a finite number"):
        compare(float("nan"), 10)
    with pytest.raises(ValueError, match="the truth to compare with must be a finite number"):
        compare(1, float("inf"))
    with pytest.raises(TypeError, match="the truth to compare with must be one number"):
        compare(1, "many")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance"):
        compare(1, 1, tolerance=5)


def test_a_truth_of_zero(line):
    assert line(0, 0, "trips") == "You: 0. Counted: 0.00 trips. Right."
    assert "It is exactly zero" in line(2, 0, "trips")


@pytest.mark.parametrize(
    ("truth", "shown"),
    [
        (10.0, "10.00"),
        (10, "10"),
        (0.0, "0.00"),
        (0, "0"),
        (0.125, "0.125"),
        (1 / 12, "0.0833"),
        (12.345, "12.35"),
        (400012, "400,012"),
        (2**28 * 40, "10,737,418,240"),
        (1234.5, "1,234.50"),
        (3.2e-5, "3.200e-05"),
        (1e18, "1.000e+18"),
        (10**18, "1,000,000,000,000,000,000"),
    ],
)
def test_how_the_truth_is_written(line, truth, shown):
    assert line(None, truth) == f"You: no guess yet. Counted: {shown}."
