"""softmax_rows: the softmax of each row, a row in a program."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def softmax_rows_kernel(x_ptr, out_ptr, columns, row_stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0), mask=mask)


def softmax_rows(x):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.stride(1) != 1:
        x = x.contiguous()
    tile = triton.next_power_of_2(columns)
    softmax_rows_kernel[(rows,)](x, out, columns, x.stride(0), COLUMNS=tile)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return torch.softmax(x, 1)


def cases(draw: Draw) -> Iterator[Case]:
    """Tiles that rows fill and do not fill, gaps, numbers far from zero, -inf, 16 bits."""
    yield Case("5 rows of 100", (draw.normal(5, 100, scale=2),))
    yield Case("one row of 64, a full tile", (draw.normal(1, 64),))
    yield Case("7 rows of one number", (draw.normal(7, 1),))
    yield Case("6 rows of 37, with gaps between them", (draw.rows_with_gaps(6, 37),))
    yield Case("numbers near 300", (draw.normal(4, 50, shift=300),))
    yield Case("numbers near -20,000", (draw.normal(4, 33, shift=-20_000),))
    x = draw.normal(3, 20)
    x[1] = draw.number(1, 9)
    x[2, draw.integer(0, 4) :: 3] = float("-inf")
    yield Case("a row of equal numbers, and one with -inf in it", (x,))
    for dtype in ("float16", "bfloat16"):
        yield Case(f"6 rows of 300, {dtype}", (draw.normal(6, 300, scale=2, dtype=dtype),))
    yield Case("a transposed matrix of 9 by 6", (draw.normal(6, 9).T,), refusable=True)


def budget(x: torch.Tensor) -> int:
    """Read the matrix once and write the result once."""
    return 2 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("65,536 rows of 1024, float32", (draw.normal(2**16, 1024),))


@triton.jit
def several_rows_kernel(
    x_ptr, out_ptr, rows, columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf"))
    x = x.to(tl.float32)
    top = tl.maximum(tl.max(x, 1, keep_dims=True), -3.4e38)
    e = tl.exp2((x - top) * 1.4426950408889634)
    total = tl.sum(e, 1, keep_dims=True)
    tl.store(out_ptr + row * columns + column, e * (1.0 / total), mask=mask)


def by_several_rows(x):
    if x.stride(1) != 1:
        raise ValueError("the numbers of a row must lie side by side")
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid, tile = (triton.cdiv(rows, 4),), triton.next_power_of_2(columns)
    several_rows_kernel[grid](x, out, rows, columns, x.stride(0), ROWS=4, COLUMNS=tile)
    return out


@triton.jit
def pointers_kernel(x_ptr, out_ptr, columns, row_stride, column_stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_block = tl.make_block_ptr(
        x_ptr + row * row_stride, (columns,), (column_stride,), (0,), (COLUMNS,), (0,)
    )
    out_block = tl.make_block_ptr(out_ptr + row * columns, (columns,), (1,), (0,), (COLUMNS,), (0,))
    x = tl.load(x_block, boundary_check=(0,)).to(tl.float32)
    inside = tl.arange(0, COLUMNS) < columns
    top = tl.max(tl.where(inside, x, float("-inf")), 0)
    e = tl.where(inside, tl.exp(x - top), 0.0)
    y = (e / tl.sum(e, 0)).to(out_ptr.dtype.element_ty)
    tl.store(out_block, y, boundary_check=(0,))


def by_block_pointers(x):
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    tile = triton.next_power_of_2(columns)
    pointers_kernel[(rows,)](x, out, columns, *x.stride(), COLUMNS=tile)
    return out


@triton.jit
def loop_kernel(x_ptr, out_ptr, rows, columns, row_stride, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64)
        x = tl.load(x_ptr + at * row_stride + column, mask=mask, other=float("-inf"))
        x = x.to(tl.float32)
        x -= tl.max(x, 0)
        y = tl.exp(x - tl.log(tl.sum(tl.exp(x), 0)))
        tl.store(out_ptr + at * columns + column, y, mask=mask)


def by_loop(x):
    if x.stride(1) != 1:
        raise ValueError(f"expected rows of neighbours, not strides of {x.stride()}")
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid, tile = (triton.cdiv(rows, 2),), triton.next_power_of_2(columns)
    loop_kernel[grid](x, out, rows, columns, x.stride(0), COLUMNS=tile, num_warps=8)
    return out


@triton.jit
def wrong_axis_kernel(
    x_ptr, out_ptr, rows, columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf"))
    x = x.to(tl.float32)
    e = tl.exp(x - tl.max(x, 0)[None, :])
    tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0)[None, :], mask=mask)


def by_wrong_axis(x):
    if x.stride(1) != 1:
        raise ValueError("the numbers of a row must lie side by side")
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tile = triton.next_power_of_2(columns)
    wrong_axis_kernel[(rows,)](x, out, rows, columns, x.stride(0), ROWS=1, COLUMNS=tile)
    return out


LOAD = (
    'x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf")).to(tl.float32)'
)
STORE = "tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0), mask=mask)"

TASK = KernelTask(
    "softmax_rows",
    "06",
    "Softmax of rows",
    minutes=15,
    difficulty=1,
    place=1,
    hints=(
        "A program owns a row. Its number is `tl.program_id(0)`, and the row begins "
        "`row * row_stride` elements after `x_ptr`. Lanes beyond the row's end are masked off, "
        "with a value that neither a maximum nor a sum of exponentials notices.",
        'That value is `other=float("-inf")`. Widen what you load with `.to(tl.float32)`, subtract '
        "`tl.max(x, 0)`, take `tl.exp`, divide by `tl.sum(e, 0)`. The result has no gaps between "
        "its rows: there a row begins `row * columns` elements after `out_ptr`.",
        "The last two lines of the kernel are `e = tl.exp(x - tl.max(x, 0))` and "
        "`tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0), mask=mask)`. The function "
        "launches `(rows,)` programs with `COLUMNS=triton.next_power_of_2(columns)`, and where "
        "`x.stride(1) != 1` it takes `x.contiguous()`.",
    ),
    solution=(softmax_rows_kernel, softmax_rows),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "rounded_before_subtracted",
            [("e = tl.exp(x - tl.max(x, 0))",
              "x = x * 1.4426950408889634\n    e = tl.exp2(x - tl.max(x, 0))")],
            says="x is multiplied by log₂ e, and rounded, before the maximum is subtracted: for "
            "numbers far from zero, subtract first",
        ),
        Mistake(
            "nothing_said_of_masked_lanes",
            [(', other=float("-inf")', "")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it takes part in the maximum and the sum",
        ),
        Mistake(
            "no_maximum",
            [("tl.exp(x - tl.max(x, 0))", "tl.exp(x)")],
            says="no maximum is subtracted, so the exponential of a number above 88.7 is infinite, "
            "and a row far below zero adds up to 0",
        ),
        Mistake(
            "no_maximum_in_the_sum",
            [(STORE, STORE.replace("tl.sum(e, 0)", "tl.sum(tl.exp(x), 0)"))],
            says="the maximum is subtracted above the fraction line but not below: the sum must be "
            "of the same exponentials that are divided by it",
        ),
        Mistake(
            "masked_lanes_zero",
            [('other=float("-inf")', "other=0.0")],
            says="the lanes beyond the row's end hold 0 (which is also what they may hold when the "
            "load has no `other`), so each adds a number to the row that is not there",
            hint="Which value does a maximum not notice, and has an exponential of 0?",
        ),
        Mistake(
            "masked_lanes_not_low_enough",
            [('other=float("-inf")', "other=-1e4")],
            says="the lanes beyond the row's end hold a number that is low, but not lower than any "
            "row may be: only -inf is",
        ),
        Mistake(
            "minus_infinity_in_the_sum",
            [(STORE, STORE.replace("tl.sum(e, 0)", 'tl.sum(tl.where(mask, e, float("-inf")), 0)'))],
            says="the lanes beyond the row's end are -inf when the exponentials are added up, and "
            "so is the sum: a sum ignores 0",
        ),
        Mistake(
            "sum_of_the_numbers",
            [("e / tl.sum(e, 0)", "e / tl.sum(tl.where(mask, x, 0.0), 0)")],
            says="the sum is one of the numbers themselves, but it is to be one of their "
            "exponentials",
        ),
        Mistake(
            "not_divided",
            [("e / tl.sum(e, 0)", "e")],
            says="the exponentials are not divided by their sum, so a row does not add up to 1",
        ),
        Mistake(
            "mean_for_the_sum",
            [("e / tl.sum(e, 0)", "e / (tl.sum(e, 0) / columns)")],
            says="the exponentials are divided by their mean, so a row adds up to the number of "
            "its columns",
        ),
        Mistake(
            "base_two",
            [("tl.exp(", "tl.exp2(")],
            says="`tl.exp2` is a power of 2: multiply its argument by log2(e) = 1.4427 first, or "
            "use `tl.exp`",
        ),
        Mistake(
            "wrong_axis",
            functions=(wrong_axis_kernel, by_wrong_axis),
            says="every result is 1, as when a tile of a single row is reduced along axis 0, down "
            "its columns, and each exponential divided by itself: a row lies along axis 1",
        ),
        Mistake(
            "gaps_ignored",
            [("row * row_stride", "row * columns")],
            says="a row of x is taken to begin `row * columns` elements after the first, but rows "
            "may have gaps between them: it is `row * row_stride`",
        ),
        Mistake(
            "stride_of_the_columns",
            [("columns, x.stride(0)", "columns, x.stride(1)")],
            says="the kernel is given the stride from column to column, x.stride(1), where it "
            "needs the one from row to row, x.stride(0)",
        ),
        Mistake(
            "gaps_in_the_result",
            [("out_ptr + row * columns", "out_ptr + row * row_stride")],
            says="the result is stored with the row stride of x, but its own rows have no gaps: "
            "they begin `row * columns` after the first",
        ),
        Mistake(
            "columns_ignored",
            [("    if x.stride(1) != 1:\n        x = x.contiguous()\n", "")],
            says="the numbers of a row are read as if they lay side by side, also where they do "
            "not: refuse such an x with a ValueError, or make it `.contiguous()` first",
        ),
        Mistake(
            "always_copied",
            [("if x.stride(1) != 1:\n        x", "x")],
            says="x is copied whenever its rows have gaps, which is two trips more: the row stride "
            "is all that the kernel needs",
        ),
        Mistake(
            "only_the_first_row",
            [("row = tl.program_id(0).to(tl.int64)", "row = 0")],
            says="only the first row is computed: there is a single program, or the row does not "
            "depend on which program it is",
        ),
        Mistake(
            "a_program_for_each_column",
            [("[(rows,)]", "[(columns,)]")],
            says="there are as many programs as columns, but there should be one for each row",
        ),
        Mistake(
            "one_row_too_few",
            [("[(rows,)]", "[(max(rows - 1, 1),)]")],
            says="the last row is never computed, as when there is one program too few",
        ),
        Mistake(
            "no_mask_on_load",
            [(LOAD, "x = tl.load(x_ptr + row * row_stride + column).to(tl.float32)")],
            says="the load has no mask, so a row is given the numbers that follow its end",
        ),
        Mistake(
            "no_mask_on_store",
            [(STORE, STORE.replace(", mask=mask", ""))],
            says="the store has no mask, so a program writes into the row that follows its own",
        ),
        Mistake(
            "mask_one_too_far",
            [("column < columns", "column <= columns")],
            says="the mask is `<=` where `<` is meant: the element at `columns` is the first of "
            "what follows the row",
        ),
        Mistake(
            "subtracted_in_16_bits",
            [("x - tl.max(x, 0)", "(x - tl.max(x, 0)).to(x_ptr.dtype.element_ty).to(tl.float32)")],
            says="the maximum is subtracted in 16 bits, and the difference is rounded before the "
            "exponential: widen with `.to(tl.float32)` when x is loaded",
        ),
        Mistake(
            "written_over_x",
            [("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, f"{LOAD}\n    {STORE}")],
            says="x is loaded twice, which is a third trip: what is loaded stays in registers, and "
            "can be used again",
        ),
    ),
    alternatives=(
        Alternative(
            "one_tile_for_all",
            [("triton.next_power_of_2(columns)", "1024")],
        ),
        Alternative("several_rows", functions=(several_rows_kernel, by_several_rows)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
        Alternative("a_loop_over_rows", functions=(loop_kernel, by_loop)),
        # A maximum of 16-bit numbers comes in float32, and so does what is computed with it.
        Alternative("widened_by_the_maximum", [(LOAD, LOAD.replace(".to(tl.float32)", ""))]),
        Alternative(
            "tl_softmax", [(STORE, STORE.replace("e / tl.sum(e, 0)", "tl.softmax(x, 0)"))]
        ),
    ),
)  # fmt: skip
