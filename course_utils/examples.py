"""The running example of the course: a chain of element-wise ops, written as plain PyTorch.

Every lesson that speaks of "the chain" or "the residual block" means these functions, so that a
count made in lesson 01 and a time recorded on a GPU are of the very same code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F


def chain(x: torch.Tensor) -> torch.Tensor:
    """Apply five unary element-wise ops: scale, bias, GELU (erf form), gain, shift.

    Args:
        x: any shape, floating-point.

    Returns:
        A new tensor of ``x``'s shape and dtype.
    """
    h = x * 1.5
    h = h + 0.25
    h = F.gelu(h)
    h = h * 0.5
    return h + 1.0


def residual_block(x: torch.Tensor) -> torch.Tensor:
    """Return ``x + f(x)``: four unary ops (scale, bias, GELU, gain) and the residual add.

    Args:
        x: any shape, floating-point.

    Returns:
        A new tensor of ``x``'s shape and dtype.
    """
    h = x * 1.5
    h = h + 0.25
    h = F.gelu(h)
    h = h * 0.5
    return x + h


UNARY_STEPS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("scale", lambda h: h * 1.5),
    ("bias", lambda h: h + 0.25),
    ("gelu", F.gelu),
    ("gain", lambda h: h * 0.5),
    ("shift", lambda h: h + 1.0),
)
"""The chain's steps by name; :func:`chain_of` walks them round and round."""


def chain_of(x: torch.Tensor, ops: int) -> torch.Tensor:
    """Apply ``ops`` unary element-wise ops, cycling through :data:`UNARY_STEPS`.

    Args:
        x: any shape, floating-point.
        ops: how many ops, at least 1. ``chain_of(x, 5)`` equals ``chain(x)``.

    Raises:
        ValueError: if ``ops`` is smaller than 1.
    """
    if ops < 1:
        raise ValueError(f"chain_of needs at least one op, got ops={ops}")
    for step in range(ops):
        x = UNARY_STEPS[step % len(UNARY_STEPS)][1](x)
    return x
