"""bias_columns: two dimensions and their strides, m + bias with one number for each column."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake

ROWS, COLUMNS = 16, 64


@triton.jit
def bias_columns_kernel(
    m_ptr, bias_ptr, y_ptr, rows, columns, m_row, m_column, y_row, y_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(columns, COLUMNS)
    tile = tl.program_id(0)
    i = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = (tile % across).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    m = tl.load(m_ptr + i[:, None] * m_row + j[None, :] * m_column, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + j, mask=j < columns).to(tl.float32)
    tl.store(y_ptr + i[:, None] * y_row + j[None, :] * y_column, m + bias[None, :], mask=mask)


def bias_columns(m, bias):
    y, bias = torch.empty_like(m), bias.contiguous()
    rows, columns = m.shape
    grid = (triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS),)
    strides = (*m.stride(), *y.stride())
    bias_columns_kernel[grid](m, bias, y, rows, columns, *strides, ROWS=ROWS, COLUMNS=COLUMNS)
    return y


def reference(m: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch: m of (rows, columns), bias of (columns,)."""
    return m + bias


def cases(draw: Draw) -> Iterator[Case]:
    """Wider and taller than tiles, a row, a column, full tiles, 16 bits, gaps, by columns."""
    for rows, columns in ((20, 150), (70, 5), (1, 70), (37, 1), (32, 128)):
        m, bias = draw.normal(rows, columns), draw.normal(columns)
        yield Case(f"{rows} by {columns}", (m, bias))
    for dtype in ("float16", "bfloat16"):
        m, bias = draw.normal(17, 65, dtype=dtype), draw.normal(65, dtype=dtype)
        yield Case(f"17 by 65, {dtype}", (m, bias))
    m = draw.rows_with_gaps(20, 70)
    yield Case("20 by 70, gaps between the rows", (m, draw.normal(70)))
    m = draw.normal(70, 20).t()
    yield Case("20 by 70, a transposed matrix", (m, draw.normal(70)), refusable=True)
    m, bias = draw.normal(20, 70), draw.normal(140)[::2]
    yield Case("20 by 70, a bias with gaps", (m, bias), refusable=True)


def budget(m: torch.Tensor, bias: torch.Tensor) -> int:
    """Read m once, write the result once; read the bias once for every four rows."""
    rows, columns = m.shape
    return (2 * rows * columns + triton.cdiv(rows, 4) * columns) * m.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("8192 by 8192, float32", (draw.normal(8192, 8192), draw.normal(8192)))


