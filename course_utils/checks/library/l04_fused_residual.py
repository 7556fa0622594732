"""fused_residual: a residual that is a tensor of its own, r + relu(x)²/2."""

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
def fused_residual_kernel(x_ptr, r_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    r = tl.load(r_ptr + offsets, mask=mask).to(tl.float32)
    h = tl.maximum(x, 0.0)
    tl.store(y_ptr + offsets, r + 0.5 * h * h, mask=mask)


def fused_residual(x, r):
    x, r = x.contiguous(), r.contiguous()
    y, n = torch.empty_like(x), x.numel()
    fused_residual_kernel[(triton.cdiv(n, BLOCK),)](x, r, y, n, BLOCK=BLOCK)
    return y


def reference(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch, for tensors of one shape."""
    return r + 0.5 * torch.relu(x) ** 2


def cases(draw: Draw) -> Iterator[Case]:
    """An ordinary size, a single number, full tiles, 16 bits, a matrix, views."""
    for n in (3000, 1, 4096):
        # A single x is positive, so that something is added to r.
        x = draw.normal(n) if n > 1 else draw.uniform(1, low=0.5, high=2)
        yield Case(f"{n:,} numbers", (x, draw.normal(n)))
    # Many squares do not fit into float16, while their halves do; and r takes most of them away,
    # so that what was rounded before shows.
    x = draw.uniform(1500, low=-350, high=350, dtype="float16")
    r = draw.uniform(1500, low=-30_000, high=0, dtype="float16")
    yield Case("1,500 numbers up to 350, float16", (x, r))
    x, r = (draw.normal(1500, dtype="bfloat16", scale=scale) for scale in (3, 10))
    yield Case("1,500 numbers, bfloat16", (x, r))
    yield Case("matrices of 37 by 41", (draw.normal(37, 41), draw.normal(37, 41)))
    strided = draw.normal(2200)[::2], draw.normal(3300)[::3]
    yield Case("x and r are every second and third number", strided, refusable=True)
    yield Case("r lies by columns", (draw.normal(37, 41), draw.normal(41, 37).t()), refusable=True)


def budget(x: torch.Tensor, r: torch.Tensor) -> int:
    """Read both inputs once and write the result once."""
    return 3 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("2^26 numbers, float32", (draw.normal(2**26), draw.normal(2**26)))


@triton.jit
def where_kernel(x_ptr, r_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    r = tl.load(r_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, tl.where(x > 0, tl.fma(x * 0.5, x, r), r), mask=mask)


def by_where(x, r):
    if x.stride() != r.stride() or not x.is_contiguous():
        raise ValueError("x and r must be contiguous: pass x.contiguous(), r.contiguous()")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)  # noqa: E731
    where_kernel[grid](x, r, y, x.numel(), BLOCK=512, num_warps=2)
    return y


@triton.jit
def loop_kernel(x_ptr, r_ptr, y_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        h = tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32), 0.0)
        r = tl.load(r_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offsets, h * h / 2 + r, mask=mask)


def by_loop(x, r):
    if not (x.is_contiguous() and r.is_contiguous()):
        raise ValueError("x and r must be contiguous")
    y, n = torch.empty_like(x), x.numel()
    loop_kernel[(triton.cdiv(n, 2 * BLOCK),)](x, r, y, n, BLOCK=BLOCK)
    return y


@triton.jit
def pointers_kernel(x_ptr, r_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    r_block = tl.make_block_ptr(r_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,)).to(tl.float32)
    r = tl.load(r_block, boundary_check=(0,)).to(tl.float32)
    y = r + 0.5 * x * tl.maximum(x, 0.0)
    tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))


def by_block_pointers(x, r):
    x, r = x.contiguous(), r.contiguous()
    y = torch.empty_like(x)
    pointers_kernel[(triton.cdiv(x.numel(), 512),)](x, r, y, x.numel(), BLOCK=512)
    return y


@triton.jit
def square_kernel(x_ptr, h_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    h = tl.maximum(tl.load(x_ptr + offsets, mask=mask).to(tl.float32), 0.0)
    tl.store(h_ptr + offsets, 0.5 * h * h, mask=mask)


@triton.jit
def sum_kernel(h_ptr, r_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    h = tl.load(h_ptr + offsets, mask=mask)
    r = tl.load(r_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, r + h, mask=mask)


def in_two_kernels(x, r):
    x, r = x.contiguous(), r.contiguous()
    h, y = torch.empty_like(x, dtype=torch.float32), torch.empty_like(x)
    n = x.numel()
    square_kernel[(triton.cdiv(n, BLOCK),)](x, h, n, BLOCK=BLOCK)
    sum_kernel[(triton.cdiv(n, BLOCK),)](h, r, y, n, BLOCK=BLOCK)
    return y


PROGRAM = "tl.program_id(0).to(tl.int64)"
WIDEN = ".to(tl.float32)"
LOAD_X = "x = tl.load(x_ptr + offsets, mask=mask)"
LOAD_R = "r = tl.load(r_ptr + offsets, mask=mask)"
NARROW = [(f"{LOAD_X}{WIDEN}", LOAD_X), (f"{LOAD_R}{WIDEN}", LOAD_R)]
RELU = "h = tl.maximum(x, 0.0)"
Y = "r + 0.5 * h * h"
STORE = f"tl.store(y_ptr + offsets, {Y}, mask=mask)"
CONTIGUOUS = "    x, r = x.contiguous(), r.contiguous()\n"

TASK = KernelTask(
    "fused_residual",
    "04",
    "A residual of its own",
    minutes=15,
    difficulty=2,
    place=3,
    points=3,
    hints=(
        "Begin with `simple_add_kernel`: two loads, one store. The residual is what is added at "
        "the end; all else happens to the tile of x, between its load and the store.",
        "`tl.maximum(x, 0.0)` is the ReLU of a tile. Widen both tiles with `.to(tl.float32)` when "
        "they are loaded: in float16 the square of 300 is infinite.",
        "With `h = tl.maximum(x, 0.0)`, store `r + 0.5 * h * h`. The function makes x and r "
        "`.contiguous()` and `y = torch.empty_like(x)`, launches "
        "`fused_residual_kernel[(triton.cdiv(n, BLOCK),)](x, r, y, n, BLOCK=BLOCK)` and returns y.",
    ),
    solution=(fused_residual_kernel, fused_residual),
    reference=reference,
    cases=cases,
    budget=budget,
    example=example,
    mistakes=(
        Mistake(
            "no_mask_on_store",
            [(STORE, f"tl.store(y_ptr + offsets, {Y})")],
            says="the store has no mask, so the last program writes past the end of the result",
        ),
        Mistake(
            "no_mask_on_loads",
            [
                (LOAD_X, "x = tl.load(x_ptr + offsets)"),
                (LOAD_R, "r = tl.load(r_ptr + offsets)"),
            ],
            says="the loads have no mask, so the last program reads past the end of the inputs",
        ),
        Mistake(
            "no_mask_on_the_load_of_r",
            [(LOAD_R, "r = tl.load(r_ptr + offsets)")],
            says="the load of r has no mask, so the last program reads past its end",
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
            "residual_of_the_lane_alone",
            [(LOAD_R, "r = tl.load(r_ptr + tl.arange(0, BLOCK), mask=mask)")],
            says="every program loads the first tile of r: its offsets are those of x",
        ),
        Mistake(
            "residual_dropped",
            [(Y, "0.5 * h * h")],
            says="r is not added",
        ),
        Mistake(
            "residual_is_x",
            [(Y, "x + 0.5 * h * h")],
            says="x is added where r is wanted: here the residual is another tensor",
        ),
        Mistake(
            "residual_is_relu_of_x",
            [(Y, "h + 0.5 * h * h")],
            says="relu(x) is added where r is wanted",
        ),
        Mistake(
            "roles_exchanged",
            [(RELU, "h = tl.maximum(r, 0.0)"), (Y, "x + 0.5 * h * h")],
            says="x and r have exchanged their roles: x goes through the ReLU, and r is added",
        ),
        Mistake(
            "relu_dropped",
            [(RELU, "h = x")],
            says="there is no ReLU, or none that asks in each lane: where x is below zero its "
            "square is added too",
        ),
        Mistake(
            "minimum_for_maximum",
            [(RELU, "h = tl.minimum(x, 0.0)")],
            says="the minimum keeps what is below zero; the ReLU keeps what is above",
        ),
        Mistake(
            "absolute_value_for_relu",
            [(RELU, "h = tl.abs(x)"), (Y, "r + 0.5 * h")],
            says="half of |x| is added: take the ReLU, max(x, 0), and its square",
        ),
        Mistake(
            "relu_of_the_sum",
            [(RELU, "h = x"), (Y, "tl.maximum(r + 0.5 * h * h, 0.0)")],
            says="the ReLU is taken of the whole result; it belongs to x alone, before the square",
        ),
        Mistake(
            "relu_of_sum_again",
            [(Y, f"tl.maximum({Y}, 0.0)")],
            says="the ReLU is taken of the sum once more; it belongs to x alone",
        ),
        Mistake(
            "square_dropped",
            [(Y, "r + 0.5 * h")],
            says="relu(x) is not squared",
        ),
        Mistake(
            "half_dropped",
            [(Y, "r + h * h")],
            says="the factor 1/2 is missing",
        ),
        Mistake(
            "half_squared",
            [(Y, "r + (0.5 * h) * (0.5 * h)")],
            says="the factor 1/2 is squared with relu(x), which makes it 1/4",
        ),
        Mistake(
            "half_of_the_sum",
            [(Y, "0.5 * (r + h * h)")],
            says="the factor 1/2 scales r too; it belongs to the square alone",
        ),
        Mistake(
            "computed_in_16_bits",
            [*NARROW, (RELU, "h = tl.where(x > 0, x, 0.0)")],
            says="of 16-bit inputs the half square is rounded to 16 bits before r is added: widen "
            "x and r with `.to(tl.float32)` when they are loaded, and let `tl.store` round once",
        ),
        Mistake(
            "squared_in_16_bits",
            [*NARROW, (RELU, "h = tl.where(x > 0, x, 0.0)"), (Y, "r + 0.5 * (h * h)")],
            says="16-bit inputs are squared in 16 bits, and in float16 the square of a number "
            "from 256 on is infinite: widen x and r with `.to(tl.float32)` when they are loaded",
        ),
        # The next two differ from them in bfloat16, which tl.maximum widens of its own.
        Mistake(
            "computed_in_float16",
            [*NARROW, (RELU, "h = tl.maximum(x, 0)")],
            says="of float16 inputs the half square is rounded to float16 before r is added: widen "
            "x and r with `.to(tl.float32)` when they are loaded, and let `tl.store` round once",
        ),
        Mistake(
            "squared_in_float16",
            [*NARROW, (RELU, "h = tl.maximum(x, 0)"), (Y, "r + 0.5 * (h * h)")],
            says="float16 inputs are squared in float16, where the square of a number from 256 on "
            "is infinite: widen x and r with `.to(tl.float32)` when they are loaded",
        ),
        Mistake(
            "result_in_float32",
            [("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)")],
            says="the result is always float32; it has to have the dtype of x, and `tl.store` "
            "rounds to it",
        ),
        Mistake(
            "written_over_x",
            [("torch.empty_like(x)", "x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "written_over_r",
            [("torch.empty_like(x)", "r")],
            says="the result is written over r, which belongs to the caller",
        ),
        Mistake(
            "strides_ignored",
            [(CONTIGUOUS, "")],
            says="a tensor with gaps is read as if it had none: refuse it with a ValueError, or "
            "make it `.contiguous()` first",
        ),
        Mistake(
            "strides_of_r_ignored",
            [(CONTIGUOUS, "    x = x.contiguous()\n")],
            says="r is read as if it lay in memory like x: what holds for x holds for r too",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, f"{LOAD_R}{WIDEN}\n    {STORE}")],
            says="a tensor is loaded twice: what is loaded stays in registers",
        ),
        Mistake(
            "written_in_between",
            functions=(square_kernel, sum_kernel, in_two_kernels),
            says="the half square makes a trip to memory and back between two kernels: keep it in "
            "registers, in one kernel",
        ),
    ),
    alternatives=(
        Alternative(
            "other_tile", [("cdiv(n, BLOCK)", "cdiv(n, 2048)"), ("BLOCK=BLOCK", "BLOCK=2048")]
        ),
        Alternative("where", functions=(where_kernel, by_where)),
        Alternative("a_loop_over_tiles", functions=(loop_kernel, by_loop)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
    ),
)  # fmt: skip
