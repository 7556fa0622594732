"""layernorm_backward_dx: the gradient of a LayerNorm by its input."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def layernorm_backward_dx_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, dy_stride, x_stride,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    xhat = (x - mean) * rstd
    g = dy * w
    mean_g = tl.sum(g, 0) / columns
    mean_gx = tl.sum(g * xhat, 0) / columns
    dx = (g - mean_g - xhat * mean_gx) * rstd
    tl.store(dx_ptr + row * columns + column, dx, mask=mask)


def layernorm_backward_dx(dy, x, w, mean, rstd):
    rows, columns = x.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    layernorm_backward_dx_kernel[(rows,)](
        dy, x, w, mean, rstd, dx, columns, dy.stride(0), x.stride(0),
        COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return dx


def reference(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """The same in PyTorch; w has a number for each column, mean and rstd one for each row."""
    xhat = (x - mean[:, None]) * rstd[:, None]
    g = dy * w
    mean_g = g.mean(1, keepdim=True)
    mean_gx = (g * xhat).mean(1, keepdim=True)
    return (g - mean_g - xhat * mean_gx) * rstd[:, None]


def statistics(x: torch.Tensor, eps: float = 1e-5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and rstd of each row in float32, as a LayerNorm's forward pass keeps them."""
    x = x.double()
    rstd = torch.rsqrt(x.var(1, correction=0) + eps)
    return x.mean(1).float(), rstd.float()


def cases(draw: Draw) -> Iterator[Case]:
    """Tiles that rows fill and do not fill, gaps, eps that matters, products beyond float16."""

    def case(name: str, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, eps=1e-5) -> Case:
        return Case(name, (dy, x, w, *statistics(x, eps)))

    dy, x = draw.normal(5, 100, shift=0.5), draw.normal(5, 100, scale=2, shift=3)
    yield case("5 rows of 100", dy, x, draw.normal(100, shift=1))
    w = draw.normal(64, shift=2)
    yield case("one row of 64, a full tile", draw.normal(1, 64), draw.normal(1, 64, shift=-1), w)
    # Rows of one or two numbers have no gradient but what rounding leaves, which GPUs do otherwise.
    yield case("6 rows of 3", draw.normal(6, 3), draw.normal(6, 3), draw.normal(3, shift=1))
    dy, x = draw.rows_with_gaps(6, 37, gap=5), draw.rows_with_gaps(6, 37)
    yield case("6 rows of 37, with gaps between them", dy, x, draw.normal(37))
    dy, x = draw.normal(4, 50), draw.normal(4, 50, scale=0.01)
    x[1] = draw.number(1, 9)
    yield case("small x, a row of equal numbers; eps is 0.001", dy, x, draw.normal(50), 1e-3)
    for dtype in ("float16", "bfloat16"):
        dy = draw.normal(6, 130, scale=1000, shift=500, dtype=dtype)
        x = draw.normal(6, 130, scale=100, shift=50, dtype=dtype)
        w = draw.normal(130, scale=100, dtype=dtype)
        yield case(f"6 rows of 130, large numbers, {dtype}", dy, x, w)