@triton.jit
def grid_kernel(
    m_ptr, bias_ptr, y_ptr, rows, columns, m_row, y_row, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (i < rows) & (j < columns)
    bias = tl.load(bias_ptr + j, mask=j < columns, other=0.0)
    m = tl.load(m_ptr + i * m_row + j, mask=mask, other=0.0)
    tl.store(y_ptr + i * y_row + j, m + bias, mask=mask)


def by_a_grid_of_two_dimensions(m, bias):
    if m.stride(1) != 1 or not bias.is_contiguous():
        raise ValueError("neighbours in a row of m, and in bias, must be neighbours in memory")
    rows, columns = m.shape
    y = torch.empty_like(m)
    grid = (triton.cdiv(columns, 32), triton.cdiv(rows, 8))
    grid_kernel[grid](
        m, bias, y, rows, columns, m.stride(0), y.stride(0), ROWS=8, COLUMNS=32, num_warps=1
    )
    return y


@triton.jit
def down_kernel(
    m_ptr, bias_ptr, y_ptr, rows, columns, m_row, m_column, y_row, y_column, COLUMNS: tl.constexpr
):
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mask = j < columns
    bias = tl.load(bias_ptr + j, mask=mask).to(tl.float32)
    for i in range(tl.program_id(1), rows, tl.num_programs(1)):
        m = tl.load(m_ptr + i * m_row + j * m_column, mask=mask).to(tl.float32)
        tl.store(y_ptr + i * y_row + j * y_column, m + bias, mask=mask)


def by_a_loop_down_the_rows(m, bias):
    bias = bias.contiguous()
    rows, columns = m.shape
    y = torch.empty((rows, columns), dtype=m.dtype, device=m.device)
    grid = (triton.cdiv(columns, 128), triton.cdiv(rows, 16))
    down_kernel[grid](m, bias, y, rows, columns, *m.stride(), *y.stride(), COLUMNS=128)
    return y


@triton.jit
def pointers_kernel(
    m_ptr, bias_ptr, y_ptr, rows, columns, m_row, m_column, y_row, y_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    down = tl.cdiv(rows, ROWS)
    i = tl.program_id(0) % down * ROWS
    j = tl.program_id(0) // down * COLUMNS
    size: tl.constexpr = (ROWS, COLUMNS)
    m_block = tl.make_block_ptr(m_ptr, (rows, columns), (m_row, m_column), (i, j), size, (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (rows, columns), (y_row, y_column), (i, j), size, (1, 0))
    bias_block = tl.make_block_ptr(bias_ptr, (columns,), (1,), (j,), (COLUMNS,), (0,))
    bias = tl.load(bias_block, boundary_check=(0,)).to(tl.float32)
    m = tl.load(m_block, boundary_check=(0, 1)).to(tl.float32)
    y = m + tl.expand_dims(bias, 0)
    tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


def by_block_pointers(m, bias):
    bias = bias.contiguous()
    rows, columns = m.shape
    y = torch.empty_like(m)
    grid = (triton.cdiv(rows, 8) * triton.cdiv(columns, 128),)
    strides = (*m.stride(), *y.stride())
    pointers_kernel[grid](m, bias, y, rows, columns, *strides, ROWS=8, COLUMNS=128)
    return y


ROW, COLUMN = "i[:, None]", "j[None, :]"
M = f"m_ptr + {ROW} * m_row + {COLUMN} * m_column"
Y = f"y_ptr + {ROW} * y_row + {COLUMN} * y_column"
PLACE = "(tile % across).to(tl.int64)"
BIAS = "bias = tl.load(bias_ptr + j, mask=j < columns)"
STORE = f"tl.store({Y}, m + bias[None, :], mask=mask)"
MASK = "mask = (i < rows)[:, None] & (j < columns)[None, :]"
GRID = "grid = (triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS),)"

TASK = KernelTask(
    "bias_columns",
    "04",
    "A bias by column, for any strides",
    minutes=25,
    difficulty=3,
    place=4,
    points=4,
    hints=(
        "A program owns a tile of ROWS by COLUMNS. Count through the tiles row by row, as "
        "`bias_residual_kernel` does: with `across` tiles side by side, tile number t lies in row "
        "`t // across` and column `t % across` of the tiles.",
        "With i for the tile's rows and j for its columns, element (i, j) of m lies "
        "`i[:, None] * m_row + j[None, :] * m_column` after `m_ptr`, and that of y by y's own "
        "strides. The mask asks of i and of j: `(i < rows)[:, None] & (j < columns)[None, :]`.",
        "The bias belongs to columns: `bias = tl.load(bias_ptr + j, mask=j < columns)`, loaded "
        "once for the whole tile. The last line stores `m + bias[None, :]` at "
        "`y_ptr + i[:, None] * y_row + j[None, :] * y_column`, with `mask=mask`.",
    ),
    solution=(bias_columns_kernel, bias_columns),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "bias_by_row",
            [
                (BIAS, "bias = tl.load(bias_ptr + i, mask=i < columns, other=0.0)"),
                ("bias[None, :]", "bias[:, None]"),
            ],
            says="the bias is picked by row; there is one number for each column",
        ),
        Mistake(
            "bias_of_the_lane_alone",
            [(BIAS, "bias = tl.load(bias_ptr + tl.arange(0, COLUMNS), mask=j < columns)")],
            says="every tile takes the bias of the first columns: its own columns are j",
        ),
        Mistake(
            "bias_dropped",
            [("m + bias[None, :]", "m")],
            says="the bias is not added",
        ),
        Mistake(
            "bias_multiplied",
            [("m + bias[None, :]", "m * bias[None, :]")],
            says="the bias is multiplied; it is to be added",
        ),
        Mistake(
            "strides_of_m_for_y",
            [(Y, Y.replace("y_row", "m_row").replace("y_column", "m_column"))],
            says="the result is stored by the strides of m; y has its own",
        ),
        Mistake(
            "strides_of_y_for_m",
            [(M, M.replace("m_row", "y_row").replace("m_column", "y_column"))],
            says="m is loaded by the strides of y; it has its own",
        ),
        Mistake(
            "columns_for_the_row_stride",
            [
                (M, f"m_ptr + {ROW} * columns + {COLUMN}"),
                (Y, f"y_ptr + {ROW} * columns + {COLUMN}"),
            ],
            says="rows are taken to begin `columns` elements apart, which holds only where there "
            "are no gaps between them: multiply i by the row stride, and j by the column stride",
        ),
        Mistake(
            "columns_for_the_row_stride_of_m",
            [(M, f"m_ptr + {ROW} * columns + {COLUMN}")],
            says="rows of m are taken to begin `columns` elements apart, which holds only where "
            "there are no gaps between them: multiply i by m_row, and j by m_column",
        ),
        Mistake(
            "column_stride_ignored",
            [(M, f"m_ptr + {ROW} * m_row + {COLUMN}"), (Y, f"y_ptr + {ROW} * y_row + {COLUMN}")],
            says="j is not multiplied by the column stride, which is 1 only where neighbours in a "
            "row are neighbours in memory: use it, or refuse other matrices with a ValueError",
        ),
        Mistake(
            "column_stride_of_m_ignored",
            [(M, f"m_ptr + {ROW} * m_row + {COLUMN}")],
            says="j is not multiplied by m_column, which is 1 only where neighbours in a row are "
            "neighbours in memory: use it, or refuse other matrices with a ValueError",
        ),
        Mistake(
            "strides_exchanged",
            [
                (M, f"m_ptr + {ROW} * m_column + {COLUMN} * m_row"),
                (Y, f"y_ptr + {ROW} * y_column + {COLUMN} * y_row"),
            ],
            says="the strides have changed places: i goes with the row stride, j with that of "
            "columns",
        ),
        Mistake(
            "strides_of_m_exchanged",
            [(M, f"m_ptr + {ROW} * m_column + {COLUMN} * m_row")],
            says="the strides of m have changed places: i goes with m_row, j with m_column",
        ),
        Mistake(
            "rows_and_columns_exchanged_in_the_mask",
            [(MASK, "mask = (i < columns)[:, None] & (j < rows)[None, :]")],
            says="the mask compares i with columns and j with rows: i counts rows, j columns",
        ),
        Mistake(
            "mask_of_rows_alone",
            [(MASK, "mask = (i < rows)[:, None] & (j >= 0)[None, :]")],
            says="the mask does not keep out columns beyond the matrix, so tiles at the right edge "
            "reach into the next row: it has to ask for i and for j, joined with `&`",
        ),
        Mistake(
            "mask_of_columns_alone",
            [(MASK, "mask = (i >= 0)[:, None] & (j < columns)[None, :]")],
            says="the mask does not keep out rows beyond the matrix, so the lowest tiles reach "
            "past the end: it has to ask for i and for j, joined lane by lane with `&`",
        ),
        Mistake(
            "mask_one_row_too_far",
            [(MASK, "mask = (i <= rows)[:, None] & (j < columns)[None, :]")],
            says="the mask is `<=` where `<` is meant: there is no row number `rows`",
        ),
        Mistake(
            "mask_one_column_too_far",
            [(MASK, "mask = (i < rows)[:, None] & (j <= columns)[None, :]")],
            says="the mask is `<=` where `<` is meant: there is no column number `columns`",
        ),
        Mistake(
            "no_mask_on_store",
            [(STORE, f"tl.store({Y}, m + bias[None, :])")],
            says="the store has no mask, so tiles at the edges write into the next row or past "
            "the end",
        ),
        Mistake(
            "no_mask_on_loads",
            [
                (f"tl.load({M}, mask=mask)", f"tl.load({M})"),
                (BIAS, "bias = tl.load(bias_ptr + j)"),
            ],
            says="the loads have no mask, so tiles at the edges read past the end of m and of the "
            "bias",
        ),
        Mistake(
            "no_mask_on_the_load_of_m",
            [(f"tl.load({M}, mask=mask)", f"tl.load({M})")],
            says="the load of m has no mask, so tiles at the edges read past its end",
        ),
        Mistake(
            "no_mask_on_the_load_of_the_bias",
            [(BIAS, "bias = tl.load(bias_ptr + j)")],
            says="the load of the bias has no mask, so tiles at the right edge read past its end",
        ),
        Mistake(
            "across_in_columns",
            [("across = tl.cdiv(columns, COLUMNS)", "across = columns")],
            says="`across` is the number of columns; it is tiles that are counted, "
            "`tl.cdiv(columns, COLUMNS)`",
        ),
        Mistake(
            "across_rounded_down",
            [("across = tl.cdiv(columns, COLUMNS)", "across = tl.maximum(columns // COLUMNS, 1)")],
            says="`across` is rounded down, so the partial tile at the end of a row of tiles is "
            "left out",
        ),
        Mistake(
            "tiles_counted_the_wrong_way",
            [
                ("(tile // across)", "(tile % across)"),
                (f"{PLACE} * COLUMNS", f"{PLACE.replace('%', '//')} * COLUMNS"),
            ],
            says="tile numbers are taken apart the wrong way round: with `across` tiles side by "
            "side, `tile // across` is the row of tiles, and `tile % across` the place in it",
        ),
        Mistake(
            "one_row_of_tiles",
            [(GRID, "grid = (triton.cdiv(columns, COLUMNS),)")],
            says="the grid holds one row of tiles; it takes `triton.cdiv(rows, ROWS)` of them",
        ),
        Mistake(
            "one_column_of_tiles",
            [(GRID, "grid = (triton.cdiv(rows, ROWS),)")],
            says="the grid holds as many programs as there are rows of tiles, and each row has "
            "`triton.cdiv(columns, COLUMNS)` of them",
        ),
        Mistake(
            "grid_rounded_down",
            [(GRID, "grid = (max(rows // ROWS, 1) * max(columns // COLUMNS, 1),)")],
            says="the grid is rounded down, so the partial tiles at the edges have no program",
        ),
        Mistake(
            "grid_of_elements",
            [(GRID, "grid = (triton.cdiv(rows * columns, ROWS * COLUMNS),)")],
            says="the grid is counted from elements; a tile at an edge takes a program too, "
            "however little of it is inside: round up in rows and in columns each",
        ),
        Mistake(
            "result_in_float32",
            [("torch.empty_like(m)", "torch.empty_like(m, dtype=torch.float32)")],
            says="the result is always float32; it has to have the dtype of m, and `tl.store` "
            "rounds to it",
        ),
        Mistake(
            "written_over_m",
            [("torch.empty_like(m)", "m")],
            says="the result is written over m, which belongs to the caller",
        ),
        Mistake(
            "copied_first",
            [
                (
                    "    y, bias = torch.empty_like(m), bias.contiguous()\n",
                    "    m, bias = m.contiguous(), bias.contiguous()\n"
                    "    y = torch.empty_like(m)\n",
                )
            ],
            says="a matrix with gaps between its rows is copied first, which is two trips more: "
            "the row stride is all that the kernel needs",
        ),
        Mistake(
            "stride_of_the_bias_ignored",
            [("bias.contiguous()", "bias")],
            says="a bias with gaps is read as if it had none: use its stride, make it "
            "`.contiguous()`, or refuse it with a ValueError",
        ),
        Mistake(
            "bias_for_each_row",
            [
                (BIAS, f"bias = tl.load(bias_ptr + {ROW} * 0 + {COLUMN}, mask=mask)"),
                ("bias[None, :]", "bias"),
            ],
            says="the bias is asked for anew for each row, which is a trip more: give a tile "
            "several rows, load one number for each of its columns, and spread them over the rows "
            "in registers, `bias[None, :]`",
        ),
    ),
    alternatives=(
        Alternative(
            "other_tile",
            [
                ("ROWS=ROWS, COLUMNS=COLUMNS)", "ROWS=4, COLUMNS=256)"),
                (GRID, "grid = (triton.cdiv(rows, 4) * triton.cdiv(columns, 256),)"),
            ],
        ),
        Alternative(
            "a_grid_of_two_dimensions", functions=(grid_kernel, by_a_grid_of_two_dimensions)
        ),
        Alternative("a_loop_down_the_rows", functions=(down_kernel, by_a_loop_down_the_rows)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
    ),
)  # fmt: skip
