"""gelu_tanh: a formula between load and store, x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""

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
def gelu_tanh_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tanh = 2.0 * tl.sigmoid(2.0 * u) - 1.0
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + tanh), mask=mask)


def gelu_tanh(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    gelu_tanh_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in PyTorch, for a tensor of any shape.

    With tanh as the lesson writes it, 1 - 2 / (1 + exp(2u)), so that what this form loses below
    zero counts as usual; `F.gelu(x, approximate="tanh")` loses less.
    """
    u = 0.7978845608028654 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + (1 - 2 / (1 + torch.exp(2 * u))))


def cases(draw: Draw) -> Iterator[Case]:
    """An ordinary size, one number, full tiles, 16 bits, large numbers, a matrix, a view."""
    yield Case("3,000 numbers", (draw.normal(3000, scale=2),))
    yield Case("a single number", (draw.uniform(1, low=0.5, high=2),))
    yield Case("4,096 numbers", (draw.normal(4096, scale=2),))
    yield Case(
        "131,075 numbers", (draw.normal(131_075, scale=2),)
    )  # the lesson's grid is too short
    for dtype in ("float16", "bfloat16"):
        # Below zero, where little is left of x, errors in u and in its tanh show most.
        x = draw.normal(1500, dtype=dtype, shift=-2)
        yield Case(f"1,500 numbers of about -2, {dtype}", (x,))
    yield Case("1,500 numbers of about 100", (draw.normal(1500, scale=100),))
    yield Case("a matrix of 37 by 41", (draw.normal(37, 41, scale=2),))
    strided = draw.normal(2200, scale=2)[::2]
    yield Case("x is every second number of a tensor", (strided,), refusable=True)


def budget(x: torch.Tensor) -> int:
    """Read x once and write the result once."""
    return 2 * x.numel() * x.element_size()


def example(draw: Draw) -> Case:
    """A real size for a GPU."""
    return Case("2^26 numbers, float32", (draw.normal(2**26),))


@triton.jit
def tanh_tile(u):
    e = tl.exp(-2.0 * tl.abs(u))
    size = (1.0 - e) / (1.0 + e)
    return tl.where(u < 0, -size, size)


@triton.jit
def loop_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        inner = 0.7978845608028654 * x + 0.035677408136300125 * x * x * x
        tl.store(y_ptr + offsets, (x * 0.5) * (1.0 + tanh_tile(inner)), mask=mask)


def by_loop(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    y, n = torch.empty_like(x), x.numel()
    loop_kernel[(triton.cdiv(n, 2 * BLOCK),)](x, y, n, BLOCK=BLOCK)
    return y


@triton.jit
def pointers_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,)).to(tl.float32)
    e = tl.exp2(-2.302208198 * (x + 0.044715 * x * x * x))  # 2 sqrt(2/pi) log2(e)
    tl.store(y_block, (x / (1.0 + e)).to(y_ptr.dtype.element_ty), boundary_check=(0,))


