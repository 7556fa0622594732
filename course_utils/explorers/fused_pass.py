"""The kernel that the fusion explorer counts: the first ops of the chain in one pass.

Importing this imports triton, so it must come after ``setup()``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def fused_pass_kernel(x_ptr, y_ptr, n, OPS: tl.constexpr, BLOCK: tl.constexpr):
    """Apply the first OPS of ``examples.UNARY_STEPS``, over and over, to each of n elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    h = tl.load(x_ptr + offsets, mask=mask)
    for step in tl.static_range(OPS):
        if step % 5 == 0:
            h = h * 1.5
        elif step % 5 == 1:
            h = h + 0.25
        elif step % 5 == 2:
            h = 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
        elif step % 5 == 3:
            h = h * 0.5
        else:
            h = h + 1.0
    tl.store(y_ptr + offsets, h, mask=mask)


def fused_pass(x: torch.Tensor, ops: int) -> torch.Tensor:
    """Return what ``examples.chain_of(x, ops)`` returns, in one launch.

    ``x``: contiguous, float32, any shape; the result has the same shape.
    """
    y = torch.empty_like(x)
    block = 1024
    fused_pass_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), OPS=ops, BLOCK=block)
    return y
