"""predict_fusions: what three fused kernels move. Each is written out here, run and counted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
import triton
import triton.language as tl

from course_utils import Meter
from course_utils.checks.question_task import Number, QuestionTask, Slip

ROWS, COLUMNS, BLOCK = 128, 1024, 1024


@triton.jit
def leaky_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.where(x > 0, x, 0.1 * x))


@triton.jit
def momentum_kernel(p_ptr, m_ptr, g_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = 0.9 * tl.load(m_ptr + at) + tl.load(g_ptr + at)
    tl.store(m_ptr + at, m)
    tl.store(p_ptr + at, tl.load(p_ptr + at) - 0.01 * m)


@triton.jit
def affine_kernel(x_ptr, row_ptr, column_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    at = row * BLOCK + columns
    y = (tl.load(x_ptr + at) + tl.load(row_ptr + columns)) * tl.load(column_ptr + row)
    tl.store(y_ptr + at, y.to(tl.bfloat16))


def leaky(x: torch.Tensor) -> torch.Tensor:
    """Fused: torch.where(x > 0, x, 0.1 * x)."""
    y = torch.empty_like(x)
    leaky_kernel[(x.numel() // BLOCK,)](x, y, BLOCK=BLOCK)
    return y


def momentum(x: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Fused: m.mul_(0.9).add_(g), then x.sub_(m, alpha=0.01)."""
    momentum_kernel[(x.numel() // BLOCK,)](x, m, g, BLOCK=BLOCK)
    return x


def affine(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Fused: ((x + row) * column).to(torch.bfloat16), x with BLOCK columns."""
    y = torch.empty_like(x, dtype=torch.bfloat16)
    affine_kernel[(len(x),)](x, row, column, y, BLOCK=BLOCK)
    return y


def eager_leaky(x: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's ops, one after the other."""
    return torch.where(x > 0, x, 0.1 * x)


def eager_momentum(x: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's ops, one after the other."""
    m.mul_(0.9).add_(g)
    return x.sub_(m, alpha=0.01)


def eager_affine(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's ops, one after the other."""
    return ((x + row) * column).to(torch.bfloat16)


def operands(name: str) -> tuple[torch.Tensor, ...]:
    """What a program is given; x, over which trips are counted, is the first."""
    shapes = {
        "leaky": [(ROWS, COLUMNS)],
        "momentum": [(ROWS, COLUMNS)] * 3,
        "affine": [(ROWS, COLUMNS), (COLUMNS,), (ROWS, 1)],
    }
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes[name])


def trips(name: str, program: Callable[..., torch.Tensor]) -> Callable[[], float]:
    """Count a program's trips, every distinct byte of a launch once.

    So the row that all programs of a kernel read counts once, as in HBM.
    """

    @functools.cache  # running a kernel in the interpreter takes a while
    def count() -> float:
        given = operands(name)
        with Meter() as meter:
            program(*given)
        return meter.traffic.compulsory_bytes / given[0].nbytes

    return count


def question(
    name: str,
    asks: str,
    fused: Callable[..., torch.Tensor],
    eager: Callable[..., torch.Tensor],
    *slips: Slip,
) -> Number:
    """Ask for the trips of a fused kernel."""
    count = trips(name, fused)
    everywhere = (
        Slip(
            "eager", trips(name, eager), "those are the trips of PyTorch's ops, one after the other"
        ),
        Slip(
            "bytes",
            lambda: 4 * count(),
            "those are bytes for each number of x; a trip is a whole pass, whatever the bytes",
        ),
    )
    named = [replace(slip, name=f"{name}_{slip.name}") for slip in (*slips, *everywhere)]
    return Number(name, asks, truth=count, unit="trips", slips=named)


TASK = QuestionTask(
    "predict_fusions",
    "03",
    "Predict three fusions",
    minutes=8,
    difficulty=1,
    place=1,
    hints=(
        "A fused kernel reads each of its inputs once and writes each of its outputs once. Make "
        "two lists for each program.",
        "An input that is used three times is read once. A tensor that is changed in place stands "
        "in both lists. A row or a column of a matrix is hardly anything, and bfloat16 is half of "
        "float32.",
        "leaky: x in, y out. momentum: x, m and g in, x and m out. affine: x in, and y out with 2 "
        "bytes a number where x has 4.",
    ),
    questions=(
        question(
            "leaky",
            "trips of the fused leaky relu",
            leaky,
            eager_leaky,
            Slip(
                "each_use",
                4,
                "x is read once and stays in a register; comparing, scaling and choosing all take "
                "it from there",
            ),
            Slip(
                "read_twice",
                3,
                "that is a trip too many: x is read once and stays in a register, and the 0.1 * x "
                "and the comparison stay there too",
            ),
            Slip("one_way", 1, "that is x in alone, or y out alone; both move"),
        ),
        question(
            "momentum",
            "trips of the fused step with momentum",
            momentum,
            eager_momentum,
            Slip(
                "reads_only",
                3,
                "that counts what is read; x and m are written back, in place or not",
            ),
            Slip("writes_only", 2, "that counts what is written; x, m and g are read as well"),
            Slip(
                "one_missing",
                4,
                "one is missing: m is needed again at the next step, so that it is written as "
                "well as x; and x, m and g are all read",
            ),
            Slip(
                "m_read_again",
                6,
                "that is one too many: the new m is written, but the kernel still has it in a "
                "register; g is only read",
            ),
        ),
        question(
            "affine",
            "trips over x of the fused shift and scale",
            affine,
            eager_affine,
            Slip("wide_result", 2, "the result is bfloat16, with half the bytes of x"),
            Slip(
                "two_matrices",
                3.5,
                "row and column are counted as matrices; they are one row and one column, whose "
                "bytes are next to nothing",
            ),
            Slip(
                "two_matrices_and_wide",
                4,
                "row and column are one row and one column, next to nothing beside x; and the "
                "result is bfloat16, with half the bytes of x",
            ),
            Slip("no_write", 1, "the write is missing: the result goes to memory, in bfloat16"),
            Slip("no_read", 0.5, "the read is missing: x comes from memory"),
            Slip(
                "narrow_trips",
                3,
                "those are passes over the result, which has half the bytes of x; asked for are "
                "passes over x",
            ),
        ),
    ),
)
