"""repair_reverse: a vector back to front, of which a program reads in front of its tensor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import RepairTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + n - 1 - offsets, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


def repair_reverse(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    reverse_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return x.flip(0)


def cases(draw: Draw) -> Iterator[Case]:
    """Sizes around the tile, other types, a view."""
    for n in (1000, 1, 512, 257):
        yield Case(f"{n:,} number{'s' * (n > 1)}", (draw.normal(n),))
    yield Case("700 numbers, float16", (draw.normal(700, dtype="float16"),))
    yield Case("x has every second number of a tensor", (draw.normal(600)[::2],), refusable=True)


def budget(x: torch.Tensor) -> int:
    """Read once, write once."""
    return 2 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("2^26 numbers, float32", (draw.normal(2**26),))


@triton.jit
def scatter_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + (n - 1 - offsets), tl.load(x_ptr + offsets, mask=mask), mask=mask)


def by_scatter(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    scatter_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out


@triton.jit
def counting_down_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        source = n - 1 - offsets
        x = tl.load(x_ptr + source, mask=source >= 0, other=0.0)
        tl.store(out_ptr + offsets, x, mask=offsets < n)


def by_loop(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    out = torch.empty_like(x)
    counting_down_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=256)
    return out


LOAD = "x = tl.load(x_ptr + n - 1 - offsets, mask=mask)"
STORE = "tl.store(out_ptr + offsets, x, mask=mask)"

TASK = RepairTask(
    "repair_reverse",
    "05",
    "Repair: back to front",
    minutes=6,
    difficulty=1,
    place=1,
    points=2,
    hints=(
        "The kernel as it came gives right numbers. Run that one under the meter: which lanes "
        "leave their tensor, and on which side of it are they?",
        "Lanes from n on have no partner: n − 1 − offset is below zero for them. Which of the two "
        "accesses already keeps them out?",
        "Give the load the mask that the store has: `mask=mask`.",
    ),
    solution=(reverse_kernel, repair_reverse),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    broken="load_without_mask",
    mistakes=(
        Mistake(
            "load_without_mask",
            [(LOAD, "x = tl.load(x_ptr + n - 1 - offsets)")],
            says="the load has no mask: lanes beyond n read in front of the tensor",
        ),
        Mistake(
            "store_without_mask",
            [(STORE, "tl.store(out_ptr + offsets, x)")],
            says="the store has no mask: lanes beyond n write behind the tensor",
        ),
        Mistake(
            "off_by_one",
            [("n - 1 - offsets", "n - offsets")],
            says="n − offset is one too far: the last element has index n − 1",
        ),
        Mistake(
            "tile_reversed_in_place",
            [
                (LOAD, "x = tl.load(x_ptr + tl.program_id(0) * BLOCK + BLOCK - 1 - "
                       "tl.arange(0, BLOCK), mask=mask, other=0.0)"),
            ],
            says="each tile is reversed where it is, but the tiles too have to change places",
        ),
        Mistake(
            "mask_of_the_source",
            [("mask = offsets < n", "mask = n - 1 - offsets > 0")],
            says="the mask is `> 0`, which leaves out the source's element 0",
        ),
        Mistake(
            "not_reversed",
            [("n - 1 - offsets", "offsets")],
            says="the result is x as it stands, not reversed",
        ),
        Mistake(
            "mask_one_too_far",
            [("mask = offsets < n", "mask = offsets <= n")],
            says="the mask is `<=` where `<` is meant: one lane too many",
        ),
        Mistake(
            "grid_rounded_down",
            [("triton.cdiv(n, 256)", "max(n // 256, 1)")],
            says="the grid is n // BLOCK rounded down, so the last tile has no program",
        ),
    ),
    alternatives=(
        Alternative("other_tile", [("cdiv(n, 256)", "cdiv(n, 64)"), ("BLOCK=256", "BLOCK=64")]),
        Alternative("by_scatter", functions=(scatter_kernel, by_scatter)),
        Alternative("a_loop_over_tiles", functions=(counting_down_kernel, by_loop)),
    ),
)  # fmt: skip
