"""Numbers as people write them: 10, "1/4", "3 * 4 * 2**20", or a formula of letters, "B / 4".

A text is read as arithmetic and never run. All of it is done in floats, which no text can make
grow without bound.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import operator
import re
import reprlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import EllipsisType

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_LONGEST = 400
# What Python raises for a text that is no expression, or one that nests too deeply.
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
# Characters that people type or paste, and what Python has for them.
_SIGNS = str.maketrans(
    dict.fromkeys("×·⋅∗•", "*")
    | dict.fromkeys("÷∕⁄:", "/")
    | dict.fromkeys("−–", "-")
    | dict.fromkeys("[{", "(")
    | dict.fromkeys("]}", ")")
    | dict.fromkeys("\u00a0\u2009\u202f", " ")  # spaces that do not break a line
    | {"^": "**", "½": "(1/2)", "⅓": "(1/3)", "¼": "(1/4)", "¾": "(3/4)"}
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
# 1,024 and 1 048 576; not 0,5, which is another country's 0.5.
_THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:([, ])\d{3})(?:\1\d{3})*(?![\w,])")
# Words for a unit, where an s for the plural is not all.
_UNITS = {"trip": r"(?:trips?|pass(?:es)?)(?: over x)?", "byte": "(?:bytes?|B)"}
_TOKEN = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?|[^\W\d]\w*|\*\*|//|\S", re.IGNORECASE)
# What people write that is no number here, and what would be one.
_ADVICE = {
    r"\d,\d": "write a decimal point, as in 2.5",
    r"\d(?:\s+|\s*\()\d+\s*/\s*\d": 'write 2.5 or "2 + 1/2"',
    r"\d\s*[kMGTP](?!\w)": "write 65e12 for 65 T",
}


class UnreadableError(ValueError):
    """An answer that says nothing here; the message says what would."""


def is_open(answer: object) -> bool:
    """Tell whether there is no answer yet: None, ``...`` or an empty text."""
    return (
        answer is None
        or isinstance(answer, EllipsisType)
        or (isinstance(answer, str) and not answer.strip(" ._?\t\n"))
    )


def evaluate(answer: object, letters: Mapping[str, float] | None = None, unit: str = "") -> float:
    """Work out an answer.

    Args:
        answer: a number or a fraction; or a text with an expression in ``+ - * / // **``, in which
            the unit may follow, ``^`` and raised digits mean a power, brackets may be square, and a
            number may have its thousands apart: "1,024" or "1 024".
        letters: what the letters of a formula stand for.
        unit: the unit that a text may end with, in the plural.

    Raises:
        UnreadableError: it is no finite number.
    """
    letters = letters or {}
    if isinstance(answer, str):
        value = _evaluate_text(answer, letters, unit)
    elif isinstance(answer, bool) or callable(answer):
        kind = f"{answer}" if isinstance(answer, bool) else "a function"
        raise UnreadableError(f"{kind} is no number; {_example(letters)}")
    else:
        try:
            value = float(answer)  # type: ignore[arg-type]
        except OverflowError:
            raise UnreadableError(f"{shown(answer)} is too large") from None
        except Exception:  # whatever a type's own __float__ may raise
            kind = type(answer).__name__
            problem = f"something of type {kind} is not one number"
            raise UnreadableError(f"{problem}; {_example(letters)}") from None
    if not math.isfinite(value):
        raise UnreadableError(f"{shown(answer)} is not finite; {_example(letters)}")
    return value


def letters_of(answer: object, letters: Iterable[str]) -> set[str]:
    """Return those of some letters that stand in an answer."""
    words = re.findall(r"[^\W\d]\w*", answer) if isinstance(answer, str) else []
    return set(words) & set(letters)


def without_unit(answer: str, unit: str) -> str:
    """Take the unit off the end of a text: "FLOP/byte", "FLOPs per byte", "FLOP / B"."""
    words = [part.removesuffix("s") for part in unit.split("/")]
    forms = [_UNITS.get(word, f"{re.escape(word)}s?") for word in words]
    ending = r"\s*(?:/|per)\s*".join(forms)
    return re.sub(rf"\s*{ending}$", "", answer.strip(), flags=re.IGNORECASE) if unit else answer


def other_readings(answer: object, unit: str = "") -> Iterator[tuple[str, str]]:
    """Give what a text may have been meant to say, each with a word on what it says instead."""
    if not isinstance(answer, str):
        return
    if "//" in answer:
        yield answer.replace("//", "/"), "`//` cuts off to a whole number; write `/`"
    with contextlib.suppress(*_UNREADABLE):
        meant = ast.unparse(_all_below(_parsed(answer, unit)))
        yield meant, "is the whole denominator in brackets? a / b * c is (a / b) * c"


def shown(answer: object) -> str:
    """Write an answer as the reader did, shortened if it is long."""
    return _SHORT.repr(answer)


def _evaluate_text(answer: str, letters: Mapping[str, float], unit: str) -> float:
    try:
        return float(_value(_parsed(answer, unit), letters))
    except ZeroDivisionError:
        raise UnreadableError(f"{shown(answer)} divides by zero") from None
    except OverflowError:
        raise UnreadableError(f"{shown(answer)} is too large") from None
    except _UNREADABLE as error:
        raise UnreadableError(_advice(answer, unit, letters, error)) from None


def _parsed(answer: str, unit: str) -> ast.expr:
    if len(answer) > _LONGEST:
        raise ValueError("too long")
    return _tree(_as_python(without_unit(answer, unit)))


def _tree(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Python finds odd in "1if 2"
        return ast.parse(text, mode="eval").body


def _as_python(text: str) -> str:
    """Write as Python does: powers, signs, and thousands without a gap."""
    text = _RAISED.sub(lambda match: f"**({match[0].translate(_SUPERSCRIPTS)})", text)
    text = text.translate(_SIGNS).lstrip(" =≈~")
    return _THOUSANDS.sub(lambda match: re.sub("[, ]", "", match[0]), text)


def _all_below(node: ast.expr) -> ast.expr:
    """Take all that follows a division for the denominator: a / b * c for a / (b * c)."""
    if not isinstance(node, ast.BinOp):
        return node
    left, right = _all_below(node.left), _all_below(node.right)
    divides = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div)
    if divides and isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        return ast.BinOp(left.left, ast.Div(), ast.BinOp(left.right, node.op, right))
    return ast.BinOp(left, node.op, right)


def _value(node: ast.expr, letters: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, letters)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, letters), _value(node.right, letters))
    if isinstance(node, ast.Name):
        if node.id in letters:
            return letters[node.id]
        wanted = _named(letters) if letters else "a number is wanted, without letters"
        raise UnreadableError(f"{shown(node.id)} is unknown; {wanted}")
    raise ValueError("not arithmetic")


def _advice(answer: str, unit: str, letters: Mapping[str, float], error: Exception) -> str:
    """Say how to write what could not be read."""
    text = _as_python(without_unit(answer[:_LONGEST], unit))
    unclosed = text.count("(") - text.count(")")
    if unclosed:
        return f"in {shown(answer)} a bracket is not {'closed' if unclosed > 0 else 'opened'}"
    if letters:
        with contextlib.suppress(ArithmeticError, *_UNREADABLE):
            product = _tree(_with_signs(text, letters))
            _value(product, letters)
            return f"write a `*` between factors: {shown(ast.unparse(product))}"
    if isinstance(error, UnreadableError):
        return str(error)
    known = (
        words for pattern, words in _ADVICE.items() if not letters and re.search(pattern, text)
    )
    return f"{shown(answer)} is no number; {next(known, _example(letters))}"


def _with_signs(text: str, letters: Mapping[str, float]) -> str:
    """Put a ``*`` between numbers, letters and brackets that stand side by side."""
    words = [
        part
        for word in _TOKEN.findall(text)
        for part in (word if set(word) <= letters.keys() else [word])
    ]
    parts = words[:1]
    for one, other in itertools.pairwise(words):
        ends = one[-1] + other[0]
        factors = re.fullmatch(r"[\w)][\w(]", ends) and not ends.isdigit()
        parts.append(f"* {other}" if factors else other)
    return " ".join(parts)


def _named(letters: Mapping[str, float]) -> str:
    *others, last = letters
    return (
        f"the letters are {', '.join(others)} and {last}"
        if others
        else f"the only letter is {last}"
    )


def _example(letters: Mapping[str, float]) -> str:
    if letters:
        return f'write a formula as a text, such as "2 * {next(iter(letters))}"; {_named(letters)}'
    return 'write for example 10, 2.5, "1/4" or "3 * 4 * 2**20"'


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