def by_block_pointers(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
    return y


@triton.jit
def inner_kernel(x_ptr, u_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(u_ptr + offsets, 0.7978845608028654 * (x + 0.044715 * x * x * x), mask=mask)


@triton.jit
def outer_kernel(x_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    u = tl.load(u_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * tl.sigmoid(2.0 * u), mask=mask)


def in_two_kernels(x):
    x = x.contiguous()
    u, y = torch.empty_like(x, dtype=torch.float32), torch.empty_like(x)
    n = x.numel()
    inner_kernel[(triton.cdiv(n, BLOCK),)](x, u, n, BLOCK=BLOCK)
    outer_kernel[(triton.cdiv(n, BLOCK),)](x, u, y, n, BLOCK=BLOCK)
    return y


PROGRAM = "tl.program_id(0).to(tl.int64)"
LOAD = "x = tl.load(x_ptr + offsets, mask=mask)"
WIDEN = ".to(tl.float32)"
U = "u = 0.7978845608028654 * (x + 0.044715 * x * x * x)"
TANH = "tanh = 2.0 * tl.sigmoid(2.0 * u) - 1.0"
Y = "0.5 * x * (1.0 + tanh)"
STORE = f"tl.store(y_ptr + offsets, {Y}, mask=mask)"

TASK = KernelTask(
    "gelu_tanh",
    "04",
    "The other GELU",
    minutes=15,
    difficulty=1,
    place=2,
    hints=(
        "Nothing but the formula differs from a kernel that copies: offsets and mask, one load, "
        "arithmetic on the tile, one store. For numbers of 16 bits, add `.to(tl.float32)` to what "
        "you load: Triton's `exp` and `sigmoid` take nothing narrower.",
        "$\\tanh u = 2\\,\\sigma(2u) - 1$, with `tl.sigmoid` for $\\sigma$. It overflows nowhere, "
        "while $(e^{2u} - 1) / (e^{2u} + 1)$ becomes infinity over infinity from x = 10 on.",
        "Between load and store: `u = 0.7978845608028654 * (x + 0.044715 * x * x * x)` and "
        "`tanh = 2.0 * tl.sigmoid(2.0 * u) - 1.0`; stored is `0.5 * x * (1.0 + tanh)`. Launch "
        "`(triton.cdiv(n, BLOCK),)` programs, with `x = x.contiguous()` and `n = x.numel()`.",
    ),
    solution=(gelu_tanh_kernel, gelu_tanh),
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
            "no_mask_on_load",
            [(LOAD, "x = tl.load(x_ptr + offsets)")],
            says="the load has no mask, so the last program reads past the end of x",
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
            "erf_form",
            [(TANH, "tanh = tl.erf(x * 0.7071067811865476)")],
            says="this is the GELU with erf; its tanh form is asked for, which differs from it in "
            "the fourth digit",
        ),
        Mistake(
            "quick_gelu",
            [(Y, "x * tl.sigmoid(1.702 * x)")],
            says="x times sigmoid(1.702 x) is a coarser approximation of the GELU than the one "
            "that is asked for",
        ),
        Mistake(
            "silu",
            [(Y, "x * tl.sigmoid(x)")],
            says="x times sigmoid(x) is another function, the SiLU",
        ),
        Mistake(
            "tanh_of_x",
            [("tl.sigmoid(2.0 * u)", "tl.sigmoid(2.0 * x)")],
            says="this is the tanh of x itself; the tanh of u is asked for",
        ),
        Mistake(
            "factor_of_erf",
            [("0.7978845608028654", "0.7071067811865476")],
            says="the factor is 1/√2, which belongs to the form with erf; here it is √(2/π), "
            "0.79788",
        ),
        Mistake(
            "factor_upside_down",
            [("0.7978845608028654", "1.2533141373155001")],
            says="the factor is √(π/2); it should be √(2/π), 0.79788",
        ),
        Mistake(
            "factor_without_root",
            [("0.7978845608028654", "0.6366197723675814")],
            says="the factor is 2/π, without its root; it should be √(2/π), 0.79788",
        ),
        Mistake(
            "factor_rounded",
            [("0.7978845608028654", "0.8")],
            says="the factor is 0.8, too coarse for float32: √(2/π) is 0.7978845608028654",
        ),
        Mistake(
            "factor_rounded_to_three_digits",
            [("0.7978845608028654", "0.798")],
            says="the factor is 0.798, too coarse for float32: √(2/π) is 0.7978845608028654",
        ),
        Mistake(
            "factor_not_on_the_cube",
            [(U, "u = 0.7978845608028654 * x + 0.044715 * x * x * x")],
            says="√(2/π) multiplies x alone; it multiplies the sum of x and 0.044715 x³",
        ),
        Mistake(
            "point_misplaced_in_the_coefficient",
            [("0.044715", "0.44715")],
            says="the coefficient of x³ is ten times too large: it is 0.044715",
        ),
        Mistake(
            "coefficient_rounded",
            [("0.044715", "0.0447")],
            says="the coefficient of x³ is 0.0447, too coarse for float32: it is 0.044715",
        ),
        Mistake(
            "digit_lost_in_the_coefficient",
            [("0.044715", "0.04715")],
            says="the coefficient of x³ lacks a digit: it is 0.044715, with two fours",
        ),
        Mistake(
            "square_for_cube",
            [("0.044715 * x * x * x", "0.044715 * x * x")],
            says="x is squared where its cube is wanted",
        ),
        Mistake(
            "no_cube",
            [(U, "u = 0.7978845608028654 * x")],
            says="the term with x³ is missing from u",
        ),
        Mistake(
            "half_dropped",
            [(Y, "x * (1.0 + tanh)")],
            says="the factor 1/2 is missing, so everything is twice too large",
        ),
        Mistake(
            "x_dropped",
            [(Y, "0.5 * (1.0 + tanh)")],
            says="the factor x is missing: this is the weight that x is to be multiplied by",
        ),
        Mistake(
            "one_dropped",
            [(Y, "0.5 * x * tanh")],
            says="the 1 in 1 + tanh u is missing",
        ),
        Mistake(
            "sigmoid_of_u",
            [("tl.sigmoid(2.0 * u)", "tl.sigmoid(u)")],
            says="2 sigmoid(u) - 1 is the tanh of u/2; the tanh of u takes the sigmoid of 2u",
        ),
        Mistake(
            "sigmoid_for_tanh",
            [(TANH, "tanh = tl.sigmoid(u)")],
            says="the sigmoid of u stands where tanh u is wanted; tanh u is 2 sigmoid(2u) - 1",
        ),
        Mistake(
            "tanh_overflows",
            [(TANH, "e = tl.exp(2.0 * u)\n    tanh = (e - 1.0) / (e + 1.0)")],
            says="for large x the exponential overflows, and infinity over infinity is NaN: write "
            "tanh u so that e stands in the denominator alone, as 1 - 2 / (1 + exp(2u)) or as "
            "2 sigmoid(2u) - 1",
        ),
        Mistake(
            "tanh_overflows_below",
            [(TANH, "e = tl.exp(-2.0 * u)\n    tanh = (1.0 - e) / (1.0 + e)")],
            says="for x far below zero the exponential overflows, and infinity over infinity is "
            "NaN: write tanh u so that e stands in the denominator alone, as 2 / (1 + exp(-2u)) "
            "- 1 or as 2 sigmoid(2u) - 1",
        ),
        Mistake(
            "tanh_overflows_on_both_sides",
            [
                (
                    TANH,
                    "a = tl.exp(u)\n    b = tl.exp(-u)\n    tanh = (a - b) / (a + b)",
                )
            ],
            says="for large |x| one of the two exponentials overflows, and infinity over infinity "
            "is NaN: write tanh u with one exponential, in the denominator alone, as "
            "2 sigmoid(2u) - 1",
        ),
        Mistake(
            "not_widened",
            [(f"{LOAD}{WIDEN}", LOAD)],
            says="16-bit inputs are not widened, and Triton's exp and sigmoid take no narrower "
            "numbers than float32: add `.to(tl.float32)` where they are loaded",
        ),
        Mistake(
            "u_in_16_bits",
            [(f"{LOAD}{WIDEN}", LOAD), ("tl.sigmoid(2.0 * u)", f"tl.sigmoid(2.0 * u{WIDEN})")],
            says="of 16-bit inputs u is computed in 16 bits: widen x with `.to(tl.float32)` when "
            "it is loaded, before any arithmetic",
        ),
        Mistake(
            "computed_in_16_bits",
            [
                (f"{LOAD}{WIDEN}", LOAD),
                (TANH, f"tanh = (2.0 * tl.sigmoid(2.0 * u{WIDEN}) - 1.0).to(x.dtype)"),
            ],
            says="16-bit inputs are computed with in 16 bits, and 1 + tanh u has lost most digits "
            "by then: widen x with `.to(tl.float32)` when it is loaded, before any arithmetic",
        ),
        Mistake(
            "result_in_float32",
            [("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)")],
            says="the result is always float32; it has to have the dtype of x, and `tl.store` "
            "rounds to it",
        ),
        Mistake(
            "written_over_x",
            [("y = torch.empty_like(x)", "y = x")],
            says="the result is written over x, which belongs to the caller",
        ),
        Mistake(
            "strides_ignored",
            [("    x = x.contiguous()\n", "")],
            says="a tensor with gaps is read as if it had none: refuse it with a ValueError, or "
            "make it `.contiguous()` first",
        ),
        Mistake(
            "loaded_twice",
            [(STORE, f"{LOAD}{WIDEN}\n    {STORE}")],
            says="x is loaded twice: what is loaded stays in registers, and can be used again",
        ),
        Mistake(
            "u_written_in_between",
            functions=(inner_kernel, outer_kernel, in_two_kernels),
            says="u makes a trip to memory and back between two kernels: keep it in registers, in "
            "one kernel",
        ),
    ),
    alternatives=(
        Alternative(
            "other_tile", [("cdiv(n, BLOCK)", "cdiv(n, 2048)"), ("BLOCK=BLOCK", "BLOCK=2048")]
        ),
        Alternative("sigmoid_alone", [(Y, "x * tl.sigmoid(2.0 * u)")]),
        Alternative("one_exponential", [(TANH, "tanh = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * u))")]),
        Alternative(
            "polynomial_by_fma",
            [(U, "u = x * tl.fma(x * x, x * 0 + 0.0356774081363, x * 0 + 0.7978845608028654)")],
        ),
        Alternative("a_loop_over_tiles", functions=(tanh_tile, loop_kernel, by_loop)),
        Alternative("block_pointers", functions=(pointers_kernel, by_block_pointers)),
    ),
)  # fmt: skip
