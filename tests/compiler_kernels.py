"""Kernels that the compiler's tests compile: right ones, and one for each thing to get wrong."""

import math
import types

import course_utils

course_utils.machine()  # decides how kernels run, before triton is imported

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

HALF = tl.constexpr(0.5)
SCALE = 2.0  # a plain global, which no kernel may use


@triton.jit
def gelu(x):
    return HALF * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, gelu(x), mask=mask)


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


@triton.jit
def int_dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr):
    m = tl.arange(0, M)
    a = tl.load(a_ptr + m[:, None] * M + m[None, :])
    b = tl.load(b_ptr + m[:, None] * M + m[None, :])
    tl.store(c_ptr + m[:, None] * M + m[None, :], tl.dot(a, b, out_dtype=tl.int32))


@triton.jit
def transpose_kernel(x_ptr, out_ptr, stride, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * stride + columns)
    tl.store(out_ptr + columns * stride + rows, x)


@triton.jit
def strided_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride))


@triton.jit
def loop_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        total += tl.load(x_ptr + offsets)
        x_ptr += BLOCK
    tl.store(out_ptr + offsets, total)


@triton.jit(do_not_specialize=["n"])
def unspecialized_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)


@triton.jit
def descriptor_kernel(source, target, M: tl.constexpr, N: tl.constexpr):
    target.store([0, 0], source.load([0, 0]) * 2)


@triton.jit
def crowded_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, x / tl.sum(x))  # all of x has to wait for the sum


# --- All kinds of names that a kernel can use ---------------------------------------------------

EXPONENT: tl.constexpr = tl.constexpr(2)
DTYPE = tl.constexpr(tl.float16)
SIZES = tl.constexpr((4, 8))


@triton.jit
def add_one(x):
    return x + 1


# A module of one's own, which the process that compiles cannot import.
helpers = types.ModuleType("helpers_of_ones_own")
helpers.deeper = types.ModuleType("helpers_of_ones_own.deeper")
helpers.deeper.add_one = add_one


@triton.constexpr_function
def twice(number):
    return 2 * number


def make_names_kernel():
    closed_over = tl.constexpr(0.25)

    @triton.jit
    def names_kernel(
        x_ptr,
        out_ptr,
        function: tl.constexpr,
        pair: tl.constexpr = (1, 2),
        BLOCK: tl.constexpr = 128,
    ):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        x = libdevice.tanh(x) * closed_over + math.pi * EXPONENT
        x = helpers.deeper.add_one(x) + function(x) + pair[1] + SIZES[0]
        x = x + tl.cdiv(BLOCK, 32) + twice(BLOCK) + tl.sum(x, axis=0)
        tl.store(out_ptr + offsets, x.to(DTYPE))

    return names_kernel


names_kernel = make_names_kernel()


@triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x_ptr + offsets, 1.0)
    else:
        tl.store(x_ptr + offsets, 1.0, mask=offsets < n)


# --- Compilers that fail ------------------------------------------------------------------------


@triton.constexpr_function
def abort():
    import os as system  # a module of the file would be refused, as Triton refuses its functions

    system.write(2, b"LLVM ERROR: no such instruction\n")
    system.abort()


@triton.jit
def aborting_kernel(x_ptr):
    tl.store(x_ptr, abort())


@triton.jit
def endless_kernel(x_ptr):
    for i in tl.static_range(10**9):
        tl.store(x_ptr + i, i)


# --- Mistakes -----------------------------------------------------------------------------------


def plain_function(x):
    return x


@triton.jit
def arange_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * 2)


@triton.jit
def size_at_run_time(x_ptr, n):
    offsets = tl.arange(0, n)
    tl.store(x_ptr + offsets, 1.0)


@triton.jit
def zeros_at_run_time(x_ptr, n):
    tl.store(x_ptr, tl.sum(tl.zeros((n,), tl.float32)))


@triton.jit
def plain_global(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * SCALE)


@triton.jit
def unknown_name(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + offset, BLOCK)  # noqa: F821


@triton.jit
def unlike_shapes(x_ptr, BLOCK: tl.constexpr):
    some, more = tl.arange(0, BLOCK), tl.arange(0, 2 * BLOCK)
    tl.store(x_ptr + some, tl.load(x_ptr + some) + tl.load(x_ptr + more))


@triton.jit
def changing_dtype(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(4):
        total = (total + tl.load(x_ptr + offsets + i * BLOCK)).to(tl.float16)
    tl.store(x_ptr + offsets, total)


@triton.jit
def if_of_a_tile(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if x > 0:
        x = x * 2
    tl.store(x_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def no_pointer(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(offsets))


@triton.jit
def added_pointers(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), x_ptr + y_ptr)


@triton.jit
def picked_element(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr, x[0])


@triton.jit
def calls_torch(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, torch.exp(tl.load(x_ptr + offsets)))


@triton.jit
def calls_python(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, plain_function(offsets))


@triton.jit
def no_such_function(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.tanh(tl.load(x_ptr + offsets)))


@triton.jit
def no_such_method(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr + tl.arange(0, BLOCK)).mean())


@triton.jit
def breaks(x_ptr, n):
    for i in range(n):
        if i > 3:
            break
    tl.store(x_ptr, 1.0)


@triton.jit
def returns_in_loop(x_ptr, n):
    for i in range(n):
        if i > 3:
            return
    tl.store(x_ptr, 1.0)


@triton.jit
def imports(x_ptr):
    import math

    tl.store(x_ptr, math.pi)


@triton.jit
def mistake_in_a_helper(x):
    return x + tl.arange(0, 3)


@triton.jit
def calls_it(x_ptr):
    tl.store(x_ptr + tl.arange(0, 4), mistake_in_a_helper(1.0))
