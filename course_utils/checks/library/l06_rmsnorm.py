"""rmsnorm: each row divided by the root of its mean square, and weighted by column."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, out_ptr, columns, row_stride, eps, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)
    tl.store(out_ptr + row * columns + column, x * rstd * w, mask=mask)


def rmsnorm(x, w, eps):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tile = triton.next_power_of_2(columns)
    rmsnorm_kernel[(rows,)](x, w, out, columns, x.stride(0), eps, COLUMNS=tile)
    return out


def reference(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """The same in PyTorch, w of as many numbers as x has columns."""
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + eps) * w


def cases(draw: Draw) -> Iterator[Case]:
    """Tiles that rows fill and do not fill, gaps, eps that matters, squares beyond float16."""
    x = draw.normal(5, 100, scale=2, shift=1)
    yield Case("5 rows of 100", (x, draw.normal(100, shift=1), 1e-5))
    yield Case("one row of 64, a full tile", (draw.normal(1, 64), draw.normal(64), 1e-6))
    yield Case("7 rows of one number", (draw.normal(7, 1), draw.normal(1, shift=2), 0.1))
    x = draw.rows_with_gaps(6, 37)
    yield Case("6 rows of 37, with gaps between them", (x, draw.normal(37), 0.0))
    x = draw.normal(4, 50, scale=0.01)
    x[1] = 0
    x[2] = -draw.number(0.01, 0.09)
    name = "small numbers, a row of zeros, a row of equal numbers; eps is 0.001"
    yield Case(name, (x, draw.normal(50), 1e-3))
    for dtype in ("float16", "bfloat16"):
        x, w = draw.normal(6, 130, scale=300, dtype=dtype), draw.normal(130, dtype=dtype)
        yield Case(f"6 rows of 130 with a mean square of 90,000, {dtype}", (x, w, 1e-5))
    x = draw.normal(3, 40, dtype="bfloat16")
    yield Case("x in bfloat16, w in float32", (x, draw.normal(40), 1e-5))


def budget(x: torch.Tensor, w: torch.Tensor, eps: float) -> int:
    """Read the matrix once, write the result once, and read w for each row."""
    return 2 * x.numel() * x.element_size() + x.shape[0] * w.numel() * w.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    x, w = draw.normal(2**14, 4096), draw.normal(4096)
    return Case("16,384 rows of 4096, float32", (x, w, 1e-5))


@triton.jit
def several_rows_kernel(
    x_ptr, w_ptr, out_ptr, rows, columns, row_stride, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    w = tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0).to(tl.float32)
    root = tl.sqrt(tl.sum(x * x, 1, keep_dims=True) / columns + eps)
    tl.store(out_ptr + row * columns + column, x / root * w, mask=mask)


def by_several_rows(x, w, eps):
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    tile = triton.next_power_of_2(columns)
    several_rows_kernel[(triton.cdiv(rows, 2),)](
        x, w, out, rows, columns, x.stride(0), eps + 1e-30, ROWS=2, COLUMNS=tile
    )
    return out


@triton.jit
def loop_kernel(x_ptr, w_ptr, out_ptr, rows, columns, row_stride, eps, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    w = tl.load(w_ptr + column, mask=mask).to(tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0).to(tl.float32)
        mean_square = tl.sum(x * x, 0) * (1.0 / columns)
        y = x * w * tl.rsqrt(mean_square + eps)
        tl.store(out_ptr + row * columns + column, y, mask=mask)


def by_loop(x, w, eps):
    rows, columns = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    grid, tile = (triton.cdiv(rows, 2),), triton.next_power_of_2(columns)
    loop_kernel[grid](x, w, out, rows, columns, x.stride(0), eps, COLUMNS=tile)
    return out


@triton.jit
def pointers_kernel(
    x_ptr, w_ptr, out_ptr, rows, columns, row_stride, eps, COLUMNS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    x_block = tl.make_block_ptr(
        x_ptr, (rows, columns), (row_stride, 1), (row, 0), (1, COLUMNS), (1, 0)
    )
    out_block = tl.make_block_ptr(
        out_ptr, (rows, columns), (columns, 1), (row, 0), (1, COLUMNS), (1, 0)
    )
    w_block = tl.make_block_ptr(w_ptr, (columns,), (1,), (0,), (COLUMNS,), (0,))
    x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    w = tl.load(w_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(x * x, 1) / columns + eps)
    y = x * rstd[:, None] * w[None, :]
    tl.store(out_block, y.to(out_ptr.dtype.element_ty), boundary_check=(0, 1))


def by_block_pointers(x, w, eps):
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    tile = triton.next_power_of_2(columns)
    pointers_kernel[(rows,)](x, w, out, rows, columns, x.stride(0), eps, COLUMNS=tile)
    return out


LOAD = "x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0).to(tl.float32)"
LOAD_W = "w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)"
RSTD = "tl.rsqrt(tl.sum(x * x, 0) / columns + eps)"
STORE = "tl.store(out_ptr + row * columns + column, x * rstd * w, mask=mask)"

TASK = KernelTask(
    "rmsnorm",
    "06",
    "RMSNorm",
    minutes=15,
    difficulty=2,
    place=2,
    points=3,
    hints=(
        "A row a program, as in the softmax. The reduction is a sum of squares: which value do "
        "masked lanes need, so that it does not notice them? And the mean is over the row's "
        "`columns` numbers, not over the tile's lanes.",
        "Load x with `other=0.0` and w with the same mask, and widen both to float32. Then "
        "`tl.sum(x * x, 0) / columns` is the mean square; eps is added to it, and `tl.rsqrt` is "
        "taken of both together.",
        "`rstd = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)`, and what is stored is "
        "`x * rstd * w`, at `out_ptr + row * columns + column`. Launch `(rows,)` programs with "
        "`x.stride(0)` and `COLUMNS=triton.next_power_of_2(columns)`.",
    ),
    solution=(rmsnorm_kernel, rmsnorm),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    ratio=1.2,  # w comes from a cache, so a copy of as many bytes takes half as long again
    mistakes=(
        Mistake(
            "nothing_said_of_masked_lanes",
            [("x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0)",
              "x = tl.load(x_ptr + row * row_stride + column, mask=mask)")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it takes part in the sum",
        ),
        Mistake(
            "mean_over_the_tile",
            [("tl.sum(x * x, 0) / columns", "tl.sum(x * x, 0) / COLUMNS")],
            says="the mean is taken over the lanes of the tile, COLUMNS, but a row has only "
            "`columns` numbers",
        ),
        Mistake(
            "sum_for_the_mean",
            [("tl.sum(x * x, 0) / columns", "tl.sum(x * x, 0)")],
            says="the sum of the squares is not divided by the number of columns",
        ),
        Mistake(
            "columns_less_one",
            [("tl.sum(x * x, 0) / columns", "tl.sum(x * x, 0) / (columns - 1)")],
            says="the sum is divided by columns - 1, as in a sample's variance; a mean square "
            "divides by all of them",
        ),
        Mistake(
            "eps_forgotten",
            [("/ columns + eps", "/ columns")],
            says="eps is not added, so a row of zeros becomes 0 · ∞, and rows of small numbers "
            "become too large",
        ),
        Mistake(
            "eps_outside_the_root",
            [(RSTD, "1.0 / (tl.sqrt(tl.sum(x * x, 0) / columns) + eps)")],
            says="eps is added to the root, but it belongs inside, to the mean square",
        ),
        Mistake(
            "eps_after_the_root",
            [(RSTD, "tl.rsqrt(tl.sum(x * x, 0) / columns) + eps")],
            says="eps is added to the reciprocal of the root, but it belongs inside the root, to "
            "the mean square",
        ),
        Mistake(
            "eps_in_the_sum",
            [("tl.sum(x * x, 0) / columns + eps", "(tl.sum(x * x, 0) + eps) / columns")],
            says="eps is added before the division by the number of columns, but it belongs to the "
            "mean, not to the sum",
        ),
        Mistake(
            "eps_for_each_number",
            [("tl.sum(x * x, 0) / columns + eps", "tl.sum(x * x + eps, 0) / columns")],
            says="eps is added to each lane's square, also in the lanes beyond the row's end: add "
            "it once, to the mean",
        ),
        Mistake(
            "root_not_inverted",
            [(RSTD, RSTD.replace("tl.rsqrt", "tl.sqrt"))],
            says="the row is multiplied by the root: divide by it, or use `tl.rsqrt`, which is 1 / "
            "root",
        ),
        Mistake(
            "no_root",
            [(RSTD, RSTD.replace("tl.rsqrt(", "1.0 / ("))],
            says="the row is divided by its mean square, and not by the root of that",
        ),
        Mistake(
            "not_squared",
            [("x * x", "tl.abs(x)")],
            says="the mean is one of absolute values, but it is to be one of squares",
        ),
        Mistake(
            "layer_norm",
            [(LOAD_W, f"{LOAD_W}\n    x = tl.where(mask, x - tl.sum(x, 0) / columns, 0.0)")],
            says="the row's mean is subtracted, as in a LayerNorm; an RMSNorm does without",
        ),
        Mistake(
            "root_of_the_variance",
            [("tl.sum(x * x, 0) / columns",
              "tl.sum(x * x, 0) / columns - (tl.sum(x, 0) / columns) * (tl.sum(x, 0) / columns)")],
            says="the row is divided by the root of its variance, which measures from the mean; "
            "the mean square measures from 0",
        ),
        Mistake(
            "masked_lanes_one",
            [(LOAD, LOAD.replace("other=0.0", "other=1.0"))],
            says="the lanes beyond the row's end hold 1, and their squares are added up too: a sum "
            "ignores 0",
        ),
        Mistake(
            "no_weight",
            [("x * rstd * w", "x * rstd")],
            says="w is not used",
        ),
        Mistake(
            "weight_by_row",
            [(LOAD_W, "w = tl.load(w_ptr + row).to(tl.float32)")],
            says="w is indexed by the row, but it has one number for each column",
        ),
        Mistake(
            "first_weight_for_all",
            [(LOAD_W, "w = tl.load(w_ptr).to(tl.float32)")],
            says="every column is weighted with the first number of w: load `w_ptr + column`",
        ),
        Mistake(
            "one_plus_weight",
            [("x * rstd * w", "x * rstd * (1.0 + w)")],
            says="the row is multiplied by 1 + w, as some models do; here it is w alone",
        ),
        Mistake(
            "weight_before_the_mean",
            [("    rstd = ", "    x = x * w\n    rstd = "), ("x * rstd * w", "x * rstd")],
            says="the row is weighted before its mean square is taken: w comes last",
        ),
        Mistake(
            "squared_in_16_bits",
            [("x * x", "(x * x).to(x_ptr.dtype.element_ty)")],
            says="the squares are computed in 16 bits, where they are rounded, and in float16 "
            "overflow beyond 65,504: widen with `.to(tl.float32)` when x is loaded",
        ),
        Mistake(
            "gaps_ignored",
            [("row * row_stride", "row * columns")],
            says="a row of x is taken to begin `row * columns` elements after the first, but rows "
            "may have gaps between them: it is `row * row_stride`",
        ),
        Mistake(
            "gaps_in_the_result",
            [("out_ptr + row * columns", "out_ptr + row * row_stride")],
            says="the result is stored with the row stride of x, but its own rows have no gaps: "
            "they begin `row * columns` after the first",
        ),
        Mistake(
            "copied_first",
            [("rows, columns = x.shape", "x = x.contiguous()\n    rows, columns = x.shape")],
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
            "no_mask_on_load",
            [(LOAD, "x = tl.load(x_ptr + row * row_stride + column).to(tl.float32)")],
            says="the load of x has no mask, so the numbers that follow a row are squared and "
            "added up with it",
        ),
        Mistake(
            "no_mask_on_weight",
            [(LOAD_W, "w = tl.load(w_ptr + column).to(tl.float32)")],
            says="the load of w has no mask, so it reads past the end of w",
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
            "written_over_x",
            [("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, f"{LOAD}\n    {STORE}")],
            says="x is loaded twice, which is a trip more: what is loaded stays in registers, and "
            "can be used again",
        ),
    ),
    alternatives=(
        Alternative(
            "divided_by_the_root",
            [(RSTD, "tl.sqrt(tl.sum(x * x, 0) / columns + eps)"), ("x * rstd * w", "x / rstd * w")],
        ),
        Alternative("several_rows", functions=(several_rows_kernel, by_several_rows)),
        Alternative("a_loop_over_rows", functions=(loop_kernel, by_loop)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
    ),
)  # fmt: skip
