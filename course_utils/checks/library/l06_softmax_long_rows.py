"""softmax_long_rows: the softmax of rows that no tile holds, a tile at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import KernelTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def softmax_long_rows_kernel(x_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    out_ptr += row * columns
    top, total = -3.4e38, 0.0
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)
        top = new
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + column, mask=column < columns).to(tl.float32)
        tl.store(out_ptr + column, tl.exp(x - top) / total, mask=column < columns)


def softmax_long_rows(x, tile):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_long_rows_kernel[(rows,)](x, out, columns, x.stride(0), TILE=tile)
    return out


def reference(x: torch.Tensor, tile: int) -> torch.Tensor:
    """The same in PyTorch, which needs no tile."""
    return torch.softmax(x, 1)


def cases(draw: Draw) -> Iterator[Case]:
    """Whole and partial tiles, maxima that come early and late, -inf, gaps, a very long row."""
    yield Case("3 rows of 200, tiles of 64", (draw.normal(3, 200, scale=3), 64))
    yield Case("one row of 256, tiles of 64", (draw.normal(1, 256, scale=3), 64))
    yield Case("2 rows of 30, tiles of 64", (draw.normal(2, 30), 64))
    yield Case("4 rows of one number, tiles of 16", (draw.normal(4, 1), 16))
    gaps = draw.rows_with_gaps(4, 75)
    yield Case("4 rows of 75, with gaps between them, tiles of 32", (gaps, 32))
    slope = torch.arange(200).float()
    for words, sign in (("rises", 2), ("falls", -2)):
        x = draw.normal(2, 200) + sign * slope
        yield Case(f"the maximum {words} from tile to tile, tiles of 32", (x, 32))
    yield Case("numbers near -20,000, tiles of 64", (draw.normal(2, 100, shift=-20_000), 64))
    x = draw.normal(2, 150)
    x[0, :64] = x[1, 64:128] = x[1, 3] = float("-inf")
    yield Case("a tile of -inf, tiles of 64", (x, 64))
    for dtype in ("float16", "bfloat16"):
        x = draw.normal(2, 300, scale=2, dtype=dtype)
        yield Case(f"2 rows of 300, {dtype}, tiles of 128", (x, 128))
    longest = draw.normal(1, 2**20 + 77)
    yield Case("a row of 1,048,653, longer than any tile, tiles of 131,072", (longest, 2**17))


def budget(x: torch.Tensor, tile: int) -> int:
    """Read the matrix twice, write the result once; and up to eight floats for each tile."""
    rows, columns = x.shape
    return 3 * x.numel() * x.element_size() + 32 * rows * triton.cdiv(columns, tile)


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("1024 rows of 65,536, float32, tiles of 4096", (draw.normal(2**10, 2**16), 4096))


@triton.jit
def lanes_kernel(x_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, TILE)
    tops = tl.full([TILE], -3.4e38, tl.float32)
    totals = tl.zeros([TILE], tl.float32)
    for start in range(0, columns, TILE):
        mask = start + lane < columns
        x = tl.load(x_ptr + row * row_stride + start + lane, mask=mask, other=float("-inf"))
        new = tl.maximum(tops, x.to(tl.float32))
        totals = totals * tl.exp(tops - new) + tl.exp(x.to(tl.float32) - new)
        tops = new
    top = tl.max(tops, 0)
    scale = 1.0 / tl.sum(totals * tl.exp(tops - top), 0)
    tiles = tl.cdiv(columns, TILE)
    for tile in range(tiles):
        column = (tiles - 1 - tile) * TILE + lane
        x = tl.load(x_ptr + row * row_stride + column, mask=column < columns).to(tl.float32)
        tl.store(out_ptr + row * columns + column, tl.exp(x - top) * scale, mask=column < columns)


def by_lanes(x, tile):
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    lanes_kernel[(rows,)](x, out, columns, x.stride(0), TILE=tile)
    return out


@triton.jit
def statistics_kernel(x_ptr, top_ptr, total_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    top, total = -1e38, 0.0
    for start in range(0, columns, TILE):
        mask = column < columns - start
        x = tl.load(x_ptr + row * row_stride + start + column, mask=mask, other=float("-inf"))
        highest = tl.max(x.to(tl.float32), 0)
        if highest > top:
            total *= tl.exp(top - highest)
            top = highest
        total += tl.sum(tl.exp(x.to(tl.float32) - top), 0)
    tl.store(top_ptr + row, top)
    tl.store(total_ptr + row, total)


@triton.jit
def result_kernel(x_ptr, top_ptr, total_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = column < columns
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf"))
    e = tl.exp(x.to(tl.float32) - tl.load(top_ptr + row))
    tl.store(out_ptr + row * columns + column, e / tl.load(total_ptr + row), mask=mask)


def by_two_kernels(x, tile):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    top, total = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    statistics_kernel[(rows,)](x, top, total, columns, x.stride(0), TILE=tile)
    grid = (rows, triton.cdiv(columns, tile))
    result_kernel[grid](x, top, total, out, columns, x.stride(0), TILE=tile)
    return out


@triton.jit
def parts_kernel(x_ptr, parts_ptr, columns, row_stride, TILE: tl.constexpr):
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + row * row_stride + column, mask=column < columns, other=float("-inf"))
    x = x.to(tl.float32)
    top = tl.maximum(tl.max(x, 0), -3.4e38)
    at = parts_ptr + 2 * (row * tl.num_programs(1) + tile)
    tl.store(at, top)
    tl.store(at + 1, tl.sum(tl.exp(x - top), 0))


@triton.jit
def joined_kernel(parts_ptr, joined_ptr, tiles, TILES: tl.constexpr):
    row, tile = tl.program_id(0).to(tl.int64), tl.arange(0, TILES)
    at = parts_ptr + 2 * (row * tiles + tile)
    tops = tl.load(at, mask=tile < tiles, other=float("-inf"))
    totals = tl.load(at + 1, mask=tile < tiles, other=0.0)
    top = tl.max(tops, 0)
    tl.store(joined_ptr + 2 * row, top)
    tl.store(joined_ptr + 2 * row + 1, tl.sum(totals * tl.exp(tops - top), 0))


@triton.jit
def scaled_kernel(x_ptr, joined_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    mask = column < columns
    top, total = tl.load(joined_ptr + 2 * row), tl.load(joined_ptr + 2 * row + 1)
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, tl.exp(x - top) / total, mask=mask)


def by_parts(x, tile):
    rows, columns = x.shape
    tiles, stride = triton.cdiv(columns, tile), x.stride(0)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    parts = torch.empty(rows, tiles, 2, dtype=torch.float32, device=x.device)
    joined = torch.empty(rows, 2, dtype=torch.float32, device=x.device)
    parts_kernel[(rows, tiles)](x, parts, columns, stride, TILE=tile)
    joined_kernel[(rows,)](parts, joined, tiles, TILES=triton.next_power_of_2(tiles))
    scaled_kernel[(rows, tiles)](x, joined, out, columns, stride, TILE=tile)
    return out


@triton.jit
def first_tile_kernel(x_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    mask = column < columns
    x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0), mask=mask)


def of_the_first_tile(x, tile):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    first_tile_kernel[(rows,)](x, out, columns, x.stride(0), TILE=tile)
    return out


@triton.jit
def each_tile_kernel(x_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        mask = column < columns
        x = tl.load(x_ptr + row * row_stride + column, mask=mask, other=float("-inf"))
        x = x.to(tl.float32)
        e = tl.exp(x - tl.max(x, 0))
        tl.store(out_ptr + row * columns + column, e / tl.sum(e, 0), mask=mask)


def of_each_tile(x, tile):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    each_tile_kernel[(rows,)](x, out, columns, x.stride(0), TILE=tile)
    return out


@triton.jit
def three_passes_kernel(x_ptr, out_ptr, columns, row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    top, total = -3.4e38, 0.0
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, 0))
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - top), 0)
    for start in range(0, columns, TILE):
        column = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(out_ptr + row * columns + column, y, mask=column < columns)


def by_three_passes(x, tile):
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    three_passes_kernel[(rows,)](x, out, columns, x.stride(0), TILE=tile)
    return out


LOAD = 'x = tl.load(x_ptr + column, mask=column < columns, other=float("-inf")).to(tl.float32)'
LOAD_AGAIN = "x = tl.load(x_ptr + column, mask=column < columns).to(tl.float32)"
FIRST = "for start in range(0, columns, TILE):\n        column = start + tl.arange(0, TILE)\n" + (
    " " * 8 + LOAD
)
SECOND = "for start in range(0, columns, TILE):\n        column = start + tl.arange(0, TILE)\n" + (
    " " * 8 + LOAD_AGAIN
)
NEW = "new = tl.maximum(top, tl.max(x, 0))"
TOTAL = "total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)"
STORE = "tl.store(out_ptr + column, tl.exp(x - top) / total, mask=column < columns)"

TASK = KernelTask(
    "softmax_long_rows",
    "06",
    "Softmax of rows longer than a tile",
    minutes=25,
    difficulty=3,
    place=3,
    points=4,
    hints=(
        "Two loops over the row, a tile at a time. The first finds the row's maximum *and* the sum "
        "of the exponentials, the second stores the results. In the first, what is the sum so far "
        "worth when a larger maximum comes along?",
        "Keep `top` and `total`. For each tile: `new = tl.maximum(top, tl.max(x, 0))`; the sum so "
        "far was one of `exp(x - top)`, and multiplied by `tl.exp(top - new)` it is one of "
        "`exp(x - new)`; then the tile's own exponentials are added. Begin with a `top` that is "
        "very low but finite: when a whole tile is −∞, so is a `top` that began there, and "
        "−∞ − (−∞) is NaN.",
        "`top, total = -3.4e38, 0.0`, and in the loop `total = total * tl.exp(top - new) + "
        "tl.sum(tl.exp(x - new), 0)`, then `top = new`. The second loop loads the tile again and "
        "stores `tl.exp(x - top) / total`. Both loops are "
        "`for start in range(0, columns, TILE)`, with `column = start + tl.arange(0, TILE)`.",
    ),
    solution=(softmax_long_rows_kernel, softmax_long_rows),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "nothing_said_of_masked_lanes",
            [(', other=float("-inf")', "")],
            says="the load says nothing of masked lanes, so what they hold is left to chance, and "
            "it takes part in the maximum and the sum",
        ),
        Mistake(
            "not_rescaled",
            [("total * tl.exp(top - new)", "total")],
            says="the sum so far is not scaled down when the maximum rises, or only after the old "
            "maximum was overwritten: it still is a sum of e^(x - old maximum)",
        ),
        Mistake(
            "rescaled_by_the_inverse",
            # The inverse is infinite unless the maximum begins as that of the first tile.
            [("top, total = -3.4e38, 0.0", f"column = tl.arange(0, TILE)\n    {LOAD}\n"
              "    top, total = tl.max(x, 0), 0.0"),
             ("total * tl.exp(top - new)", "total * tl.exp(new - top)")],
            says="the sum so far is scaled by e^(new - old), which makes it larger: a higher "
            "maximum makes every exponential smaller, by e^(old - new)",
        ),
        Mistake(
            "rescaled_by_the_inverse_from_the_start",
            [("total * tl.exp(top - new)", "total * tl.exp(new - top)")],
            says="everything is NaN. If the sum so far is scaled by e^(new - old): from a very low "
            "first maximum on that is infinite, and 0 · ∞ is NaN. It has to be e^(old - new), "
            "which is 0",
        ),
        Mistake(
            "rescaled_twice",
            [("total * tl.exp(top - new)", "total * tl.exp(top - new) * tl.exp(top - new)")],
            says="the sum so far is scaled down twice for each rise of the maximum",
        ),
        Mistake(
            "rescaled_with_the_tile",
            [(TOTAL, "total = (total + tl.sum(tl.exp(x - new), 0)) * tl.exp(top - new)")],
            says="the tile's own exponentials are scaled down too, but they are measured from the "
            "new maximum already: only the sum so far is",
        ),
        Mistake(
            "rescaled_in_base_two",
            [("total * tl.exp(top - new)", "total * tl.exp2(top - new)")],
            says="the sum so far is scaled by a power of 2, while the exponentials are powers of e",
        ),
        Mistake(
            "maximum_of_each_tile",
            [(NEW, "new = tl.max(x, 0)"), ("total * tl.exp(top - new)", "total")],
            says="each tile is measured from its own maximum, and their sums are added up as if "
            "they had been measured from the same one",
        ),
        Mistake(
            "maximum_of_the_tile",
            [(NEW, "new = tl.max(x, 0)")],
            says="the maximum is that of the last tile, not of all so far: where it falls by more "
            "than 88, or a tile is all -inf, the sum so far is scaled up to infinity or NaN",
        ),
        Mistake(
            "maximum_not_kept",
            [("        top = new\n", "")],
            says="the new maximum is not kept for the next tile: `top` stays what it was before "
            "the loop",
        ),
        Mistake(
            "no_maximum",
            [(NEW, "new = 0.0"), ("top, total = -3.4e38, 0.0", "top, total = 0.0, 0.0")],
            says="no maximum is subtracted, so the exponential of a number above 88.7 is infinite, "
            "and a row far below zero adds up to 0",
        ),
        Mistake(
            "maximum_begins_too_high",
            [("top, total = -3.4e38, 0.0", "top, total = 0.0, 0.0")],
            says="the running maximum begins at 0, or at another number that is not low enough: in "
            "a row far below it, it never becomes the row's, and all exponentials are 0",
        ),
        Mistake(
            "maximum_begins_at_minus_infinity",
            [("top, total = -3.4e38, 0.0", 'top, total = float("-inf"), 0.0')],
            says="the running maximum begins at -inf, and stays there through a tile of nothing "
            "but -inf: then -inf - (-inf) is NaN. Begin with a very low finite number",
        ),
        Mistake(
            "masked_lanes_zero",
            [('other=float("-inf")', "other=0.0")],
            says="in the first pass the lanes beyond the row's end hold 0 (which is also what they "
            "may hold when the load has no `other`), so each adds a number that is not there",
        ),
        Mistake(
            "masked_lanes_not_low_enough",
            [('other=float("-inf")', "other=-1e4")],
            says="the lanes beyond the row's end hold a number that is low, but not lower than any "
            "row may be: only -inf is",
        ),
        Mistake(
            "sum_of_the_first_tile",
            [(FIRST, FIRST.replace("columns, TILE", "TILE, TILE", 1))],
            says="maximum and sum are taken of the first tile alone, and used for all of the row",
        ),
        Mistake(
            "sum_of_the_last_tile",
            [(TOTAL, "total = tl.sum(tl.exp(x - new), 0)")],
            says="the sum is that of the last tile alone: each tile overwrites what was added up "
            "before",
        ),
        Mistake(
            "of_the_first_tile",
            functions=(first_tile_kernel, of_the_first_tile),
            says="only the first tile of each row is computed, as if it were the whole row",
        ),
        Mistake(
            "of_each_tile",
            functions=(each_tile_kernel, of_each_tile),
            says="each tile is a softmax of its own, which adds up to 1 by itself: the maximum and "
            "the sum are to be those of the whole row",
        ),
        Mistake(
            "first_tile_stored",
            [(SECOND, SECOND.replace("columns, TILE", "TILE, TILE", 1))],
            says="only the first tile's results are stored: the second loop does not go on, or "
            "its columns do not begin at `start`",
        ),
        Mistake(
            "last_partial_tile_forgotten",
            [(FIRST, FIRST.replace("columns, TILE", "columns // TILE * TILE, TILE", 1)),
             (SECOND, SECOND.replace("columns, TILE", "columns // TILE * TILE, TILE", 1))],
            says="the loops end with the last full tile: the columns after it are neither added up "
            "nor stored",
        ),
        Mistake(
            "last_partial_tile_not_added",
            [(FIRST, FIRST.replace("columns, TILE", "columns // TILE * TILE, TILE", 1))],
            says="the first loop ends with the last full tile, so the columns after it are missing "
            "in the maximum and in the sum",
        ),
        Mistake(
            "last_partial_tile_not_stored",
            [(SECOND, SECOND.replace("columns, TILE", "columns // TILE * TILE, TILE", 1))],
            says="the second loop ends with the last full tile, so the columns after it have no "
            "result",
        ),
        Mistake(
            "same_tile_added_again",
            [(FIRST, FIRST.replace("start + tl.arange", "tl.arange"))],
            says="the first loop adds up the first tile again and again: `start` is not used",
        ),
        Mistake(
            "result_from_the_tiles_maximum",
            [("tl.exp(x - top) / total", "tl.exp(x - tl.max(tl.where(column < columns, x, "
              'float("-inf")), 0)) / total')],
            says="the results are measured from each tile's own maximum, and the sum from the "
            "row's",
        ),
        Mistake(
            "not_divided",
            [("tl.exp(x - top) / total", "tl.exp(x - top)")],
            says="the exponentials are not divided by their sum, so a row does not add up to 1",
        ),
        Mistake(
            "gaps_ignored",
            [("x_ptr += row * row_stride", "x_ptr += row * columns")],
            says="a row of x is taken to begin `row * columns` elements after the first, but rows "
            "may have gaps between them: it is `row * row_stride`",
        ),
        Mistake(
            "gaps_in_the_result",
            [("out_ptr += row * columns", "out_ptr += row * row_stride")],
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
            "one_row_too_few",
            [("[(rows,)]", "[(max(rows - 1, 1),)]")],
            says="the last row is never computed, as when there is one program too few",
        ),
        Mistake(
            "no_mask_on_store",
            [(STORE, STORE.replace(", mask=column < columns", ""))],
            says="the store has no mask, so the last tile of a row is stored beyond the row's end",
        ),
        Mistake(
            "no_mask_on_first_load",
            [(LOAD, "x = tl.load(x_ptr + column).to(tl.float32)")],
            says="the first loop's load has no mask, so the numbers that follow a row are added up "
            "with it",
        ),
        Mistake(
            "no_mask_on_second_load",
            [(LOAD_AGAIN, "x = tl.load(x_ptr + column).to(tl.float32)")],
            says="the second loop's load has no mask, so it reads past the end of x",
        ),
        Mistake(
            "subtracted_in_16_bits",
            [(NEW, NEW + "\n        x = x.to(x_ptr.dtype.element_ty)"),
             ("tl.sum(tl.exp(x - new), 0)",
              "tl.sum(tl.exp((x - new).to(x_ptr.dtype.element_ty).to(tl.float32)), 0)"),
             ("tl.exp(x - top) / total",
              "tl.exp((x - top).to(x_ptr.dtype.element_ty).to(tl.float32)) / total")],
            says="the maximum is subtracted in 16 bits, and the difference is rounded before the "
            "exponential: widen with `.to(tl.float32)` when x is loaded",
        ),
        Mistake(
            "written_over_x",
            [("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "three_passes",
            functions=(three_passes_kernel, by_three_passes),
            says="x is read three times, as when maximum, sum and result have a pass each: with a "
            "running maximum the first two are one",
        ),
    ),
    alternatives=(
        Alternative(
            "smaller_tiles", [("x.stride(0), TILE=tile", "x.stride(0), TILE=max(tile // 4, 16)")]
        ),
        Alternative("a_maximum_for_each_lane", functions=(lanes_kernel, by_lanes)),
        Alternative(
            "two_kernels", functions=(statistics_kernel, result_kernel, by_two_kernels)
        ),
        Alternative(
            "a_program_for_each_tile",
            functions=(parts_kernel, joined_kernel, scaled_kernel, by_parts),
        ),
        Alternative(
            "base_two",
            [("tl.exp(top - new)", "tl.exp2((top - new) * 1.4426950408889634)"),
             ("tl.exp(x - new)", "tl.exp2((x - new) * 1.4426950408889634)"),
             ("tl.exp(x - top)", "tl.exp2((x - top) * 1.4426950408889634)")],
        ),
    ),
)  # fmt: skip
