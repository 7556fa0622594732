"""repair_row_mean: the mean of long rows, added up in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import RepairTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + lanes, mask=lanes < columns, other=0.0)
        total += x
    tl.store(out_ptr + row, tl.sum(total, axis=0) / columns)


def repair_row_mean(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    row_mean_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK=64)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return x.mean(1)


def cases(draw: Draw) -> Iterator[Case]:
    """Long rows of 16-bit numbers, rows shorter than a tile, rows that fill tiles, gaps."""
    # A few large numbers first: to a sum in 16 bits, what follows is too small to be added.
    long = draw.uniform(3, 3000, low=0.05, high=0.24, dtype="float16")
    long[:, :64] += 900
    yield Case("3 rows of 3,000 numbers, float16", (long,))
    yield Case("4 rows of 10 numbers", (draw.normal(4, 10, shift=1),))
    yield Case("2 rows of 128 numbers", (draw.normal(2, 128, shift=2),))
    yield Case("5 rows of 1 number", (draw.normal(5, 1),))
    yield Case("1 row of 100 numbers", (draw.normal(1, 100, shift=-3),))
    gaps = draw.rows_with_gaps(4, 77, shift=1)
    yield Case("4 rows of 77 numbers, with gaps between the rows", (gaps,))


def budget(x: torch.Tensor) -> int:
    """Read the matrix once, write one number a row."""
    return (x.numel() + x.shape[0]) * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU; a tile of 64 leaves bandwidth unused, which is not the point here."""
    return Case("2^16 rows of 2^10 numbers, float16", (draw.normal(2**16, 2**10, dtype="float16"),))


@triton.jit
def sum_each_tile_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + lanes, mask=lanes < columns, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(out_ptr + row, total / columns)


def by_sums_of_tiles(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    sum_each_tile_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK=128)
    return out


@triton.jit
def whole_row_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x / columns, axis=0))


def by_whole_rows(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    BLOCK = triton.next_power_of_2(columns)
    whole_row_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK=BLOCK)
    return out


TASK = RepairTask(
    "repair_row_mean",
    "05",
    "Repair: the mean of long rows",
    minutes=7,
    difficulty=2,
    place=3,
    points=2,
    hints=(
        "Only the long rows of 16-bit numbers are wrong. How does the error grow with the length?",
        "Which dtype has `total`? Adding 1 to 2048 in float16 gives 2048.",
        "Begin with `tl.zeros((BLOCK,), tl.float32)`: what is added is then widened by itself.",
    ),
    solution=(row_mean_kernel, repair_row_mean),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    ratio=4.0,
    broken="narrow_accumulator",
    mistakes=(
        Mistake(
            "narrow_accumulator",
            [("tl.zeros((BLOCK,), tl.float32)", "tl.zeros((BLOCK,), x_ptr.dtype.element_ty)")],
            says="the accumulator has the dtype of the input: in 16 bits a long sum loses its "
            "small terms",
        ),
        Mistake(
            "mean_by_the_width_of_the_tile",
            [("/ columns", "/ (tl.cdiv(columns, BLOCK) * BLOCK)")],
            says="the sum is divided by the lanes of all tiles, not by the columns of the row",
        ),
        Mistake(
            "divided_by_block",
            [("/ columns", "/ BLOCK")],
            says="the sum is divided by BLOCK, not by the columns of the row",
        ),
        Mistake(
            "not_divided",
            [("tl.sum(total, axis=0) / columns", "tl.sum(total, axis=0)")],
            says="this is the sum: it was not divided by the number of columns",
        ),
        Mistake(
            "first_tile_only",
            [("range(0, columns, BLOCK)", "range(0, BLOCK, BLOCK)")],
            says="only the first tile of each row is added up",
        ),
        Mistake(
            "last_partial_tile_forgotten",
            [("range(0, columns, BLOCK)", "range(0, columns - BLOCK + 1, BLOCK)")],
            says="the loop ends before the last, partial tile",
        ),
        Mistake(
            "started_anew_in_every_round",
            [("total += x", "total = x.to(tl.float32)")],
            says="every tile replaces the sum instead of adding to it",
        ),
        Mistake(
            "masked_lanes_take_part",
            [("other=0.0", "other=1.0")],
            says="masked lanes hold 1 and are added too",
        ),
        Mistake(
            "nothing_said_of_masked_lanes",
            [(", other=0.0", "")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it is added too",
        ),
        Mistake(
            "stride_taken_as_columns",
            [("row * stride", "row * columns")],
            says="rows are taken to lie `columns` apart, but they lie `stride` apart",
        ),
    ),
    alternatives=(
        Alternative("sums_of_tiles", functions=(sum_each_tile_kernel, by_sums_of_tiles)),
        Alternative("whole_rows", functions=(whole_row_kernel, by_whole_rows)),
        Alternative("other_tile", [("BLOCK=64", "BLOCK=256")]),
    ),
)  # fmt: skip
