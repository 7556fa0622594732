"""Compare a reader's guess with the counted truth, in one friendly line."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from numbers import Integral
from types import EllipsisType

# How far a guess may lie from a whole relation (half of it, 1000 times, ...) and still be taken
# for one. Guesses are typed with two or three digits, so 1 % separates them from chance.
_RELATION_TOLERANCE = 0.01
# Closer than this is called right without a remark: the guess was rounded, not estimated.
_EXACT_TOLERANCE = 1e-3

# What a guess may be of. The same factor has different common causes for each of these; "other" is
# what nothing is known of, such as a count of rows or a computed FLOPs per number.
_TRIPS, _BYTES, _FLOPS, _INTENSITY, _OTHER = "trips", "bytes", "flops", "intensity", "other"

_BOTH_WAYS = "did you count both the reads and the writes?"
_PER_NUMBER = "bytes per number: 2 or 4? If those are right, perhaps "
_NOT_ALL = "perhaps only some of the launches were counted?"
# guess / truth -> (what the reader sees, kind -> what often causes it). Each cause is a question:
# a ratio alone proves nothing.
_RELATIONS: list[tuple[float, str, dict[str, str]]] = [
    (
        2,
        "Twice as much",
        {
            _TRIPS: "perhaps a read and a write were counted where only one of them happens?",
            _BYTES: "perhaps a read or a write too many, or 4-byte elements where they have 2?",
            _FLOPS: "perhaps each multiply-add was counted as more than two?",
            _INTENSITY: _PER_NUMBER + "only the reads or only the writes went into the bytes?",
            _OTHER: "perhaps a factor of 2 too many, such as 4 bytes per number where it has 2?",
        },
    ),
    (
        1 / 2,
        "Half of it",
        {
            _TRIPS: _BOTH_WAYS,
            _BYTES: _BOTH_WAYS,
            _FLOPS: "perhaps a multiplication and an addition were counted as one?",
            _INTENSITY: _PER_NUMBER + "a multiplication and an addition were counted as one?",
            _OTHER: "is a factor of 2 missing, such as the bytes of a 16-bit number?",
        },
    ),
    (
        4,
        "Four times as much",
        {
            _TRIPS: "perhaps bytes per element (a float32 has 4) crept in?",
            _BYTES: "perhaps each element was taken to have more bytes than it has?",
            _INTENSITY: "perhaps FLOPs per element and not per byte (a float32 has 4)?",
            _OTHER: "perhaps a factor of 4 too many, such as the bytes of a float32?",
        },
    ),
    (
        1 / 4,
        "A quarter of it",
        {
            _TRIPS: _NOT_ALL,
            _BYTES: "perhaps elements were counted and not bytes (a float32 has 4)?",
            _INTENSITY: "perhaps the 4 bytes of a float32 went in twice?",
            _OTHER: "is a factor of 4 missing, such as the bytes of a float32?",
        },
    ),
    (
        8,
        "Eight times as much",
        {
            _TRIPS: "perhaps the bytes read and written per element (4 + 4) crept in?",
            _BYTES: "perhaps bits were counted and not bytes?",
            _INTENSITY: "perhaps FLOPs per element and not per byte read and written (4 + 4)?",
            _OTHER: "perhaps a factor of 8 too many, such as 4 bytes read and 4 written?",
        },
    ),
    (
        1 / 8,
        "An eighth of it",
        {
            _TRIPS: _NOT_ALL,
            _BYTES: "perhaps elements were counted and not the bytes read and written (4 + 4)?",
            _OTHER: "is a factor of 8 missing, such as 4 bytes read and 4 written?",
        },
    ),
    (10, "Ten times as much", {_OTHER: "perhaps a decimal place slipped?"}),
    (1 / 10, "A tenth of it", {_OTHER: "perhaps a decimal place slipped?"}),
    (-1, "The right size with the other sign", {_OTHER: "perhaps a minus slipped in?"}),
]
# guess / truth near 1, where the decimal and the binary meaning of a prefix lie close together.
_PREFIX_GAPS: list[tuple[float, str]] = []
for _power, _decimal, _binary, _ten, _two in [
    (1, "kB", "KiB", "10³", "2¹⁰"),
    (2, "MB", "MiB", "10⁶", "2²⁰"),
    (3, "GB", "GiB", "10⁹", "2³⁰"),
    (4, "TB", "TiB", "10¹²", "2⁴⁰"),
]:
    for _base, _shown in [(1000.0, _ten), (1024.0, _two)]:
        _cause = {_OTHER: f"perhaps a unit or a prefix is off by {_shown}?"}
        _RELATIONS += [
            (_base**_power, f"{_shown} times too much", _cause),
            (_base**-_power, f"{_shown} times too little", _cause),
        ]
    _text = (
        f"perhaps {_decimal} ({_ten} bytes) and {_binary} ({_two} bytes) got mixed, "
        f"which differ by {100 * (1.024**_power - 1):.1f} %"
    )
    _PREFIX_GAPS += [(1.024**_power, _text), (1.024**-_power, _text)]
# 1.024 and 1.0486 differ by 2.4 %; this keeps them, and a mere rounding, apart.
_PREFIX_GAP_TOLERANCE = 0.002


def compare(
    guess: object,
    truth: float,
    unit: str = "",
    tolerance: float = 0.05,
    *,
    source: str = "Counted",
) -> None:
    """Print one line that holds the reader's guess beside the truth; return nothing.

    The line depends on the arguments alone, so a cell that calls this with the guess still open
    prints the same on every machine.

    Args:
        guess: a number, a fraction, a string such as "10", "1/4", "1e9" or "10 trips"; `None`
            or `...` for no guess yet.
        truth: what was counted, in `unit`; anything `float()` takes, finite. An integer is printed
            as one, but for trips.
        unit: its unit, in the plural ("trips"), printed after the truth.
        tolerance: relative distance from the truth that still counts as right; 0.05 is 5 %.
        source: where the truth comes from, such as "Counted", "Computed" or "Recorded"; of what
            was computed no cause is named that has to do with launches.

    Raises:
        TypeError, ValueError: the guess is not a finite number; or truth or tolerance is not.
    """
    expected = _truth(truth)
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is a share of the truth from 0 to below 1, not {tolerance!r}")
    value = _guess(guess, unit)
    # An int is a count of things. Trips are a ratio, even where one is computed as an int.
    whole = isinstance(truth, Integral) and not unit.startswith("trip")
    shown = f"{truth:,}" if whole else _format_truth(expected)
    counted = f"{source}: {shown}{' ' + unit if unit else ''}."
    if value is None:
        print(f"You: no guess yet. {counted}")
    else:
        verdict = _verdict(value, expected, _kind(unit, source), tolerance)
        print(f"You: {_format_guess(value)}. {counted} {verdict}")


def _verdict(guess: float, truth: float, kind: str, tolerance: float) -> str:
    """One sentence on how `guess` relates to `truth`, a figure of this kind."""
    if guess == truth:
        return "Right."
    if truth == 0:
        return "It is exactly zero: perhaps nothing is moved here at all?"
    if guess == 0:
        return "Zero, but there is something to count: what is left out?"
    ratio = guess / truth
    distance = abs(ratio - 1)
    if distance <= min(_EXACT_TOLERANCE, tolerance):
        return "Right."
    gap = _prefix_gap(ratio) if kind == _BYTES else None
    if distance <= tolerance:
        return f"Right within {_percent(tolerance)}{'; ' + gap if gap else ''}."
    if gap:
        return f"Close: {gap}."
    if kind == _INTENSITY and abs(guess * truth - 1) <= _RELATION_TOLERANCE:
        return "Upside down: perhaps bytes per FLOP, where FLOPs per byte are asked for?"
    relation = _relation(ratio, kind)
    if relation:
        return relation
    if ratio < 0:
        return "The other sign: perhaps a minus slipped in?"
    return _how_far(max(ratio, 1 / ratio), "high" if ratio > 1 else "low")


def _how_far(factor: float, direction: str) -> str:
    """How much too high or too low a guess is that has no telling relation; `factor` above 1."""
    if factor < 1.2:
        return f"{100 * (factor - 1):.2g} % too {direction}."
    rounded = float(f"{factor:.2g}")
    return f"{f'{rounded:,g}' if rounded < 1e6 else f'{rounded:.1e}'} times too {direction}."


def _kind(unit: str, source: str) -> str:
    """What `unit` measures, as far as common mistakes depend on it."""
    # What follows a bracket or a colon says which one is meant: "FLOP/byte (saxpy)". "GB/s" and
    # "TFLOP/s" are rates of the same things.
    text = re.split("[(:]", unit)[0].strip().lower().removesuffix("/s")
    if "flop" in text and "byte" in text:
        return _INTENSITY
    # What is computed from figures has no launches, reads and writes to forget.
    if source.lower() == "computed" or " per " in text:
        return _OTHER
    if text.startswith("trip"):
        return _TRIPS
    if "flop" in text:
        return _FLOPS
    return _BYTES if "byte" in text or text.endswith("b") else _OTHER


def _relation(ratio: float, kind: str) -> str | None:
    """The relation nearest to `ratio` = guess / truth and its usual cause, where one is near."""
    factor, words, causes = min(_RELATIONS, key=lambda entry: abs(ratio / entry[0] - 1))
    if abs(ratio / factor - 1) > _RELATION_TOLERANCE:
        return None
    return f"{words}: {causes.get(kind, causes[_OTHER])}"


def _prefix_gap(ratio: float) -> str | None:
    """The remark on decimal and binary prefixes, where their gap explains `ratio`."""
    factor, text = min(_PREFIX_GAPS, key=lambda entry: abs(ratio / entry[0] - 1))
    return text if abs(ratio / factor - 1) <= _PREFIX_GAP_TOLERANCE else None


def _guess(guess: object, unit: str) -> float | None:
    """The guess as a number; None where there is none yet."""
    if guess is None or isinstance(guess, EllipsisType):
        return None
    if isinstance(guess, str):
        return _guess_from_text(guess, unit)
    # A bool is an int in Python, but as a guess it is a slip.
    value = None if isinstance(guess, bool) else _as_float(guess)
    if value is None:
        raise TypeError(
            f"your guess is of type {type(guess).__name__}, not one number; "
            'write for example 10, 2.5 or "1/4", or None for no guess yet'
        )
    return _finite(value, "your guess")


def _guess_from_text(text: str, unit: str) -> float | None:
    """The number that a reader typed as text, with or without its unit."""
    stripped = text.strip()
    if unit:
        stripped = stripped.removesuffix(unit).strip()
    if not stripped:
        return None
    try:
        return _finite(float(Fraction(stripped.replace(",", "").replace(" ", ""))), "your guess")
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(
            f"your guess {text!r} is not a number; "
            'write for example 10, 2.5, "1/4" or "1e9", or None for no guess yet'
        ) from error


def _truth(truth: object) -> float:
    value = _as_float(truth)
    if value is None:
        raise TypeError(f"the truth to compare with must be one number, not {truth!r}")
    return _finite(value, "the truth to compare with")


def _as_float(value: object) -> float | None:
    """`value` as a float; None where it is no single number (a list, a tensor of several)."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, not {value}")
    return value


def _format_truth(value: float) -> str:
    """Two decimals where those say enough, thousands separators for whole numbers above."""
    if abs(value) >= 1e15 or (value != 0 and abs(value) < 1e-3):
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"
    if abs(value) >= 1 or value == 0:
        return f"{value:.2f}"
    return _significant(value)


def _format_guess(value: float) -> str:
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def _significant(value: float) -> str:
    """Three significant digits, without an exponent where that reads well."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1000 else f"{value:.2e}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
