"""Numbers as people write them: 10, "1/4", "3 * 4 * 2**20", or a formula of letters, "B / 4"."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_LARGEST_POWER = 1024
_LONGEST = 400


class NotANumberError(ValueError):
    """An answer that is no number; the message says what would be one."""


def is_open(answer: object) -> bool:
    """Tell whether there is no answer yet: None, ``...`` or an empty text."""
    return (
        answer is None
        or isinstance(answer, EllipsisType)
        or (isinstance(answer, str) and not answer.strip(" ._?"))
    )


def evaluate(answer: object, letters: Mapping[str, float] | None = None, unit: str = "") -> float:
    """Work out an answer.

    Args:
        answer: a number or a fraction; or a text with an expression in ``+ - * / // **``, in which
            the unit may follow and ``^`` means a power.
        letters: what the letters of a formula stand for.
        unit: the unit that a text may end with.

    Raises:
        NotANumberError: it is no finite number.
    """
    letters = letters or {}
    if isinstance(answer, str):
        value = _evaluate_text(answer, letters, unit)
    elif isinstance(answer, bool) or callable(answer):
        raise NotANumberError(f"{answer!r} is no number; {_example(letters)}")
    else:
        try:
            value = float(answer)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError, OverflowError):
            kind = type(answer).__name__
            raise NotANumberError(f"a {kind} is not one number; {_example(letters)}") from None
    if not math.isfinite(value):
        raise NotANumberError(f"{answer!r} is not finite; {_example(letters)}")
    return value


def _evaluate_text(answer: str, letters: Mapping[str, float], unit: str) -> float:
    text = answer.strip()
    if unit:
        text = text.removesuffix(unit).strip()
    # People write thousands as 1,024 or 1 024 and powers as 2^20.
    text = text.replace("^", "**").replace("×", "*").replace("·", "*")
    if not any(character.isalpha() for character in text):
        text = text.replace(",", "")
    try:
        if len(text) > _LONGEST:
            raise ValueError
        value = float(_value(ast.parse(text, mode="eval").body, letters))
    except NotANumberError:
        raise
    except ZeroDivisionError:
        raise NotANumberError(f"{answer!r} divides by zero") from None
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        raise NotANumberError(f"{answer!r} is no number; {_example(letters)}") from None
    return value


def _value(node: ast.expr, letters: Mapping[str, float]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, letters)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, letters), _value(node.right, letters)
        if isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_POWER:
            raise ValueError("too large a power")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        if node.id in letters:
            return letters[node.id]
        known = ", ".join(letters)
        words = f"the letters are {known}" if known else "a number is wanted, without letters"
        raise NotANumberError(f"{node.id!r} is unknown; {words}")
    raise ValueError("not arithmetic")


def _example(letters: Mapping[str, float]) -> str:
    if letters:
        return f'write a formula of {", ".join(letters)} as a text, such as "2 * {min(letters)}"'
    return 'write for example 10, 2.5, "1/4" or "3 * 4 * 2**20"'
