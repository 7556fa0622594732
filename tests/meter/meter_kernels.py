"""Kernels that several of the meter's test modules launch."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    out = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, out, mask=mask)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    steps = tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        a = tl.load(a_ptr + rows[:, None] * K + (k + steps)[None, :])
        b = tl.load(b_ptr + (k + steps)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@triton.jit
def matmul_block_pointers(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr):
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    a_tile = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (row, 0), (B, B), (1, 0))
    b_tile = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, column), (B, B), (1, 0))
    acc = tl.zeros((B, B), dtype=tl.float32)
    for _ in range(0, K, B):
        a = tl.load(a_tile, boundary_check=(0, 1))
        b = tl.load(b_tile, boundary_check=(0, 1))
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, B))
        b_tile = tl.advance(b_tile, (B, 0))
    c_tile = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (row, column), (B, B), (1, 0))
    tl.store(c_tile, acc, boundary_check=(0, 1))


@triton.jit
def matmul_device_descriptors(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[B, B])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[B, B])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc, input_precision="ieee")
    c_desc.store([row, column], acc)


@triton.jit
def matmul_host_descriptors(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc, input_precision="ieee")
    c_desc.store([row, column], acc)


# Helpers that kernels reach through this module: meter_kernels.scale_and_shift(...).


@triton.jit
def scale(x):
    return x * 2.0


@triton.jit
def scale_and_shift(x):
    return scale(x) + 1.0


@triton.jit
def load_row(x_ptr, offsets):
    return tl.load(x_ptr + offsets)


def use_descriptors_on_this_device() -> None:
    """Give kernels that make descriptors the scratch memory that a GPU needs for them."""
    if torch.cuda.is_available():
        triton.set_allocator(lambda size, align, _stream: torch.empty(size, device="cuda").byte())
