"""Numbers as people write them: 10, "1/4", "3 * 4 * 2**20", or a formula of letters, "B / 4".

A text is read as arithmetic and never run. All of it is done in floats, which no text can make
grow without bound.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping
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
_SIGNS = str.maketrans({"^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
# 1,024 and 1 048 576; not 0,5, which is another country's 0.5.
_THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:([, ])\d{3})(?:\1\d{3})*(?![\w,])")


class NotANumberError(ValueError):
    """An answer that is no number; the message says what would be one."""


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
            the unit may follow, ``^`` and raised digits mean a power, and a number may have its
            thousands apart: "1,024" or "1 024".
        letters: what the letters of a formula stand for.
        unit: the unit that a text may end with, in the plural.

    Raises:
        NotANumberError: it is no finite number.
    """
    letters = letters or {}
    if isinstance(answer, str):
        value = _evaluate_text(answer, letters, unit)
    elif isinstance(answer, bool) or callable(answer):
        kind = f"{answer}" if isinstance(answer, bool) else "a function"
        raise NotANumberError(f"{kind} is no number; {_example(letters)}")
    else:
        try:
            value = float(answer)  # type: ignore[arg-type]
        except OverflowError:
            raise NotANumberError(f"{shown(answer)} is too large") from None
        except Exception:  # whatever a type's own __float__ may raise
            kind = type(answer).__name__
            raise NotANumberError(f"a {kind} is not one number; {_example(letters)}") from None
    if not math.isfinite(value):
        raise NotANumberError(f"{shown(answer)} is not finite; {_example(letters)}")
    return value


def letters_of(answer: object, letters: Iterable[str]) -> set[str]:
    """Return those of some letters that stand in an answer."""
    words = re.findall(r"[^\W\d]\w*", answer) if isinstance(answer, str) else []
    return set(words) & set(letters)


def without_unit(answer: str, unit: str) -> str:
    """Take the unit off the end of a text, in the plural or the singular."""
    text = answer.strip()
    for ending in (unit, unit.removesuffix("s")):
        if ending and text.casefold().endswith(ending.casefold()):
            return text[: -len(ending)].strip()
    return text


def shown(answer: object) -> str:
    """Write an answer as the reader did, shortened if it is long."""
    return _SHORT.repr(answer)


def _evaluate_text(answer: str, letters: Mapping[str, float], unit: str) -> float:
    try:
        if len(answer) > _LONGEST:
            raise ValueError
        text = _as_python(without_unit(answer, unit))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Python finds odd in "1if 2"
            tree = ast.parse(text, mode="eval")
        return float(_value(tree.body, letters))
    except NotANumberError:
        raise
    except ZeroDivisionError:
        raise NotANumberError(f"{shown(answer)} divides by zero") from None
    except OverflowError:
        raise NotANumberError(f"{shown(answer)} is too large") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise NotANumberError(f"{shown(answer)} is no number; {_example(letters)}") from None


def _as_python(text: str) -> str:
    """Write as Python does: powers, signs, and thousands without a gap."""
    text = _RAISED.sub(lambda match: f"**({match[0].translate(_SUPERSCRIPTS)})", text)
    text = text.translate(_SIGNS)
    return _THOUSANDS.sub(lambda match: re.sub("[, ]", "", match[0]), text)


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
        raise NotANumberError(_unknown(node.id, letters))
    raise ValueError("not arithmetic")


def _unknown(name: str, letters: Mapping[str, float]) -> str:
    if not letters:
        return f"{shown(name)} is unknown; a number is wanted, without letters"
    if set(name) <= letters.keys():
        return f"{shown(name)} is unknown; write {' * '.join(name[:8])} for the product"
    return f"{shown(name)} is unknown; {_named(letters)}"


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
