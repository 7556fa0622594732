"""repair_transpose: right for square matrices, and for no others."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from course_utils.checks.draw import Case, Draw
from course_utils.checks.kernel_task import RepairTask
from course_utils.checks.variants import Alternative, Mistake


@triton.jit
def transpose_kernel(x_ptr, out_ptr, M, N, x_stride, out_stride, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :], mask=mask)
    tl.store(out_ptr + columns[None, :] * out_stride + rows[:, None], x, mask=mask)


def repair_transpose(x):
    M, N = x.shape
    out = torch.empty((N, M), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    transpose_kernel[grid](x, out, M, N, x.stride(0), out.stride(0), BLOCK=16)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch."""
    return x.T.contiguous()


def cases(draw: Draw) -> Iterator[Case]:
    """Square, wide, tall, one row, one column, rows with gaps."""
    shapes = ((32, 32), (20, 37), (45, 18), (1, 40), (33, 1))
    for M, N in shapes:
        yield Case(f"{M} by {N}", (draw.normal(M, N),))
    yield Case("24 by 17, bfloat16", (draw.normal(24, 17, dtype="bfloat16"),))
    yield Case("19 by 21, with gaps between the rows", (draw.rows_with_gaps(19, 21),))


def budget(x: torch.Tensor) -> int:
    """Read once, write once."""
    return 2 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU; tiles of 16 are small, and speed is not the point here."""
    return Case("2^13 by 2^12, float32", (draw.normal(2**13, 2**12),))


@triton.jit
def by_trans_kernel(x_ptr, out_ptr, M, N, x_stride, out_stride, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :], mask=inside)
    outside = (columns[:, None] < N) & (rows[None, :] < M)
    tl.store(out_ptr + columns[:, None] * out_stride + rows[None, :], tl.trans(x), mask=outside)


def by_trans(x):
    M, N = x.shape
    out = torch.empty((N, M), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    by_trans_kernel[grid](x, out, M, N, x.stride(0), out.stride(0), BLOCK=32)
    return out


@triton.jit
def flat_kernel(x_ptr, out_ptr, M, N, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < M * N
    x = tl.load(x_ptr + offsets % M * x_stride + offsets // M, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


def by_flat_offsets(x):
    M, N = x.shape
    out = torch.empty((N, M), dtype=x.dtype, device=x.device)
    flat_kernel[(triton.cdiv(M * N, 256),)](x, out, M, N, x.stride(0), BLOCK=256)
    return out


TASK = RepairTask(
    "repair_transpose",
    "05",
    "Repair: a transposed matrix",
    minutes=8,
    difficulty=2,
    place=4,
    points=3,
    hints=(
        "It is right for 32 by 32. What have M and N, and the two strides, in common there and "
        "nowhere else?",
        "A row of the result is as long as a column of x. Which stride belongs to the tensor that "
        "is stored to?",
        "Element [c, r] of the result lies at `c * out_stride + r`.",
    ),
    solution=(transpose_kernel, repair_transpose),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    ratio=4.0,
    broken="stride_of_the_other_tensor",
    mistakes=(
        Mistake(
            "stride_of_the_other_tensor",
            [("columns[None, :] * out_stride", "columns[None, :] * x_stride")],
            says="the store uses the stride of x; the result has its own, and they are the same "
            "for a square matrix only",
        ),
        Mistake(
            "strides_swapped",
            [("columns[None, :] * out_stride", "columns[None, :] * x_stride"),
             ("rows[:, None] * x_stride", "rows[:, None] * out_stride")],
            says="the two strides are swapped, which does not show for a square matrix",
        ),
        Mistake(
            "bounds_swapped",
            [("(rows[:, None] < M) & (columns[None, :] < N)",
              "(rows[:, None] < N) & (columns[None, :] < M)")],
            says="M and N are swapped in the mask, which does not show for a square matrix",
        ),
        Mistake(
            "grid_swapped",
            [("(triton.cdiv(M, 16), triton.cdiv(N, 16))",
              "(triton.cdiv(N, 16), triton.cdiv(M, 16))")],
            says="M and N are swapped in the grid, so some tiles have no program",
        ),
        Mistake(
            "not_transposed",
            [("columns[None, :] * out_stride + rows[:, None]",
              "rows[:, None] * N + columns[None, :]")],
            says="the elements are stored in the order in which they were loaded, not transposed",
        ),
        Mistake(
            "tile_transposed_in_its_place",
            [("tl.store(out_ptr + columns[None, :] * out_stride + rows[:, None], x, mask=mask)",
              "across = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"
              "    down = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
              "    inside = (down[:, None] < N) & (across[None, :] < M)\n"
              "    tl.store(out_ptr + down[:, None] * out_stride + across[None, :], tl.trans(x), "
              "mask=inside)")],
            says="each tile is transposed, but stored where it came from: tiles change places too",
        ),
        Mistake(
            "no_mask",
            [("x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :], mask=mask)",
              "x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :])")],
            says="the load has no mask, so tiles at the edge read outside the matrix",
        ),
        Mistake(
            "one_axis_masked",
            [("(rows[:, None] < M) & (columns[None, :] < N)",
              "(rows[:, None] < M) & (columns[None, :] >= 0)")],
            says="the mask looks at rows only, so columns beyond the matrix are read and stored",
        ),
    ),
    alternatives=(
        Alternative("tl_trans", functions=(by_trans_kernel, by_trans)),
        Alternative("flat_offsets", functions=(flat_kernel, by_flat_offsets)),
        Alternative("other_tile", [("(triton.cdiv(M, 16), triton.cdiv(N, 16))",
                                    "(triton.cdiv(M, 8), triton.cdiv(N, 8))"),
                                   ("BLOCK=16", "BLOCK=8")]),
    ),
)  # fmt: skip
