"""The eight-element kernel with which `setup()` finds out whether kernels are right here.

Importing this module imports triton, so only `runtime` may do it, after it has decided how
kernels run. The kernel is small but uses what is known to break: functions of Triton that are
themselves kernels (`tl.zeros`, `tl.sum`, `tl.cdiv`) fail when triton was imported too early, and
a loop whose bound is a tensor fails in Triton <= 3.6's interpreter with numpy >= 2.4.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

N_ELEMENTS = 8
N_TERMS = 5
# Integers this small are exact in float32, so the comparison needs no tolerance.
# sum(0..7) = 28; the loop runs cdiv(5, 2) = 3 times and adds x + 0, x + 1, x + 2.
EXPECTED = [float(3 * x + (0 + 1 + 2) + 28) for x in range(N_ELEMENTS)]


@triton.jit
def self_test_kernel(x_ptr, out_ptr, n_elements, n_terms, BLOCK: tl.constexpr):
    """Write sum over i < cdiv(n_terms, 2) of (x + i), plus the sum of x, for each x."""
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, tl.cdiv(n_terms, 2)):
        acc += x + i
    tl.store(out_ptr + offsets, acc + tl.sum(x, axis=0), mask=mask)


def run(device: str) -> list[float]:
    """Run the kernel on `device` ("cuda" or "cpu") and return its eight float32 outputs."""
    x = torch.arange(N_ELEMENTS, dtype=torch.float32, device=device)
    out = torch.full_like(x, float("nan"))
    self_test_kernel[(1,)](x, out, N_ELEMENTS, N_TERMS, BLOCK=16)
    return out.tolist()
