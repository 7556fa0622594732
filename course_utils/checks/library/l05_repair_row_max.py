"""repair_row_max: the maximum of each row, wrong where all of a row is below zero."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import RepairTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + lanes, mask=lanes < columns, other=float("-inf"))
    tl.store(out_ptr + row, tl.max(x, axis=0))


def repair_row_max(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    BLOCK = triton.next_power_of_2(columns)
    row_max_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK=BLOCK)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return x.amax(1)


def cases(draw: Draw) -> Iterator[Case]:
    """Rows below zero, rows that fill the tile, one column, one row, rows with gaps."""
    yield Case("4 rows of 5 numbers below zero", (draw.uniform(4, 5, low=-9, high=-1),))
    yield Case("5 rows of 100 numbers", (draw.normal(5, 100),))
    yield Case("3 rows of 64 numbers", (draw.normal(3, 64, shift=-5),))
    far = draw.uniform(3, 50, low=-3e38, high=-1e38)
    yield Case("3 rows of 50 numbers below -1e38", (far,))
    yield Case("7 rows of 1 number", (draw.normal(7, 1),))
    yield Case("1 row of 33 numbers, float16", (draw.normal(1, 33, dtype="float16", shift=-8),))
    yield Case("6 rows of 20 numbers, with gaps between the rows", (draw.rows_with_gaps(6, 20),))


def budget(x: torch.Tensor) -> int:
    """Read the matrix once, write one number a row."""
    return (x.numel() + x.shape[0]) * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("2^14 rows of 2^12 numbers, float32", (draw.normal(2**14, 2**12),))


@triton.jit
def several_rows_kernel(
    x_ptr, out_ptr, rows, columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (lanes < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * stride + lanes[None, :], mask=mask, other=float("-inf"))
    tl.store(out_ptr + row, tl.max(x, axis=1), mask=row < rows)


def by_several_rows(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    BLOCK = triton.next_power_of_2(columns)
    several_rows_kernel[(triton.cdiv(rows, 2),)](
        x, out, rows, columns, x.stride(0), ROWS=2, BLOCK=BLOCK
    )
    return out


@triton.jit
def looping_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + lanes, mask=lanes < columns, other=float("-inf"))
        largest = tl.maximum(largest, x.to(tl.float32))
    tl.store(out_ptr + row, tl.max(largest, axis=0))


def by_loop(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    looping_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK=32)
    return out


OTHER = ', other=float("-inf")'

TASK = RepairTask(
    "repair_row_max",
    "05",
    "Repair: the largest of each row",
    minutes=6,
    difficulty=1,
    place=2,
    points=2,
    hints=(
        "The wrong rows have something in common: look at their signs. What is their maximum said "
        "to be?",
        "A tile has a power of two of lanes, a row has not. What do the lanes beyond the row hold "
        "when they reach `tl.max`?",
        'Give the load `other=float("-inf")`: below every number, so it is never the maximum.',
    ),
    solution=(row_max_kernel, repair_row_max),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    broken="masked_lanes_take_part",
    mistakes=(
        Mistake(
            "masked_lanes_take_part",
            [(OTHER, ", other=0.0")],
            says="masked lanes hold 0 and take part in the maximum, which is wrong for a row that "
            "is all below zero",
        ),
        Mistake(
            "low_enough_for_most",
            [(OTHER, ", other=-65504.0")],
            says="masked lanes hold a low number, but there are lower ones; below all is only −∞",
        ),
        Mistake(
            "nothing_said_of_masked_lanes",
            [(OTHER, "")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it takes part in the maximum",
        ),
        Mistake(
            "largest_magnitude",
            [("tl.max(x, axis=0)", "tl.max(tl.abs(x), axis=0)")],
            says="this is the largest magnitude, not the largest number",
        ),
        Mistake(
            "minimum",
            [("tl.max(x, axis=0)", "tl.min(x, axis=0)"), (OTHER, ', other=float("inf")')],
            says="this is the minimum of each row",
        ),
        Mistake(
            "stride_taken_as_columns",
            [("row * stride", "row * columns")],
            says="rows are taken to lie `columns` apart, but they lie `stride` apart",
        ),
        Mistake(
            "mask_one_too_far",
            [("lanes < columns", "lanes <= columns")],
            says="the mask is `<=` where `<` is meant, so a number of the next row takes part",
        ),
        Mistake(
            "last_column_left_out",
            [("lanes < columns", "lanes < columns - 1")],
            says="the mask leaves out the last column",
        ),
        Mistake(
            "no_mask",
            [(f", mask=lanes < columns{OTHER}", "")],
            says="the load has no mask, so numbers of the next rows take part",
        ),
        Mistake(
            "first_row_for_all",
            [("row * stride + lanes", "lanes")],
            says="every program reads the first row",
        ),
    ),
    alternatives=(
        Alternative("several_rows_a_program", functions=(several_rows_kernel, by_several_rows)),
        Alternative("a_loop_over_the_row", functions=(looping_kernel, by_loop)),
        Alternative("masked_after_the_load", [
            (OTHER, ""),
            ("    tl.store", '    x = tl.where(lanes < columns, x, float("-inf"))\n    tl.store'),
        ]),
    ),
)  # fmt: skip
