"""Triton launches are counted tile by tile: every number of the issue, and every way to point."""

from collections import namedtuple

import meter_kernels
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from meter_kernels import add, copy, gelu, matmul
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from course_utils.meter import Meter, ledger, triton_tiles
from course_utils.meter.traffic import Launch


def launch(kernel, *args, grid=(1,), **kwargs) -> Launch:
    """Launch a kernel under a meter; return its one launch."""
    with Meter() as meter:
        kernel[grid](*args, **kwargs)
    (counted,) = meter.launches
    return counted


def numbers(n: int, device: str, dtype=torch.float32) -> torch.Tensor:
    return (torch.arange(n) % 7).to(dtype).to(device)


# -- the numbers of the lessons -------------------------------------------------------------------


def test_fused_gelu_makes_two_trips(device):
    n = 100003
    x = torch.randn(n, device=device)
    out = torch.full_like(x, float("nan"))
    with Meter() as meter:
        gelu[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    traffic = meter.traffic
    assert traffic.bytes_read == 400012
    assert traffic.bytes_written == 400012
    assert meter.trips(x) == 2.0
    assert traffic.masked_lanes_read == 349
    assert traffic.masked_lanes_written == 349
    assert traffic.compulsory_read == traffic.compulsory_written == 400012
    assert traffic.reuse == 1.0
    assert traffic.flops == 5 * 98 * 1024  # three products, one sum, one erf; masked lanes compute
    assert meter.findings == []
    torch.testing.assert_close(out, torch.nn.functional.gelu(x))

    (counted,) = meter.launches
    assert (counted.name, counted.kind, counted.grid) == ("gelu", "triton", (98, 1, 1))
    assert list(counted.arguments) == ["x_ptr", "out_ptr"]
    source, target = counted.arguments.values()
    assert (source.bytes_read, source.bytes_written, source.masked_lanes_read) == (400012, 0, 349)
    assert (target.bytes_read, target.bytes_written, target.masked_lanes_written) == (
        0,
        400012,
        349,
    )
    assert source.nbytes == target.nbytes == 400012
    assert target.elements_unwritten == 0


def multiply(kernel, block: int, device: str, size: int = 128) -> Launch:
    torch.manual_seed(0)
    a, b = torch.randn(2, size, size, device=device)
    c = torch.full_like(a, float("nan"))
    grid = (size // block, size // block)
    if kernel is meter_kernels.matmul_host_descriptors:
        a_desc, b_desc, c_desc = (
            TensorDescriptor.from_tensor(t, [block, block]) for t in (a, b, c)
        )
        counted = launch(kernel, a_desc, b_desc, c_desc, size, grid=grid, B=block)
    else:
        counted = launch(kernel, a, b, c, size, size, size, grid=grid, B=block)
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)
    return counted


@pytest.mark.parametrize("block, intensity", [(16, 4.0), (32, 8.0), (64, 16.0)])
def test_intensity_of_a_tiled_matmul_is_a_quarter_of_the_block(device, block, intensity):
    traffic = multiply(matmul, block, device).traffic
    assert traffic.flops == 2 * 128**3
    assert traffic.flops / traffic.bytes_read == intensity
    assert traffic.compulsory_read == 131072
    assert traffic.bytes_read == 2 * 128**3 // block * 4
    assert traffic.bytes_written == traffic.compulsory_written == 65536


WAYS_TO_POINT = {
    "block pointers": meter_kernels.matmul_block_pointers,
    "descriptors made in the kernel": meter_kernels.matmul_device_descriptors,
    "descriptors made on the host": meter_kernels.matmul_host_descriptors,
}


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
@pytest.mark.parametrize("kernel", WAYS_TO_POINT.values(), ids=WAYS_TO_POINT.keys())
@pytest.mark.parametrize("block, intensity", [(16, 4.0), (32, 8.0), (64, 16.0)])
def test_every_way_to_point_at_a_tile_is_counted_alike(device, kernel, block, intensity):
    if kernel is meter_kernels.matmul_block_pointers and not block_pointers_work():
        pytest.skip(f"Triton {triton.__version__} has removed block pointers")
    meter_kernels.use_descriptors_on_this_device()
    counted = multiply(kernel, block, device)
    assert counted.traffic.flops / counted.traffic.bytes_read == intensity
    assert counted.traffic.compulsory_read == 131072
    assert counted.traffic.bytes_written == 65536
    assert counted.findings == ()
    reads = [argument.bytes_read for argument in counted.arguments.values()]
    assert reads == [128**3 // block * 4, 128**3 // block * 4, 0]


def block_pointers_work() -> bool:
    """Whether this Triton has block pointers (3.9 removed them)."""
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return version < (3, 9)


@triton.jit
def ragged_block_pointer(x_ptr, out_ptr, M, N, B: tl.constexpr):
    tile = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (B, B), (1, 0))
    x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
    tl.store(tl.make_block_ptr(out_ptr, (M, N), (N, 1), (0, 0), (B, B), (1, 0)), x,
             boundary_check=(0, 1))  # fmt: skip


@triton.jit
def ragged_descriptor(x_ptr, out_ptr, M, N, B: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    out_desc = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    out_desc.store([0, 0], x_desc.load([0, 0]))


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
@pytest.mark.parametrize(
    "kernel", [ragged_block_pointer, ragged_descriptor], ids=lambda k: k.fn.__name__
)
def test_lanes_beyond_a_ragged_edge_are_masked(device, kernel):
    if kernel is ragged_block_pointer and not block_pointers_work():
        pytest.skip(f"Triton {triton.__version__} has removed block pointers")
    meter_kernels.use_descriptors_on_this_device()
    x = numbers(12, device).view(3, 4)
    out = torch.zeros_like(x)
    counted = launch(kernel, x, out, 3, 4, B=16)
    assert torch.equal(out, x)
    assert (counted.traffic.bytes_read, counted.traffic.bytes_written) == (48, 48)
    assert counted.traffic.masked_lanes_read == counted.traffic.masked_lanes_written == 256 - 12
    assert counted.findings == ()


def test_a_descriptor_sees_the_true_alignment_of_its_tensor(device):
    """A GPU wants descriptors 16-byte aligned; the meter moves tensors, but not their low bits."""
    meter_kernels.use_descriptors_on_this_device()
    memory, out = numbers(257, device), torch.zeros(16, 16, device=device)
    with pytest.raises(InterpreterError, match="16-byte aligned"), Meter():
        ragged_descriptor[(1,)](memory[1:], out, 16, 16, B=16)


# -- autotuned and specialised kernels ------------------------------------------------------------


def config_blocks() -> list[triton.Config]:
    return [triton.Config({"BLOCK": size}) for size in (32, 64, 128)]


@triton.autotune(configs=config_blocks(), key=["n"])
@triton.jit
def autotuned_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.heuristics({"BLOCK": lambda arguments: 64 if arguments["n"] > 50 else 16})
@triton.jit
def heuristic_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.autotune(configs=config_blocks()[1:2], key=["n"])
@triton.heuristics({"TWICE": lambda arguments: arguments["BLOCK"] * 2})
@triton.jit
def both_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.static_assert(TWICE == 2 * BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@pytest.mark.parametrize("kernel", [autotuned_copy, heuristic_copy, both_copy],
                         ids=["several configurations", "heuristics", "both"])  # fmt: skip
def test_autotuned_kernels_are_one_launch(device, kernel):
    x = numbers(100, device)
    out = torch.zeros_like(x)
    for _ in range(2):
        counted = launch(kernel, x, out, 100, grid=lambda meta: (triton.cdiv(100, meta["BLOCK"]),))
        assert torch.equal(out, x)
        assert counted.traffic.bytes == 800
        assert counted.grid[0] * 32 >= 100 / 4


def test_without_a_gpu_the_first_configuration_that_is_left_stands_for_the_search(device):
    if device == "cuda":
        pytest.skip("on a GPU the search is real")
    pruned = triton.autotune(
        configs=config_blocks(),
        key=["n"],
        prune_configs_by={"early_config_prune": lambda configs, *_, **__: configs[1:]},
    )(autotuned_copy.fn)
    x = numbers(100, device)
    grid = lambda meta: (triton.cdiv(100, meta["BLOCK"]),)  # noqa: E731
    assert launch(autotuned_copy, x, torch.zeros_like(x), 100, grid=grid).grid == (4, 1, 1)
    assert autotuned_copy.best_config.kwargs == {"BLOCK": 32}
    assert launch(pruned, x, torch.zeros_like(x), 100, grid=grid).grid == (2, 1, 1)


def test_tensors_of_the_cpu_are_not_searched_with_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kernel = triton.autotune(configs=config_blocks(), key=["n"])(autotuned_copy.fn)
    x, out = torch.arange(100.0), torch.zeros(100)
    counted = launch(kernel, x, out, 100, grid=lambda meta: (triton.cdiv(100, meta["BLOCK"]),))
    assert torch.equal(out, x)
    assert counted.grid == (4, 1, 1)


@triton.jit
def add_to(out_ptr, x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.atomic_add(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def test_what_a_search_does_is_no_traffic(device, monkeypatch, needs_unmetered_kernels):
    trials = []

    def time_once(call, quantiles):
        call()
        trials.append(1)
        return [float(len(trials))] * 3  # the first configuration is the fastest

    monkeypatch.setattr(triton_tiles, "_can_time", lambda *_: True)
    kernel = triton.autotune(
        configs=config_blocks(), key=["n"], reset_to_zero=["out_ptr"], do_bench=time_once
    )(add_to)
    x, out = numbers(100, device), torch.zeros(100, device=device)
    reset = kernel.pre_hook
    counted = launch(kernel, out, x, 100, grid=lambda meta: (triton.cdiv(100, meta["BLOCK"]),))
    assert len(trials) == 3
    assert counted.grid == (4, 1, 1)
    assert counted.traffic.bytes_read == 800  # x, and what it is added to: once
    assert torch.equal(out, x)
    assert kernel.pre_hook is reset


def test_outputs_to_reset_are_zeroed_before_the_first_run(device):
    kernel = triton.autotune(configs=config_blocks(), key=["n"], reset_to_zero=["out_ptr"])(add_to)
    x, out = numbers(100, device), torch.full((100,), 7.0, device=device)
    grid = lambda meta: (triton.cdiv(100, meta["BLOCK"]),)  # noqa: E731
    launch(kernel, out, x, 100, grid=grid)
    assert torch.equal(out, x)
    launch(kernel, out, x, 100, grid=grid)
    assert torch.equal(out, 2 * x)


# -- helpers --------------------------------------------------------------------------------------


@triton.jit
def inner_helper(x):
    return x * 3.0


@triton.jit
def outer_helper(x):
    return inner_helper(x) + 1.0


@triton.jit
def with_helper_of_helper(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, outer_helper(tl.load(x_ptr + i)))


@triton.jit
def with_module_helper(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, meter_kernels.scale_and_shift(tl.load(x_ptr + i)))


@triton.jit
def with_function_argument(x_ptr, out_ptr, B: tl.constexpr, FUNCTION: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, FUNCTION(tl.load(x_ptr + i)))


@pytest.mark.parametrize(
    "kernel, more, factor",
    [
        (with_helper_of_helper, {}, 3),
        (with_module_helper, {}, 2),
        (with_function_argument, {"FUNCTION": outer_helper}, 3),
    ],
    ids=["helper of a helper", "helper in a module", "helper as an argument"],
)
def test_helpers_are_counted_with_their_kernel(device, kernel, more, factor):
    x = numbers(64, device)
    out = torch.zeros_like(x)
    counted = launch(kernel, x, out, B=64, **more)
    assert torch.equal(out, x * factor + 1)
    assert (counted.traffic.bytes_read, counted.traffic.bytes_written) == (256, 256)
    assert counted.traffic.flops == 128


@triton.jit
def with_library(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + 0, tl.sum(x, axis=0))
    tl.store(out_ptr + 1, x.sum(axis=0))
    tl.store(out_ptr + 2, tl.max(x, axis=0))
    tl.store(out_ptr + 3, tl.cdiv(n, 2).to(tl.float32))
    tl.store(out_ptr + 4, tl.zeros((1,), tl.float32).sum(0) + tl.argmax(x, axis=0))


def test_functions_and_methods_of_the_language_work(device):
    x = numbers(64, device)
    out = torch.zeros(5, device=device)
    counted = launch(with_library, x, out, 7, B=64)
    assert out.tolist() == [x.sum().item(), x.sum().item(), 6.0, 4.0, 6.0]
    assert counted.traffic.flops == 4 * 64 + 1 + 1  # a reduction is one per input element


# -- atomics --------------------------------------------------------------------------------------


@triton.jit
def histogram(x_ptr, bins_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.atomic_add(bins_ptr + tl.load(x_ptr + offsets, mask=mask, other=0), 1, mask=mask)


@triton.jit
def running_maximum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out_ptr, tl.max(tl.load(x_ptr + offsets), axis=0))


@triton.jit
def take_the_lock(lock_ptr, order_ptr):
    tl.store(order_ptr + tl.program_id(0), tl.atomic_cas(lock_ptr, 0, 1))


def test_atomic_add_reads_and_writes_without_conflict(device):
    x = torch.arange(100, device=device, dtype=torch.int32) % 8
    bins = torch.zeros(8, device=device, dtype=torch.int32)
    counted = launch(histogram, x, bins, 100, grid=(4,), BLOCK=32)
    assert bins.tolist() == [13, 13, 13, 13, 12, 12, 12, 12]
    assert counted.arguments["bins_ptr"].bytes_read == 400
    assert counted.arguments["bins_ptr"].bytes_written == 400
    assert counted.arguments["bins_ptr"].compulsory_read == 32
    assert counted.arguments["bins_ptr"].compulsory_written == 32
    assert counted.arguments["bins_ptr"].masked_lanes_read == 28
    assert counted.arguments["bins_ptr"].masked_lanes_written == 28
    assert counted.traffic.bytes_read == 800
    assert counted.findings == ()


def test_atomic_max_reads_and_writes_without_conflict(device):
    x = torch.arange(64, device=device, dtype=torch.int32)
    out = torch.zeros(1, device=device, dtype=torch.int32)
    counted = launch(running_maximum, x, out, grid=(4,), BLOCK=16)
    assert out.item() == 63
    assert counted.arguments["out_ptr"].bytes_read == 16
    assert counted.arguments["out_ptr"].bytes_written == 16
    assert counted.findings == ()


def test_compare_and_swap_reads_and_writes_without_conflict(device):
    lock = torch.zeros(1, device=device, dtype=torch.int32)
    order = torch.full((4,), -1, device=device, dtype=torch.int32)
    counted = launch(take_the_lock, lock, order, grid=(4,))
    assert sorted(order.tolist()) == [0, 1, 1, 1]
    assert counted.arguments["lock_ptr"].bytes_read == 16
    assert counted.arguments["lock_ptr"].bytes_written == 16
    assert counted.findings == ()


# -- arguments ------------------------------------------------------------------------------------


Pair = namedtuple("Pair", "left right")


@triton.jit
def add_tuple(pair, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(pair[0] + i) + tl.load(pair[1] + i))


@triton.jit
def add_named_tuple(pair, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(pair.left + i) + tl.load(pair.right + i))


@pytest.mark.parametrize(
    "kernel, make, names",
    [
        (add_tuple, lambda x, y: (x, y), ["pair[0]", "pair[1]", "out_ptr"]),
        (add_named_tuple, Pair, ["pair.left", "pair.right", "out_ptr"]),
    ],
    ids=["tuple", "named tuple"],
)
def test_tensors_inside_tuples_are_arguments_of_their_own(device, kernel, make, names):
    x, y = numbers(64, device), numbers(64, device) + 1
    out = torch.zeros_like(x)
    counted = launch(kernel, make(x, y), out, B=64)
    assert torch.equal(out, x + y)
    assert list(counted.arguments) == names
    assert [a.bytes for a in counted.arguments.values()] == [256, 256, 256]


def test_one_tensor_given_twice_has_two_counts_and_one_memory(device):
    x, out = numbers(100, device), torch.zeros(100, device=device)
    counted = launch(add, x, x, out, 100, grid=(4,), BLOCK=32)
    assert torch.equal(out, 2 * x)
    assert counted.arguments["x_ptr"].bytes_read == counted.arguments["y_ptr"].bytes_read == 400
    assert counted.traffic.bytes_read == 800
    assert counted.traffic.compulsory_read == 400  # the same addresses


@triton.jit
def halves(first_ptr, second_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(first_ptr + i))
    tl.store(out_ptr + B + i, tl.load(second_ptr + B + i))


def test_arguments_that_share_memory_keep_their_own_compulsory_bytes(device):
    x, out = numbers(64, device), torch.zeros(64, device=device)
    counted = launch(halves, x, x, out, B=32)
    for name in ("first_ptr", "second_ptr"):
        assert counted.arguments[name].bytes_read == 128
        assert counted.arguments[name].compulsory_read == 128
    assert counted.traffic.compulsory_read == 256


def test_an_update_in_place_is_one_argument_read_and_one_written(device):
    x = numbers(100, device)
    expected = 2 * x
    counted = launch(add, x, x, x, 100, grid=(4,), BLOCK=32)
    assert torch.equal(x, expected)
    assert counted.arguments["out_ptr"].bytes_read == 0
    assert counted.arguments["out_ptr"].compulsory_read == 0
    assert counted.arguments["out_ptr"].bytes_written == 400
    assert counted.traffic.compulsory_bytes == 800
    assert counted.findings == ()


def test_keyword_arguments(device):
    x, out = numbers(100, device), torch.zeros(100, device=device)
    counted = launch(copy, n=100, out_ptr=out, x_ptr=x, grid=(4,), BLOCK=32, num_warps=4)
    assert torch.equal(out, x)
    assert counted.arguments["x_ptr"].bytes_read == 400


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_counts_its_own_width(device, dtype):
    x = numbers(100, device, dtype)
    out = torch.zeros_like(x)
    counted = launch(copy, x, out, 100, grid=(4,), BLOCK=32)
    assert torch.equal(out, x)
    assert counted.traffic.bytes_read == counted.traffic.compulsory_read == x.nbytes
    assert counted.traffic.bytes_written == x.nbytes
    assert counted.traffic.masked_lanes_read == 28
    assert counted.findings == ()


@triton.jit
def write_halves(first_ptr, second_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(first_ptr + i, 1.0)
    tl.store(second_ptr + B + i, 2.0)


def test_what_one_argument_writes_is_not_unwritten_through_another(device):
    x = torch.zeros(64, device=device)
    counted = launch(write_halves, x, x, B=32)
    for argument in counted.arguments.values():
        assert argument.elements_unwritten == 0
        assert argument.compulsory_written == 128
    assert counted.traffic.compulsory_written == 256
    assert counted.findings == ()


@triton.jit
def halve_width(wide_ptr, narrow_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(narrow_ptr + 2 * i, tl.load(wide_ptr + i).to(tl.int32))


def test_one_memory_seen_as_eight_and_as_four_bytes(device):
    words = torch.arange(16, device=device, dtype=torch.int64)
    counted = launch(halve_width, words, words.view(torch.int32), B=16)
    assert counted.arguments["wide_ptr"].compulsory_read == 128
    assert counted.arguments["narrow_ptr"].bytes_written == 64
    assert counted.arguments["narrow_ptr"].compulsory_written == 64
    assert counted.arguments["narrow_ptr"].elements_unwritten == 16
    assert counted.traffic.compulsory_read == 128
    assert counted.traffic.compulsory_written == 64


@triton.jit
def read_as_bytes(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr.to(tl.pointer_type(tl.uint8)) + i))


def test_a_pointer_cast_to_bytes(device):
    x = numbers(4, device)
    out = torch.zeros(16, device=device, dtype=torch.uint8)
    counted = launch(read_as_bytes, x, out, B=8)
    assert torch.equal(out[:8], x.view(torch.uint8)[:8])
    assert counted.arguments["x_ptr"].bytes_read == 8
    assert counted.arguments["x_ptr"].compulsory_read == 8
    assert counted.arguments["out_ptr"].elements_unwritten == 8


# -- pointers and grids ---------------------------------------------------------------------------


@triton.jit
def through_integers(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    address = x_ptr.to(tl.int64) + i * 4
    tl.store(out_ptr + i, tl.load(address.to(tl.pointer_type(tl.float32))))


@triton.jit
def from_either(x_ptr, y_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    pointers = tl.where(i % 2 == 0, x_ptr + i, y_ptr + i)
    tl.store(out_ptr + i, tl.load(pointers, mask=i < n), mask=i < n)


@triton.jit
def from_table(table_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    pointer = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + i, tl.load(pointer + i))


@triton.jit
def scalar_load(scale_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(scale_ptr) + 0.0 * i)


def test_pointer_arithmetic_through_integers(device):
    x, out = numbers(64, device), torch.zeros(64, device=device)
    counted = launch(through_integers, x, out, B=64)
    assert torch.equal(out, x)
    assert counted.arguments["x_ptr"].bytes_read == 256
    assert counted.findings == ()


def test_one_tile_of_pointers_into_two_tensors(device):
    x, y = numbers(16, device), -numbers(16, device)
    out = torch.zeros(10, device=device)
    counted = launch(from_either, x, y, out, 10, B=16)
    assert out.tolist() == [0, -1, 2, -3, 4, -5, 6, 0, 1, -2]
    assert counted.arguments["x_ptr"].bytes_read == counted.arguments["y_ptr"].bytes_read == 20
    assert counted.arguments["x_ptr"].masked_lanes_read == 3
    assert counted.traffic.masked_lanes_read == 6
    assert counted.findings == ()


def test_pointers_loaded_from_memory_are_in_the_total_only(device, needs_interpreter):
    x, out = numbers(64, "cpu"), torch.zeros(64)
    counted = launch(from_table, torch.tensor([x.data_ptr()]), out, B=64)
    assert torch.equal(out, x)
    assert counted.traffic.bytes_read == 8 + 256
    assert counted.traffic.compulsory_read == 8 + 256
    assert sum(argument.bytes_read for argument in counted.arguments.values()) == 8
    assert "pointers that were loaded from memory" in counted.notes[0]


def test_a_pointer_loaded_from_memory_is_not_followed_from_a_copy():
    """The tensors of a GPU are copied to the host; what they point at is not."""
    position = ledger.Position((0, 0, 0), (1, 1, 1))
    line = ledger.SourceLine("from_table", 3, "tl.load(pointer + i)")
    book = ledger.Ledger("from_table", lambda: position, lambda: line, follow_foreign=False)
    address = np.array([1 << 40], np.uint64)
    with pytest.raises(ValueError, match="from_table follows a pointer that it loaded from memory"):
        book.access(address, np.array([True]), 4, True, False)
    _, allowed = book.access(address, np.array([False]), 4, True, False)
    assert not allowed.any()


def test_a_null_pointer_is_reported_not_followed(device):
    out = torch.ones(64, device=device)
    counted = launch(from_table, torch.zeros(1, dtype=torch.int64, device=device), out, B=64)
    assert out.tolist() == [0.0] * 64
    (finding,) = counted.findings
    assert finding.kind == "outside"
    assert finding.argument == ""
    assert finding.distance is None
    assert finding.count == 64
    assert "reads an address that is in no tensor" in finding.message


def test_a_scalar_load_is_one_lane(device):
    scale, out = torch.full((1,), 3.0, device=device), torch.zeros(64, device=device)
    counted = launch(scalar_load, scale, out, B=64)
    assert out.tolist() == [3.0] * 64
    assert counted.arguments["scale_ptr"].bytes_read == 4
    assert counted.traffic.masked_lanes_read == 0


@triton.jit
def fill_with_ids(out_ptr, N1, N2):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out_ptr + (x * N1 + y) * N2 + z, x * 100 + y * 10 + z)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 5)])
def test_grids_of_one_two_and_three_dimensions(device, shape):
    full = (*shape, 1, 1)[:3]
    out = torch.full(full, -1, device=device, dtype=torch.int32)
    counted = launch(fill_with_ids, out, full[1], full[2], grid=shape)
    assert counted.grid == full
    assert out[-1, -1, -1].item() == sum(
        (n - 1) * f for n, f in zip(full, (100, 10, 1), strict=True)
    )
    assert counted.traffic.bytes_written == counted.traffic.compulsory_written == out.nbytes
    assert counted.findings == ()


@pytest.mark.parametrize(
    "grid",
    [[4], torch.Size([4]), lambda meta: [triton.cdiv(meta["n"], meta["BLOCK"])]],
    ids=["list", "size", "function of an argument"],
)
def test_a_grid_is_any_sequence_or_function(device, grid):
    x, out = numbers(100, device), torch.zeros(100, device=device)
    assert launch(copy, x, out, 100, grid=grid, BLOCK=32).grid == (4, 1, 1)
    assert torch.equal(out, x)


def test_an_empty_grid_is_no_launch(device, needs_interpreter):
    x, out = numbers(8, device), torch.zeros(8, device=device)
    with Meter() as meter:
        copy[(0,)](x, out, 8, BLOCK=8)
    assert meter.launches == []


def test_a_kernel_that_moves_nothing_is_a_launch_all_the_same(device):
    empty = torch.zeros(0, device=device)
    counted = launch(copy, empty, empty, 0, BLOCK=8)
    assert counted.traffic.bytes == 0
    assert counted.traffic.masked_lanes_read == 8
    assert counted.findings == ()


def test_of_a_large_storage_only_the_view_is_mapped(device):
    seen = []
    view = torch.zeros(2**20, device=device)[1000:1064]
    original = ledger.Ledger.launch

    def spy(self, grid):
        seen.extend(memory.reader.size for memory in self.memories.values())
        return original(self, grid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger.Ledger, "launch", spy)
        counted = launch(copy, view, torch.zeros(64, device=device), 64, BLOCK=64)
    assert counted.traffic.compulsory_read == 256
    assert seen == [64, 64]  # cells that are kept: the view's, not the storage's


# -- FLOPs ----------------------------------------------------------------------------------------


@triton.jit
def arithmetic(x_ptr, out_ptr, B: tl.constexpr, WHAT: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    if WHAT == "negate":
        y = -x
    elif WHAT == "fma":
        y = tl.fma(x, 2.0, x)
    elif WHAT == "divide":
        y = x / 3.0
    elif WHAT == "exact divide":
        y = tl.div_rn(x, x + 1.0)
    elif WHAT == "exp":
        y = tl.exp(x)
    elif WHAT == "maximum":
        y = tl.maximum(x, 1.0)
    elif WHAT == "clamp":
        y = tl.clamp(x, 1.0, 2.0)
    elif WHAT == "absolute":
        y = tl.abs(x)
    elif WHAT == "root":
        y = tl.sqrt(x) + tl.rsqrt(x + 1.0)
    elif WHAT == "select":
        y = tl.where(x > 1.0, x, 0.0)
    elif WHAT == "cast":
        y = x.to(tl.float16).to(tl.float32)
    elif WHAT == "integer sum":
        y = tl.sum(i, axis=0).to(tl.float32)
    elif WHAT == "integers":
        y = (i * 3 + 1).to(tl.float32)
    elif WHAT == "softmax":
        y = tl.softmax(x)
    elif WHAT == "cumulative sum":
        y = tl.cumsum(x, axis=0)
    elif WHAT == "minimum":
        y = tl.minimum(tl.min(x, axis=0), x)
    else:
        y = x
    tl.store(out_ptr + i, y)


@pytest.mark.parametrize(
    "what, per_element",
    {
        "nothing": 0, "negate": 1, "fma": 2, "divide": 1, "exact divide": 2, "exp": 1, "maximum": 1,
        "clamp": 1, "absolute": 1, "root": 4, "select": 0, "cast": 0, "integers": 0,
        "integer sum": 0, "softmax": 5, "cumulative sum": 1, "minimum": 2,
    }.items(),
)  # fmt: skip
def test_flops_of_a_tile_follow_the_convention(device, what, per_element):
    x = numbers(64, device)
    counted = launch(arithmetic, x, torch.zeros_like(x), B=64, WHAT=what)
    assert counted.traffic.flops == per_element * 64


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def own_combine(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.associative_scan(x, 0, larger) + tl.reduce(x, 0, larger))


def test_reductions_with_a_combine_function_of_ones_own(device):
    x, out = numbers(16, device), torch.zeros(16, device=device)
    counted = launch(own_combine, x, out, B=16)
    assert torch.equal(out, torch.cummax(x, 0).values + 6)
    assert counted.traffic.flops == 16 + 16 + 16  # scan, reduction, and the sum of the two


@triton.jit
def small_dot(a_ptr, b_ptr, c_ptr, B: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, B), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * B + i[None, :])
    tl.store(c_ptr + i[:, None] * B + i[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_dot_of_rectangles_is_two_per_multiplication(device, dtype):
    a, b = (
        numbers(16 * 32, device, dtype).view(16, 32),
        numbers(32 * 16, device, dtype).view(32, 16),
    )
    c = torch.zeros(16, 16, device=device)
    counted = launch(small_dot, a, b, c, B=16, K=32)
    assert torch.equal(c, (a.float() @ b.float()))
    assert counted.traffic.flops == 2 * 16 * 16 * 32
    assert counted.traffic.bytes_read == a.nbytes + b.nbytes


@triton.jit
def batched_dot(a_ptr, c_ptr, B: tl.constexpr, N: tl.constexpr):
    n, i = tl.arange(0, N), tl.arange(0, B)
    tile = n[:, None, None] * B * B + i[None, :, None] * B + i[None, None, :]
    a = tl.load(a_ptr + tile)
    tl.store(c_ptr + tile, tl.dot(a, a))


def test_a_batched_dot(device, needs_interpreter):
    a = numbers(2 * 16 * 16, device).view(2, 16, 16)
    c = torch.zeros_like(a)
    counted = launch(batched_dot, a, c, B=16, N=2)
    assert torch.equal(c, a @ a)
    assert counted.traffic.flops == 2 * 2 * 16**3


@triton.jit
def bfloat16_arithmetic(x_ptr, out_ptr, B: tl.constexpr, WHAT: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    if WHAT == "add":
        y = x + x
    elif WHAT == "constant":
        y = x * 0.3
    elif WHAT == "negate":
        y = -x
    elif WHAT == "compare":
        y = tl.where(x < -1.0, x * 0.0, x)
    elif WHAT == "maximum":
        y = tl.maximum(x, -x)
    elif WHAT == "fma":
        y = tl.fma(x, x, x)
    elif WHAT == "round":
        y = (x.to(tl.float32) * 1.00390625 + 0.001953125).to(tl.bfloat16)
    elif WHAT == "from integer":
        y = (i * 3).to(tl.bfloat16)
    elif WHAT == "through integer":
        y = x.to(tl.int32).to(tl.bfloat16)
    else:
        y = tl.cumsum(x, axis=0).to(tl.bfloat16)
    tl.store(out_ptr + i, y)


@pytest.mark.parametrize(
    "what, expected",
    {
        "add": lambda x: x + x,
        "constant": lambda x: x * torch.tensor(0.3, dtype=x.dtype, device=x.device),
        "negate": lambda x: -x,
        "compare": lambda x: torch.where(x < -1, x * 0, x),
        "maximum": lambda x: x.abs(),
        "fma": lambda x: (x.double() * x.double() + x.double()).to(x.dtype),
        "round": lambda x: (x.float() * 1.00390625 + 0.001953125).to(x.dtype),
        "from integer": lambda x: (torch.arange(16, device=x.device) * 3).to(x.dtype),
        "through integer": lambda x: x.int().to(x.dtype),
        "cumulative sum": lambda x: x.cumsum(0),
    }.items(),
)
def test_bfloat16_is_computed_not_its_bits(device, what, expected):
    """Triton's interpreter adds bfloat16 bits as integers; the meter must not change results."""
    x = torch.linspace(-3, 3, 16, device=device).to(torch.bfloat16)
    out = torch.full_like(x, float("nan"))
    counted = launch(bfloat16_arithmetic, x, out, B=16, WHAT=what)
    if what == "cumulative sum":
        torch.testing.assert_close(out, expected(x), rtol=0.02, atol=0.05)
    else:
        assert torch.equal(out, expected(x))
    assert counted.traffic.bytes_written == 32


# -- the language, all of it that a kernel of the course might use --------------------------------


@triton.jit
def many_features(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.debug_barrier()
    tl.static_assert(B == 128)
    x = tl.load(
        x_ptr + i, mask=i < n, other=-1.0, cache_modifier=".ca", eviction_policy="evict_last",
        volatile=True,
    )  # fmt: skip
    for _ in tl.static_range(2):
        tl.store(out_ptr + i, x, mask=i < n)
    k = 0
    while k < n:
        k += 50
    for j in range(0, k, 50):
        tl.store(out_ptr + j, tl.load(x_ptr + j) + 1.0)
    for j in tl.range(0, n, 50):
        if j > 0:
            tl.store(out_ptr + j + 1, tl.load(x_ptr + j + 1) + 2.0)
    tl.device_assert(n > 0)


def test_loops_modifiers_and_barriers(device):
    x, out = numbers(100, device), torch.zeros(100, device=device)
    counted = launch(many_features, x, out, 100, B=128)
    expected = x.clone()
    expected[0] += 1
    expected[50] += 1
    expected[51] += 2
    assert torch.equal(out, expected)
    assert counted.traffic.bytes_read == 400 + 3 * 4
    assert counted.traffic.bytes_written == 800 + 3 * 4
    assert counted.traffic.masked_lanes_read == 28


@triton.jit
def printing(x_ptr):
    tl.device_print("value", tl.load(x_ptr))


def test_printing_shows_the_value(device, capsys, needs_interpreter):
    launch(printing, torch.full((1,), 42.0))
    assert "42" in capsys.readouterr().out


@triton.jit
def sort_tile(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.sort(tl.load(x_ptr + i)))


def test_sorting_a_tile(device):
    x, out = numbers(16, device).flip(0).contiguous(), torch.zeros(16, device=device)
    counted = launch(sort_tile, x, out, B=16)
    assert torch.equal(out, x.sort().values)
    assert counted.traffic.bytes == 128


# -- what cannot be metered says so ---------------------------------------------------------------


def test_a_meta_tensor_has_nothing_to_load(device):
    x = torch.ones(8, device="meta")
    for arguments in ((x, x, 8), (torch.ones(8, device=device), x, 8)):
        with pytest.raises(ValueError, match="copy was launched on a `meta` tensor"), Meter():
            copy[(1,)](*arguments, BLOCK=8)
    with pytest.raises(ValueError, match="`meta` tensor"), Meter():
        add_tuple[(1,)]((x, x), torch.ones(8, device=device), B=8)


# -- results --------------------------------------------------------------------------------------


def test_results_inside_equal_results_outside(device, needs_unmetered_kernels):
    x = torch.randn(1000, device=device)
    inside, outside = torch.empty_like(x), torch.empty_like(x)
    gelu[(4,)](x, outside, 1000, BLOCK=256)
    launch(gelu, x, inside, 1000, grid=(4,), BLOCK=256)
    if device == "cpu":
        assert torch.equal(inside, outside)  # bit for bit
    else:
        torch.testing.assert_close(inside, outside)  # numpy's erf is not the GPU's
    a = numbers(64 * 64, device).view(64, 64)
    inside, outside = torch.empty_like(a), torch.empty_like(a)
    matmul[(4, 4)](a, a, outside, 64, 64, 64, B=16)
    launch(matmul, a, a, inside, 64, 64, 64, grid=(4, 4), B=16)
    assert torch.equal(inside, outside)


def test_eager_ops_and_kernels_share_a_meter_in_order(device):
    x = numbers(64, device)
    with Meter() as meter:
        y = x * 2
        copy[(1,)](y, torch.empty_like(y), 64, BLOCK=64)
        y.sum()
    assert [(counted.name, counted.kind) for counted in meter.launches] == [
        ("mul", "torch"), ("copy", "triton"), ("sum", "torch"),
    ]  # fmt: skip
    assert meter.traffic.bytes == 2 * 256 + 2 * 256 + 256 + 4


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        add[(1,)](x, x, out, x.numel(), BLOCK=64)
        return out

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        out = torch.empty_like(gradient)
        add[(1,)](gradient, gradient, out, gradient.numel(), BLOCK=64)
        return out


def test_a_kernel_launched_by_backward_is_counted(device):
    x = numbers(64, device).requires_grad_()
    with Meter() as meter:
        Doubled.apply(x).backward(torch.ones(64, device=device))
    assert [c.name for c in meter.launches if c.kind == "triton"] == ["add", "add"]
    assert torch.equal(x.grad, torch.full((64,), 2.0, device=device))


@torch.library.custom_op("course_tests::triton_copy", mutates_args=())
def triton_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    copy[(1,)](x, out, x.numel(), BLOCK=64)
    return out


def test_a_kernel_inside_a_custom_op_is_counted(device):
    x = numbers(64, device)
    with Meter() as meter:
        triton_copy(x)
    assert [(c.name, c.kind, c.traffic.bytes) for c in meter.launches] == [("copy", "triton", 512)]
