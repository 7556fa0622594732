"""Is a result right? Judged against float64, by the error that float32 arithmetic itself makes.

A kernel's error is compared with that of the same formula in PyTorch, computed in float32 and
rounded once to the result's dtype: twice that error, and a floor of some units in the last place,
are allowed. So a kernel that computes in float16 is told apart from one that only stores in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

ALLOWED = 2.0  # times the error of the yardstick
FLOOR = 6.0  # units in the last place of float32
_SMALL = 0.1  # a number much smaller than the rest is judged by the rest


@dataclass(frozen=True)
class Wrong:
    """How a result differs from what is right.

    Attributes:
        problem: in plain words.
        index: of the first wrong element; None where it is not about elements.
        output: which of several results, counted from 0.
        expected, got: what should stand there, and what does.
        wrong, total: how many elements are wrong, of how many.
        distance: the largest error, where all is finite.
    """

    problem: str
    index: tuple[int, ...] | None = None
    output: int = 0
    expected: float = float("nan")
    got: float = float("nan")
    wrong: int = 0
    total: int = 0


def as_results(value: Any) -> tuple[Any, ...]:
    """Return one result or several as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def find_wrong(
    got: Any, exact: Any, yardstick: Any, names: Sequence[str] = (), slack: float = 1.0
) -> Wrong | None:
    """Compare what an answer returned with what is right.

    Args:
        got: what it returned: a tensor, or several as a tuple.
        exact: the same in float64.
        yardstick: the same as PyTorch computes it in float32, of the wanted dtype.
        names: of several results, for words.
        slack: how much more error is allowed than usual.

    Returns:
        The first difference; None if there is none.
    """
    gots, exacts, yardsticks = as_results(got), as_results(exact), as_results(yardstick)
    if got is None:
        return Wrong("it returned None: is there a `return`?")
    if len(gots) != len(exacts):
        return Wrong(f"it returned {len(gots)} results where {len(exacts)} are wanted")
    for number, (mine, right, other) in enumerate(zip(gots, exacts, yardsticks, strict=True)):
        wrong = _find_wrong(mine, right, other, names[number] if names else "the result", slack)
        if wrong is not None:
            return Wrong(
                wrong.problem, wrong.index, number, wrong.expected, wrong.got,
                wrong.wrong, wrong.total,
            )  # fmt: skip
    return None


def _find_wrong(
    got: Any, exact: torch.Tensor, yardstick: torch.Tensor, name: str, slack: float
) -> Wrong | None:
    if not torch.is_tensor(got):
        return Wrong(f"{name} is a {type(got).__name__}, not a tensor")
    for what in ("shape", "dtype"):
        has, wanted = getattr(got, what), getattr(yardstick, what)
        if has != wanted:
            has, wanted = (tuple(has), tuple(wanted)) if what == "shape" else (has, wanted)
            return Wrong(f"{name} has {what} {has} where {wanted} is wanted")
    mine = got.detach().to("cpu", torch.float64)
    bad = ~close(mine, exact, yardstick, slack)
    count = int(bad.sum())
    if not count:
        return None
    index = tuple(int(i) for i in bad.nonzero()[0])
    share = "" if count == bad.numel() else f" of {bad.numel():,}"
    everything = "all " if count == bad.numel() and count > 1 else ""
    verb = "is" if count == 1 else "are"
    noun = "number" if bad.numel() == 1 or (count == 1 and not share) else "numbers"
    return Wrong(
        f"{everything}{count:,}{share} {noun} of {name} {verb} wrong",
        index,
        0,
        float(exact[index]),
        float(mine[index]),
        count,
        bad.numel(),
    )


def close(
    mine: torch.Tensor, exact: torch.Tensor, yardstick: torch.Tensor, slack: float = 1.0
) -> torch.Tensor:
    """Tell which elements are right; all in float64 but the yardstick, which has its own dtype."""
    theirs = yardstick.to(torch.float64)
    # What overflows the result's dtype is infinite in the right answer too.
    exact = torch.where(theirs.isfinite() | ~exact.isfinite(), exact, theirs)
    finite = exact.isfinite()
    same = (mine.isnan() & exact.isnan()) | (mine == exact)
    if not bool(finite.any()):
        return same
    magnitude = exact[finite].abs()
    scale = exact.abs() + _SMALL * magnitude.square().mean().sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    error = ((theirs - exact).abs() / scale)[finite].max()
    floor = FLOOR * torch.finfo(torch.float32).eps
    limits = torch.finfo(yardstick.dtype)
    # Subnormal numbers may be flushed to zero; in float16 they count, and GPUs keep them.
    tiny = limits.tiny * (limits.eps if yardstick.dtype == torch.float16 else 1)
    allowed = slack * (ALLOWED * error + floor) * scale + tiny
    return same | (finite & mine.isfinite() & ((mine - exact).abs() <= allowed))