def budget(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> int:
    """Read both matrices once, write one; and for each row w and two numbers."""
    return 3 * x.numel() * x.element_size() + x.shape[0] * (w.numel() * w.element_size() + 8)


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    dy, x, w = draw.normal(2**14, 4096), draw.normal(2**14, 4096), draw.normal(4096)
    return Case("16,384 rows of 4096, float32", (dy, x, w, *statistics(x)))


@triton.jit
def several_rows_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, rows, columns, dy_stride, x_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
    rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    g *= tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    xhat = tl.where(inside, x - mean, 0.0) * rstd
    shift = tl.sum(g, 1, keep_dims=True) / columns
    slope = tl.sum(g * xhat, 1, keep_dims=True) / columns
    tl.store(dx_ptr + row * columns + column, rstd * (g - (shift + slope * xhat)), mask=inside)


def by_several_rows(dy, x, w, mean, rstd):
    rows, columns = x.shape
    dx = x.new_empty(rows, columns)
    several_rows_kernel[(triton.cdiv(rows, 4),)](
        dy, x, w, mean, rstd, dx, rows, columns, dy.stride(0), x.stride(0),
        ROWS=4, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return dx


@triton.jit
def loop_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, rows, columns, dy_stride, x_stride,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, COLUMNS)
    mask = column < columns
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        rstd = tl.load(rstd_ptr + row)
        x = tl.load(x_ptr + row * x_stride + column, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=mask, other=0.0).to(tl.float32)
        xhat = (x - tl.load(mean_ptr + row)) * rstd
        wide = dy * w
        dx = columns * wide - tl.sum(wide, 0) - xhat * tl.sum(wide * xhat, 0)
        tl.store(dx_ptr + row * columns + column, dx * (rstd / columns), mask=mask)


def by_loop(dy, x, w, mean, rstd):
    rows, columns = x.shape
    dx = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    loop_kernel[(triton.cdiv(rows, 2),)](
        dy, x, w, mean, rstd, dx, rows, columns, dy.stride(0), x.stride(0),
        COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return dx


@triton.jit
def pointers_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, dy_stride, x_stride,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_block = tl.make_block_ptr(dy_ptr + row * dy_stride, (columns,), (1,), (0,), (COLUMNS,), (0,))
    x_block = tl.make_block_ptr(x_ptr + row * x_stride, (columns,), (1,), (0,), (COLUMNS,), (0,))
    w_block = tl.make_block_ptr(w_ptr, (columns,), (1,), (0,), (COLUMNS,), (0,))
    dx_block = tl.make_block_ptr(dx_ptr + row * columns, (columns,), (1,), (0,), (COLUMNS,), (0,))
    rstd = tl.load(rstd_ptr + row)
    x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    xhat = (x - tl.load(mean_ptr + row)) * rstd
    dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    w = tl.load(w_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    g = dy * w * rstd
    dx = tl.fma(-xhat, tl.sum(g * xhat, 0) / columns, g - tl.sum(g, 0) / columns)
    tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))


def by_block_pointers(dy, x, w, mean, rstd):
    rows, columns = x.shape
    dx = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    pointers_kernel[(rows,)](
        dy, x, w, mean, rstd, dx, columns, dy.stride(0), x.stride(0),
        COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    return dx


LOAD_DY = "dy = tl.load(dy_ptr + row * dy_stride + column, mask=mask, other=0.0).to(tl.float32)"
LOAD_X = "x = tl.load(x_ptr + row * x_stride + column, mask=mask, other=0.0).to(tl.float32)"
LOAD_W = "w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)"
MEAN_G = "tl.sum(g, 0) / columns"
MEAN_GX = "tl.sum(g * xhat, 0) / columns"
DX = "dx = (g - mean_g - xhat * mean_gx) * rstd"
STORE = "tl.store(dx_ptr + row * columns + column, dx, mask=mask)"

TASK = KernelTask(
    "layernorm_backward_dx",
    "06",
    "The way back through a LayerNorm",
    minutes=20,
    difficulty=2,
    place=4,
    points=3,
    hints=(
        "A row a program, and everything that it needs at once: a row of dy, the same row of x, "
        "all of w, and the row's two numbers, `tl.load(mean_ptr + row)` and "
        "`tl.load(rstd_ptr + row)`. Two sums, then element-wise arithmetic.",
        "First `xhat = (x - mean) * rstd` and `g = dy * w`, from tiles in float32 whose masked "
        "lanes are 0 (then g is 0 there, and neither sum notices them). The two means are sums "
        "divided by `columns`.",
        "`mean_g = tl.sum(g, 0) / columns`, `mean_gx = tl.sum(g * xhat, 0) / columns`, and "
        "`dx = (g - mean_g - xhat * mean_gx) * rstd` is stored at `dx_ptr + row * columns + "
        "column`. Launch `(rows,)` programs, with `dy.stride(0)` and `x.stride(0)`.",
    ),
    solution=(layernorm_backward_dx_kernel, layernorm_backward_dx),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "nothing_said_of_masked_lanes",
            [("dy = tl.load(dy_ptr + row * dy_stride + column, mask=mask, other=0.0)",
              "dy = tl.load(dy_ptr + row * dy_stride + column, mask=mask)"),
             ("x = tl.load(x_ptr + row * x_stride + column, mask=mask, other=0.0)",
              "x = tl.load(x_ptr + row * x_stride + column, mask=mask)"),
             ("w = tl.load(w_ptr + column, mask=mask, other=0.0)",
              "w = tl.load(w_ptr + column, mask=mask)")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it takes part in the sums",
        ),
        Mistake(
            "mean_of_g_forgotten",
            [("g - mean_g - xhat", "g - xhat")],
            says="the mean of g is not subtracted: that is the gradient of an RMSNorm",
        ),
        Mistake(
            "xhat_term_forgotten",
            [("g - mean_g - xhat * mean_gx", "g - mean_g")],
            says="the term with xhat is missing, through which a number also changes rstd",
        ),
        Mistake(
            "both_means_forgotten",
            [("g - mean_g - xhat * mean_gx", "g")],
            says="neither mean is subtracted, as if mean and rstd did not depend on x",
        ),
        Mistake(
            "xhat_factor_forgotten",
            [("xhat * mean_gx", "mean_gx")],
            says="the mean of g * xhat is subtracted as it is: it has to be multiplied by xhat",
        ),
        Mistake(
            "x_for_xhat",
            [("xhat * mean_gx", "x * mean_gx")],
            says="the mean of g * xhat is multiplied by x, but it has to be by xhat",
        ),
        Mistake(
            "wrong_sign",
            [("g - mean_g - xhat", "g - mean_g + xhat")],
            says="the term with xhat is added, but it has to be subtracted",
        ),
        Mistake(
            "no_weight",
            [("g = dy * w", "g = dy")],
            says="w is not used: g is dy * w",
        ),
        Mistake(
            "means_without_weight",
            [(MEAN_G, "tl.sum(dy, 0) / columns"), (MEAN_GX, "tl.sum(dy * xhat, 0) / columns")],
            says="the two means are of dy, but they have to be of g, which is dy * w",
        ),
        Mistake(
            "weight_at_the_end",
            [("g = dy * w", "g = dy"), (DX, DX + " * w")],
            says="the result is multiplied by w at the end: dy has to be, before the means",
        ),
        Mistake(
            "mean_not_subtracted",
            [("(x - mean) * rstd", "x * rstd")],
            says="xhat is x * rstd, without the mean subtracted",
        ),
        Mistake(
            "xhat_without_rstd",
            [("(x - mean) * rstd", "x - mean")],
            says="xhat is x - mean, without rstd",
        ),
        Mistake(
            "xhat_divided_by_rstd",
            [("(x - mean) * rstd", "(x - mean) / rstd")],
            says="x - mean is divided by rstd, which is the reciprocal of the standard deviation "
            "already: multiply",
        ),
        Mistake(
            "rstd_forgotten",
            [(DX, DX.removesuffix(" * rstd"))],
            says="the result is not multiplied by rstd",
        ),
        Mistake(
            "rstd_for_g_alone",
            [(DX, "dx = g * rstd - mean_g - xhat * mean_gx")],
            says="only g is multiplied by rstd: the brackets are missing around all three terms",
        ),
        Mistake(
            "statistics_of_the_first_row",
            [("mean_ptr + row", "mean_ptr"), ("rstd_ptr + row", "rstd_ptr")],
            says="every row is given the mean and rstd of the first: load them at `+ row`",
        ),
        Mistake(
            "statistics_swapped",
            [("dy, x, w, mean, rstd, dx, columns", "dy, x, w, rstd, mean, dx, columns")],
            says="mean and rstd have changed places",
        ),
        Mistake(
            "dy_and_x_swapped",
            [("dy, x, w, mean, rstd, dx, columns, dy.stride(0), x.stride(0)",
              "x, dy, w, mean, rstd, dx, columns, x.stride(0), dy.stride(0)")],
            says="the arguments dy and x have changed places",
        ),
        Mistake(
            "mean_over_the_tile",
            [(MEAN_G, MEAN_G.replace("columns", "COLUMNS")),
             (MEAN_GX, MEAN_GX.replace("columns", "COLUMNS"))],
            says="the means are taken over the lanes of the tile, COLUMNS, but a row has only "
            "`columns` numbers",
        ),
        Mistake(
            "sums_for_means",
            [(MEAN_G, "tl.sum(g, 0)"), (MEAN_GX, "tl.sum(g * xhat, 0)")],
            says="the two sums are not divided by the number of columns",
        ),
        Mistake(
            "sum_of_gx_for_its_mean",
            [(MEAN_GX, "tl.sum(g * xhat, 0)")],
            says="the sum of g * xhat is not divided by the number of columns",
        ),
        Mistake(
            "columns_less_one",
            [(MEAN_GX, "tl.sum(g * xhat, 0) / (columns - 1)")],
            says="the sum of g * xhat is divided by columns - 1, as in a sample's variance; "
            "LayerNorm divides by all of them",
        ),
        Mistake(
            "weight_by_row",
            [(LOAD_W, "w = tl.load(w_ptr + row).to(tl.float32)")],
            says="w is indexed by the row, but it has one number for each column",
        ),
        Mistake(
            "one_stride_for_both",
            [("row * dy_stride", "row * x_stride")],
            says="the row stride of x is used for dy as well, which has its own",
        ),
        Mistake(
            "gaps_in_dy_ignored",
            [("row * dy_stride", "row * columns")],
            says="a row of dy is taken to begin `row * columns` elements after the first, but rows "
            "may have gaps between them: it is `row * dy_stride`",
        ),
        Mistake(
            "gaps_in_x_ignored",
            [("row * x_stride", "row * columns")],
            says="a row of x is taken to begin `row * columns` elements after the first, but rows "
            "may have gaps between them: it is `row * x_stride`",
        ),
        Mistake(
            "gaps_ignored",
            [("row * x_stride", "row * columns"), ("row * dy_stride", "row * columns")],
            says="rows of dy and x are taken to begin `row * columns` elements after the first, "
            "but there may be gaps between them: use `dy_stride` and `x_stride`",
        ),
        Mistake(
            "gaps_in_the_result",
            [("dx_ptr + row * columns", "dx_ptr + row * x_stride")],
            says="the result is stored with the row stride of x, but its own rows have no gaps: "
            "they begin `row * columns` after the first",
        ),
        Mistake(
            "copied_first",
            [("    rows, columns = x.shape\n",
              "    dy, x = dy.contiguous(), x.contiguous()\n    rows, columns = x.shape\n")],
            says="dy and x are copied whenever their rows have gaps, which is two trips more for "
            "each: the row strides are all that the kernel needs",
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
            "no_mask_on_loads",
            [(LOAD_DY, "dy = tl.load(dy_ptr + row * dy_stride + column).to(tl.float32)"),
             (LOAD_X, "x = tl.load(x_ptr + row * x_stride + column).to(tl.float32)"),
             (LOAD_W, "w = tl.load(w_ptr + column).to(tl.float32)")],
            says="the loads have no mask, so the numbers that follow a row are added up with it",
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
            "multiplied_in_16_bits",
            [("g = dy * w", "g = (dy * w).to(x_ptr.dtype.element_ty).to(tl.float32)")],
            says="dy * w is computed in 16 bits, where it is rounded, and in float16 overflows "
            "beyond 65,504: widen with `.to(tl.float32)` when they are loaded",
        ),
        Mistake(
            "written_over_dy",
            [("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "dy")],
            says="the result is written over dy, which belongs to the caller",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, f"{LOAD_X}\n    {STORE}")],
            says="x is loaded twice, which is a trip more: what is loaded stays in registers, and "
            "can be used again",
        ),
    ),
    alternatives=(
        Alternative("several_rows", functions=(several_rows_kernel, by_several_rows)),
        Alternative("a_loop_over_rows", functions=(loop_kernel, by_loop)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
        Alternative(
            "one_tile_for_all", [("COLUMNS=triton.next_power_of_2(columns)", "COLUMNS=4096")]
        ),
    ),
)  # fmt: skip
