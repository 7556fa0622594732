"""repair_leaky_relu: right in the interpreter, refused by the compiler."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import RepairTask
from course_utils.checks.variants import Alternative, Mistake

SLOPE = 0.01


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, slope * x), mask=mask)


def repair_leaky_relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    leaky_relu_kernel[(triton.cdiv(n, 512),)](x, out, n, SLOPE, BLOCK=512)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return torch.where(x > 0, x, x * SLOPE)


def cases(draw: Draw) -> Iterator[Case]:
    """Sizes around the tile, other types, both signs, a view."""
    for n in (1200, 1, 1024):
        yield Case(f"{n:,} number{'s' * (n > 1)}", (draw.normal(n),))
    for dtype in ("float16", "bfloat16"):
        yield Case(f"700 numbers, {dtype}", (draw.normal(700, dtype=dtype, scale=50),))
    yield Case("x has every third number of a tensor", (draw.normal(900)[::3],), refusable=True)


def budget(x: torch.Tensor) -> int:
    """Read once, write once."""
    return 2 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("2^26 numbers, float32", (draw.normal(2**26),))


@triton.jit
def constexpr_kernel(x_ptr, out_ptr, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, tl.maximum(x, SLOPE * x), mask=mask)


def by_constexpr(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    constexpr_kernel[(triton.cdiv(n, 256),)](x, out, n, SLOPE=0.01, BLOCK=256)
    return out


@triton.jit
def typed_in_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
        y = tl.maximum(x, 0.0) + 0.01 * tl.minimum(x, 0.0)
        tl.store(out_ptr + offsets, y, mask=offsets < n)


def typed_in(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    out = torch.empty_like(x)
    typed_in_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=256)
    return out


WHERE = "tl.where(x > 0, x, slope * x)"

TASK = RepairTask(
    "repair_leaky_relu",
    "05",
    "Repair: content here, refused there",
    minutes=6,
    difficulty=1,
    place=5,
    points=2,
    hints=(
        "As it came, it gives right numbers in the interpreter. Compile that one for a GPU, with "
        "`compile_for` as in the lesson: what does the message say about SLOPE?",
        "A kernel is compiled once and kept. If it looked at a Python global, it would not notice "
        "when that changes; so it may not look.",
        "Give the kernel a parameter `slope`, use that, and pass SLOPE where it is launched; or "
        "make it a constant of the compiler's, `SLOPE = tl.constexpr(0.01)`.",
    ),
    solution=(leaky_relu_kernel, repair_leaky_relu),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    broken="global_in_the_kernel",
    mistakes=(
        Mistake(
            "global_in_the_kernel",
            [("n, slope, BLOCK: tl", "n, BLOCK: tl"), ("slope * x", "SLOPE * x"),
             ("(x, out, n, SLOPE, BLOCK=512)", "(x, out, n, BLOCK=512)")],
            says="the kernel uses a global number of Python's, which a compiled kernel cannot see",
            refused="Cannot access global variable",
        ),
        Mistake(
            "slope_for_all",
            [(WHERE, "slope * x")],
            says="every number is multiplied by the slope, not only those below zero",
        ),
        Mistake(
            "plain_relu",
            [(WHERE, "tl.where(x > 0, x, 0.0)")],
            says="numbers below zero become 0: that is a plain ReLU",
        ),
        Mistake(
            "branches_swapped",
            [(WHERE, "tl.where(x > 0, slope * x, x)")],
            says="the two branches of tl.where are swapped",
        ),
        Mistake(
            "slope_instead_of_product",
            [(WHERE, "tl.where(x > 0, x, slope)")],
            says="numbers below zero become the slope itself, not their product with it",
        ),
        Mistake(
            "absolute_value",
            [(WHERE, "tl.where(x > 0, x, -slope * x)")],
            says="the sign of numbers below zero is lost",
        ),
        Mistake(
            "no_mask_on_store",
            [(f"tl.store(out_ptr + offsets, {WHERE}, mask=mask)",
              f"tl.store(out_ptr + offsets, {WHERE})")],
            says="the store has no mask, so the last program writes past the end of the result",
        ),
    ),
    alternatives=(
        Alternative("a_constexpr", functions=(constexpr_kernel, by_constexpr)),
        Alternative("typed_into_the_kernel", functions=(typed_in_kernel, typed_in)),
        Alternative("as_a_maximum", [(WHERE, "tl.maximum(x, slope * x)")]),
    ),
)  # fmt: skip
