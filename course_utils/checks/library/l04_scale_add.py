"""scale_add: a first kernel of two inputs, alpha·x + y."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake

BLOCK = 1024


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    scale_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, alpha, BLOCK=BLOCK)
    return out


def reference(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    """The same in PyTorch, for tensors of one shape."""
    return alpha * x + y


def cases(draw: Draw) -> Iterator[Case]:
    """An ordinary size, a single number, full tiles, halves, a matrix, a view."""
    for n in (3000, 1, 4096):
        alpha = draw.number(1.5, 3)
        yield Case(f"{n:,} numbers", (draw.normal(n), draw.normal(n), alpha))
    for dtype in ("float16", "bfloat16"):
        x, y = (draw.normal(1500, dtype=dtype, scale=100) for _ in "xy")
        yield Case(f"1,500 numbers, {dtype}", (x, y, -draw.number(0.2, 0.8)))
    x, y = draw.normal(37, 41), draw.normal(37, 41)
    yield Case("a matrix of 37 by 41", (x, y, 0.0))
    strided = draw.normal(2200)[::2], draw.normal(3300)[::3]
    yield Case("x and y are every second and third number", (*strided, 2.0), refusable=True)


def budget(x: torch.Tensor, y: torch.Tensor, alpha: float) -> int:
    """Read both inputs once and write the result once."""
    return 3 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    n = 2**26
    return Case("2^26 numbers, float32", (draw.normal(n), draw.normal(n), 2.0))


@triton.jit
def loop_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + offsets, x * alpha + y, mask=mask)


def by_loop(x, y, alpha):
    if not (x.is_contiguous() and y.is_contiguous()):
        raise ValueError("x and y must be contiguous")
    out, n = torch.empty_like(x), x.numel()
    loop_kernel[(triton.cdiv(n, 2 * BLOCK),)](x, y, out, n, alpha, BLOCK=BLOCK)
    return out


@triton.jit
def pointers_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,)).to(tl.float32)
    y = tl.load(y_block, boundary_check=(0,)).to(tl.float32)
    tl.store(out_block, (x * alpha + y).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def by_block_pointers(x, y, alpha):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    pointers_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), alpha, BLOCK=512)
    return out


PROGRAM = "tl.program_id(0).to(tl.int64)"
STORE = "tl.store(out_ptr + offsets, alpha * x + y, mask=mask)"
LOAD_Y = "y = tl.load(y_ptr + offsets, mask=mask)"

TASK = KernelTask(
    "scale_add",
    "04",
    "Scale and add",
    minutes=10,
    difficulty=1,
    place=1,
    hints=(
        "A program owns BLOCK neighbouring elements. Which ones follows from `tl.program_id(0)`, "
        "`BLOCK` and `tl.arange(0, BLOCK)`, as in `simple_add_kernel`.",
        "`mask = offsets < n`, and the mask goes with both loads and with the store. For numbers "
        "of 16 bits, add `.to(tl.float32)` to what you load.",
        "The last line is `tl.store(out_ptr + offsets, alpha * x + y, mask=mask)`. Above it, "
        "`x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)`, and y in the same way.",
    ),
    solution=(scale_add_kernel, scale_add),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "no_mask_on_store",
            [(STORE, "tl.store(out_ptr + offsets, alpha * x + y)")],
            says="the store has no mask, so the last program writes past the end of the result",
        ),
        Mistake(
            "no_mask_on_loads",
            [
                ("x = tl.load(x_ptr + offsets, mask=mask)", "x = tl.load(x_ptr + offsets)"),
                (LOAD_Y, "y = tl.load(y_ptr + offsets)"),
            ],
            says="the loads have no mask, so the last program reads past the end of the inputs",
        ),
        Mistake(
            "mask_one_too_far",
            [("mask = offsets < n", "mask = offsets <= n")],
            says="the mask is `<=` where `<` is meant: element n is the first that is not there",
        ),
        Mistake(
            "offsets_of_the_lane_alone",
            [(f"{PROGRAM} * BLOCK + tl.arange(0, BLOCK)", "tl.arange(0, BLOCK)")],
            says="the offsets do not depend on the program, so each one computes the first tile",
        ),
        Mistake(
            "program_id_without_block",
            [(f"{PROGRAM} * BLOCK", PROGRAM)],
            says="the program id is not multiplied by BLOCK, so the tiles overlap",
        ),
        Mistake(
            "grid_rounded_down",
            [("triton.cdiv(n, BLOCK)", "max(n // BLOCK, 1)")],
            says="the grid is n // BLOCK rounded down, so the last, partial tile has no program",
        ),
        Mistake(
            "one_program_too_few",
            [("triton.cdiv(n, BLOCK)", "n // BLOCK")],
            says="the grid is n // BLOCK: no program for the last tile, and none if n < BLOCK",
        ),
        Mistake(
            "scaled_y",
            [("alpha * x + y", "alpha * (x + y)")],
            says="alpha scales the sum, but only x is to be scaled",
        ),
        Mistake(
            "scaled_the_other",
            [("alpha * x + y", "x + alpha * y")],
            says="alpha scales y, but x is to be scaled",
        ),
        Mistake(
            "alpha_dropped",
            [("alpha * x + y", "x + y")],
            says="alpha is not used",
        ),
        Mistake(
            "computed_in_16_bits",
            [
                ("x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)",
                 "x = tl.load(x_ptr + offsets, mask=mask)"),
                (LOAD_Y + ".to(tl.float32)", LOAD_Y),
                ("alpha * x + y", "(alpha * x).to(x.dtype) + y"),
            ],
            says="16-bit inputs are multiplied in 16 bits, and rounded before the addition: widen "
            "them with `.to(tl.float32)` when they are loaded",
        ),
        Mistake(
            "written_over_x",
            [("out = torch.empty_like(x)", "out = x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "strides_ignored",
            [("    x, y = x.contiguous(), y.contiguous()\n", "")],
            says="a tensor with gaps is read as if it had none: refuse it with a ValueError, or "
            "make it `.contiguous()` first",
        ),
        Mistake(
            "strides_of_y_ignored",
            [("x, y = x.contiguous(), y.contiguous()", "x = x.contiguous()")],
            says="y is read as if it had no gaps: what holds for x holds for y too",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, "x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)\n    " + STORE)],
            says="x is loaded twice: what is loaded stays in registers, and can be used again",
        ),
    ),
    alternatives=(
        Alternative(
            "other_tile", [("cdiv(n, BLOCK)", "cdiv(n, 2048)"), ("BLOCK=BLOCK", "BLOCK=2048")]
        ),
        Alternative("a_loop_over_tiles", functions=(loop_kernel, by_loop)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
        Alternative(
            "fused_multiply_add", [("alpha * x + y", "tl.fma(x, tl.zeros_like(x) + alpha, y)")]
        ),
    ),
)  # fmt: skip
