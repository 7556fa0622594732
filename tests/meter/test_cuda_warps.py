"""CUDA launches are counted warp by warp: each number here was worked out by hand."""

import math
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from numba import cuda, float32, float64, int32

from course_utils import models
from course_utils.meter import Meter, cuda_warps
from course_utils.meter.traffic import Launch

ROOT = Path(__file__).resolve().parents[2]
# What launches kernels, as it is before any meter has been opened here.
LAUNCHERS = {cuda_warps.FakeCUDAKernel, type(cuda.jit(lambda: None))}
BEFORE = [(launcher, dict(vars(launcher))) for launcher in LAUNCHERS]

# Numba warns of small grids; setup(), which turns that off, is not called for compiled kernels.
numba.core.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def launch(kernel, grid, block, *args, shared: int = 0) -> Launch:
    """Launch a kernel under a meter; return its one launch."""
    with Meter() as meter:
        kernel[grid, block, 0, shared](*args)
    (counted,) = meter.launches
    return counted


def kinds(counted: Launch) -> list[str]:
    return [finding.kind for finding in counted.findings]


# -- global memory --------------------------------------------------------------------------------


@cuda.jit
def gather(x, index, out):
    i = cuda.grid(1)
    if index[i] >= 0:
        out[i] = x[index[i]]


@cuda.jit
def copy(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


@cuda.jit
def column(x, out):
    i = cuda.grid(1)
    out[i] = x[i, 0]


LANES = np.arange(32)


@pytest.mark.parametrize(
    ("index", "dtype", "sectors", "useful"),
    [
        (LANES, np.float32, 4, 1.0),
        (2 * LANES, np.float32, 8, 0.5),
        (32 * LANES, np.float32, 32, 1 / 8),
        (LANES + 1, np.float32, 5, 0.8),
        (LANES, np.float64, 8, 1.0),
        (LANES, np.float16, 2, 1.0),
        (LANES, np.complex128, 16, 1.0),
        (LANES * 0, np.float32, 1, 1 / 8),
        (31 - LANES, np.float32, 4, 1.0),
        (np.where(LANES % 2, LANES, -1), np.float32, 4, 0.5),
    ],
    ids="1 2 32 offset double half complex broadcast reversed odd-lanes".split(),
)
def test_sectors_of_one_warp(index, dtype, sectors, useful):
    x, out = np.arange(1024).astype(dtype), np.zeros(32, dtype)
    counted = launch(gather, 1, 32, x, index, out)
    loads = counted.warps.global_memory["x"].loads
    active = index >= 0
    assert (loads.requests, loads.sectors) == (1, sectors)
    assert loads.sectors_per_request == sectors
    assert loads.useful_share == pytest.approx(useful)
    assert loads.bytes_requested == active.sum() * x.itemsize
    assert counted.arguments["x"].bytes_read == active.sum() * x.itemsize
    np.testing.assert_array_equal(out[active], x[index[active]])


def test_a_column_walk_touches_a_sector_for_each_row():
    x, out = np.arange(1024, dtype=np.float32).reshape(32, 32), np.zeros(32, np.float32)
    warps = launch(column, 1, 32, x, out).warps
    assert warps.global_memory["x"].loads.sectors_per_request == 32
    assert warps.global_memory["x"].loads.useful_share == 1 / 8
    assert warps.global_memory["out"].stores.sectors_per_request == 4
    np.testing.assert_array_equal(out, x[:, 0])


def test_a_copy_in_all_its_numbers(device):
    x, out = torch.arange(100.0, device=device), torch.zeros(100, device=device)
    counted = launch(copy, 2, 64, x, out)
    assert torch.equal(out, x)
    assert (counted.name, counted.kind, counted.grid) == ("copy", "numba", (2, 1, 1))
    assert (counted.traffic.bytes_read, counted.traffic.bytes_written) == (400, 400)
    assert counted.trips(x) == 2.0 and counted.traffic.reuse == 1.0
    assert counted.traffic.flops == 0
    loads = counted.warps.global_memory["x"].loads
    # The fourth warp has 4 of its lanes inside: 16 bytes, one sector.
    assert (loads.requests, loads.sectors, loads.bytes_used) == (4, 13, 400)
    (branch,) = counted.warps.branches
    assert (branch.function, branch.line, branch.source) == ("copy", 3, "if i < x.size:")
    assert (branch.executions, branch.divergent) == (4, 1)
    assert counted.warps.divergent_branches == 1
    assert counted.warps.block == (64, 1, 1) and counted.warps.barriers == 0
    assert counted.findings == () and counted.notes == ()


def test_a_tensor_keeps_its_place_in_its_storage_and_an_array_gets_its_own(device):
    storage = torch.arange(40.0, device=device)
    warps = launch(copy, 1, 32, storage[1:33], torch.zeros(32, device=device)).warps
    assert warps.global_memory["x"].loads.sectors == 5
    warps = launch(copy, 1, 32, np.arange(40.0, dtype="f")[1:33], np.zeros(32, "f")).warps
    assert warps.global_memory["x"].loads.sectors == 4


def test_views_of_one_storage_stay_views(device):
    storage = torch.zeros(64, device=device)
    storage[:32] = torch.arange(32.0, device=device)
    counted = launch(copy, 1, 32, storage[:32], storage[32:])
    assert storage[32:].tolist() == list(range(32))
    assert counted.traffic.compulsory_bytes == 256
    transposed = torch.arange(12.0, device=device).reshape(3, 4).t()
    out = torch.zeros(4, device=device)
    launch(column, 1, 4, transposed, out)
    assert out.tolist() == [0, 1, 2, 3]


# -- matmul ---------------------------------------------------------------------------------------


@cuda.jit
def naive(a, b, c):
    j, i = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        acc = float32(0)
        for k in range(a.shape[1]):
            acc += a[i, k] * b[k, j]
        c[i, j] = acc


def tiled(size: int, after_loads: bool = True, after_use: bool = True):
    """Make the tiled matmul, with or without its barriers."""

    @cuda.jit
    def tiled_matmul(a, b, c):
        tile_a = cuda.shared.array((size, size), float32)
        tile_b = cuda.shared.array((size, size), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        j, i = cuda.grid(2)
        acc = float32(0)
        for k0 in range(0, a.shape[1], size):
            tile_a[ty, tx] = a[i, k0 + tx]
            tile_b[ty, tx] = b[k0 + ty, j]
            if after_loads:
                cuda.syncthreads()
            for k in range(size):
                acc += tile_a[ty, k] * tile_b[k, tx]
            if after_use:
                cuda.syncthreads()
        c[i, j] = acc

    return tiled_matmul


def matrices(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    a, b = generator.integers(-4, 5, (2, n, n)).astype(np.float32)
    return a, b, np.full((n, n), np.nan, np.float32)


def test_naive_matmul_loads_2_n_cubed_elements():
    n = 12
    a, b, c = matrices(n)
    counted = launch(naive, (2, 2), (8, 8), a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert counted.traffic.bytes_read == 2 * n**3 * 4
    assert counted.traffic.flops == 2 * n**3
    assert counted.traffic.flops / counted.traffic.bytes_read == 1 / 4
    assert counted.traffic.compulsory_read == 2 * n * n * 4
    assert counted.findings == ()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_shared_tile_divides_the_loads_by_its_side(size):
    n = 16
    a, b, c = matrices(n)
    counted = launch(tiled(size), (n // size, n // size), (size, size), a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert counted.traffic.bytes_read == 2 * n**3 * 4 // size
    assert counted.traffic.flops == 2 * n**3
    assert counted.traffic.flops / counted.traffic.bytes_read == size / 4  # I = B / 4
    warps = counted.warps
    assert warps.barriers == 2 * (n // size)
    assert warps.shared_bytes == 2 * size * size * 4
    assert warps.shared_memory["tile_a"].loads.bytes_requested == n**3 * 4
    assert warps.shared_memory["tile_a"].stores.bytes_requested == n**3 // size * 4
    assert warps.divergent_branches == 0
    assert counted.findings == ()


def test_a_missing_barrier_is_a_race_with_both_lines():
    a, b, c = matrices(8)
    counted = launch(tiled(4, after_loads=False), (2, 2), (4, 4), a, b, c)
    assert not np.array_equal(c, a @ b)
    assert kinds(counted) == ["race", "race"]
    first, second = counted.findings
    assert (first.argument, first.line, first.other_line) == ("tile_a", 8, 13)
    assert first.source == "tile_a[ty, tx] = a[i, k0 + tx]"
    assert first.other_source == "acc += tile_a[ty, k] * tile_b[k, tx]"
    assert (second.argument, second.line, second.other_line) == ("tile_b", 9, 13)
    assert first.program == (0, 0, 0) and first.lane == (1, 0, 0)
    assert str(first).startswith(
        "tiled_matmul, line 8 `tile_a[ty, tx] = a[i, k0 + tx]`: thread (1, 0) of block (0, 0) "
        "stores to tile_a[0, 1], and thread (0, 0) reads it in line 13 "
        "`acc += tile_a[ty, k] * tile_b[k, tx]`, with no barrier between them ("
    )


def test_a_barrier_missing_after_the_use_is_a_race_too():
    a, b, c = matrices(8)
    counted = launch(tiled(4, after_use=False), (2, 2), (4, 4), a, b, c)
    assert {(f.kind, f.argument, f.line, f.other_line) for f in counted.findings} == {
        ("race", "tile_a", 8, 13),
        ("race", "tile_b", 9, 13),
    }
    a, b, c = matrices(4)  # one tile: nothing is stored again
    assert launch(tiled(4, after_use=False), (1, 1), (4, 4), a, b, c).findings == ()


# -- shared memory --------------------------------------------------------------------------------


def transpose(height: int, width: int, spare: int = 0):
    """Make the transpose through a tile; `spare` pads another array, that nobody needs."""

    @cuda.jit
    def transpose_tiled(x, out):
        tile = cuda.shared.array((height, width), float32)
        other = cuda.shared.array((32, 32 + spare), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tile[ty, tx] = x[ty, tx]
        other[ty, tx] = x[ty, tx]
        cuda.syncthreads()
        out[ty, tx] = tile[tx, ty]

    return transpose_tiled


@pytest.mark.parametrize(
    ("kernel", "degree"),
    [(transpose(32, 32), 32), (transpose(32, 33), 1), (transpose(33, 32), 32),
     (transpose(32, 34), 2), (transpose(32, 32, spare=1), 32)],
    ids=["plain", "padded", "wrong axis", "too much", "wrong array"],
)  # fmt: skip
def test_bank_conflicts_of_a_transpose(kernel, degree):
    x = np.arange(1024, dtype=np.float32).reshape(32, 32)
    out = np.zeros_like(x)
    warps = launch(kernel, 1, (32, 32), x, out).warps
    np.testing.assert_array_equal(out, x.T)
    tile = warps.shared_memory["tile"]
    assert (tile.loads.requests, tile.loads.conflict_degree, tile.loads.worst) == (
        32,
        degree,
        degree,
    )
    assert tile.stores.conflict_degree == 1
    assert warps.global_memory["out"].stores.sectors_per_request == 4
    assert warps.barriers == 1


@cuda.jit
def through_shared(index, out):
    tile = cuda.shared.array(1024, float32)
    wide = cuda.shared.array(1024, float64)
    i = cuda.threadIdx.x
    for start in range(0, 1024, 32):
        tile[start + i] = start + i
        wide[start + i] = start + i
    cuda.syncthreads()
    if index[i] >= 0:
        out[i] = tile[index[i]] + wide[index[i]]


def test_the_models_say_what_the_meter_counts_on_random_patterns():
    pick = random.Random(0)
    x = np.arange(1024, dtype=np.float32)
    for _ in range(100):
        step, shift = pick.choice([0, 1, 2, 3, 5, 8, 32, 33]), pick.randrange(32)
        index = np.array([pick.choice([i * step % 1024, pick.randrange(1024)]) for i in range(32)])
        index = (index + shift) % 1024
        index[[pick.randrange(32) for _ in range(pick.choice([0, 4, 40]))]] = -1
        index[pick.randrange(32)] = 7  # at least one lane takes part
        out = np.zeros(32, np.float32)
        (loads,) = [launch(gather, 1, 32, x, index, out).warps.global_memory["x"].loads]
        four, eight = ([int(i) * width if i >= 0 else None for i in index] for width in (4, 8))
        assert loads.sectors == models.sectors(four, 4)
        shared = launch(through_shared, 1, 32, index, out).warps.shared_memory
        assert shared["tile"].loads.worst == models.bank_conflicts(four, 4)
        assert shared["wide"].loads.worst == models.bank_conflicts(eight, 8)
        assert shared["tile"].stores.conflict_degree == shared["wide"].stores.conflict_degree == 1


@cuda.jit
def two_on_a_line(out):
    a, b = cuda.shared.array(4, float32), cuda.shared.array(4, float32)
    a[0], b[0] = 1, 2
    out[0] = a[0]


def test_two_shared_arrays_on_one_line_are_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"line 2 .* makes two shared arrays. Numba's simulator"):
        launch(two_on_a_line, 1, 1, np.zeros(1, np.float32))


@cuda.jit
def dynamic(x, out):
    buffer = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    buffer[i] = x[i]
    cuda.syncthreads()
    out[i] = buffer[cuda.blockDim.x - 1 - i]


def test_dynamic_shared_memory():
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    counted = launch(dynamic, 1, 8, x, out, shared=32)
    np.testing.assert_array_equal(out, x[::-1])
    assert counted.warps.shared_bytes == 32 and counted.findings == ()
    assert counted.warps.shared_memory["buffer"].loads.bytes_requested == 32


@cuda.jit(device=True)
def reversed_through_shared(x, i):
    tile = cuda.shared.array(8, int32)
    tile[i] = x
    cuda.syncthreads()
    return tile[7 - i]


@cuda.jit
def with_a_function_s_tile(x, out):
    tile = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    out[i] = reversed_through_shared(tile[i], i)


def test_a_function_has_shared_arrays_and_barriers_of_its_own():
    out = np.zeros(8, np.int32)
    counted = launch(with_a_function_s_tile, 1, 8, np.arange(8, dtype=np.float32), out)
    assert out.tolist() == list(range(7, -1, -1)) and counted.findings == ()
    assert list(counted.warps.shared_memory) == ["tile", "tile'"]
    assert (counted.warps.barriers, counted.warps.shared_bytes) == (1, 64)


@cuda.jit
def partly_filled(x, out):
    tile = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    if i < x.size:
        tile[i] = x[i]
    cuda.syncthreads()
    out[i] = tile[i]


def test_shared_memory_that_nothing_was_stored_to_is_seen():
    out = np.zeros(8, np.float32)
    counted = launch(partly_filled, 1, 8, np.arange(5, dtype=np.float32), out)
    (finding,) = counted.findings
    assert (finding.kind, finding.argument, finding.line) == ("uninitialised", "tile", 7)
    assert (finding.lane, finding.count) == ((5, 0, 0), 3)
    assert np.isnan(out[5:]).all() and out[:5].tolist() == [0, 1, 2, 3, 4]


# -- what is wrong --------------------------------------------------------------------------------


@cuda.jit
def unguarded(x, out):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def over_the_row(x, out):
    i = cuda.grid(1)
    out[i] = x[0, i]


@cuda.jit
def before_the_start(x, out):
    i = cuda.grid(1)
    out[i] = x[i - 10]


def test_an_index_out_of_range_is_seen_and_harms_nothing():
    x, out = np.arange(6, dtype=np.float32), np.full(8, -1, np.float32)
    counted = launch(unguarded, 1, 8, x, out[:6])
    read, stored = counted.findings
    assert (read.kind, read.argument, read.line, read.count) == ("outside", "x", 3, 2)
    assert (read.lane, read.distance) == ((6, 0, 0), 1)
    assert str(read) == (
        "unguarded, line 3 `out[i] = x[i]`: thread 6 of block 0 reads x[6], which is outside: "
        "it has 6 elements (2 times in all)."
    )
    assert (stored.kind, stored.argument) == ("outside", "out")
    assert out.tolist() == [0, 1, 2, 3, 4, 5, -1, -1]
    assert counted.arguments["x"].bytes_read == 32 and counted.arguments["x"].compulsory_read == 24


def test_an_index_past_the_row_reads_the_next_row_as_on_a_gpu():
    x, out = np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros(6, np.float32)
    (finding,) = launch(over_the_row, 1, 6, x, out).findings
    assert out.tolist() == [0, 1, 2, 3, 4, 5]
    assert (
        "reads x[0, 4], which is outside: axis 1 has 4 elements. On a GPU that is x[1, 0]"
        in str(finding)
    )


def test_an_index_before_the_start_wraps_once_as_in_numba():
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    (finding,) = launch(before_the_start, 1, 8, x, out).findings
    assert out.tolist() == [0, 0, 0, 1, 2, 3, 4, 5]  # x[-10] and x[-9] are nowhere
    assert (finding.distance, finding.count) == (-2, 2)


@cuda.jit
def half_the_output(x, out):
    i = cuda.grid(1)
    if i % 2 == 0:
        out[i, 0] = x[i]


@cuda.jit
def over_the_last_row(x, out):
    i = cuda.grid(1)
    out[i] = x[-1, i]


def test_a_negative_index_beside_one_out_of_range():
    x, out = np.arange(1, 9, dtype=np.float32).reshape(2, 4), np.zeros(5, np.float32)
    (finding,) = launch(over_the_last_row, 1, 5, x, out).findings
    assert out.tolist() == [5, 6, 7, 8, 0] and "x[-1, 4]" in str(finding)


def test_elements_that_no_store_reached():
    counted = launch(half_the_output, 1, 8, np.zeros(8, "f"), np.zeros((8, 1), "f"))
    (finding,) = counted.findings
    assert (finding.kind, finding.count) == ("unwritten", 4)
    assert "the first at out[1, 0]" in str(finding)


@cuda.jit
def barrier_in_a_branch(x, out):
    tile = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    if i < 4:
        cuda.syncthreads()
    else:
        tile[i] = x[i] + 1
        cuda.syncthreads()
    out[i] = tile[i]


@cuda.jit
def return_before_the_barrier(x, out):
    i = cuda.threadIdx.x
    if i >= 6:
        return
    out[i] = x[i]
    cuda.syncthreads()


def test_a_barrier_in_a_divergent_branch():
    x = np.arange(8, dtype=np.float32)
    (finding,) = launch(barrier_in_a_branch, 1, 8, x, np.zeros(8, "f")).findings
    assert (finding.kind, finding.line, finding.other_line) == ("barrier", 6, 9)
    assert finding.lane == (0, 0, 0) and "thread 4 waits at another one" in str(finding)


def test_threads_that_return_before_the_barrier():
    x = np.arange(8, dtype=np.float32)
    (finding,) = launch(return_before_the_barrier, 1, 8, x, np.zeros(6, "f")).findings
    assert (finding.kind, finding.line) == ("barrier", 6)
    assert "that 2 threads of its block never reach" in str(finding)


@cuda.jit
def all_to_one(out):
    out[0] = cuda.threadIdx.x


@cuda.jit
def neighbours(x):
    i = cuda.grid(1)
    if i > 0:
        x[i] = x[i - 1]


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def atomic_and_plain(bins, out):
    i = cuda.grid(1)
    cuda.atomic.add(bins, 0, 1)
    out[i] = bins[0]


@cuda.jit
def last_block_sums(x, partial, counter, out):
    b = cuda.blockIdx.x
    partial[b] = x[b]
    cuda.threadfence()
    if cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1:
        for k in range(partial.size):
            out[0] += partial[k]


def test_threads_that_store_to_one_element():
    (finding,) = launch(all_to_one, 1, 4, np.zeros(1, np.int64)).findings
    assert (finding.kind, finding.line, finding.other_line) == ("two writers", 2, 2)
    assert "thread 1 stores to it" in str(finding) and "no barrier between them" in str(finding)


def test_blocks_that_meet_in_global_memory():
    assert kinds(launch(neighbours, 2, 1, np.arange(2.0))) == ["unwritten"]  # x[0] is only read
    race, _ = launch(neighbours, 3, 1, np.arange(3.0)).findings
    assert (race.kind, race.argument, race.line, race.other_line) == ("race", "x", 4, 4)
    assert str(race) == (
        "neighbours, line 4 `x[i] = x[i - 1]`: thread 0 of block 1 stores to x[1], and thread 0 of "
        "block 2 reads it in line 4 `x[i] = x[i - 1]`, and blocks do not wait for each other."
    )
    # Within a block the same is a race between threads.
    race, _ = launch(neighbours, 1, 3, np.arange(3.0)).findings
    assert race.kind == "race" and "no barrier between them" in str(race)


def test_atomics_may_meet_each_other_but_no_plain_access():
    bins = np.zeros(2, np.int64)
    counted = launch(histogram, 2, 4, np.arange(8) % 2, bins)
    assert bins.tolist() == [4, 4] and counted.findings == ()
    atomics = counted.warps.global_memory["bins"].atomics
    assert (atomics.requests, atomics.sectors, atomics.bytes_used) == (2, 2, 2 * 16)
    assert counted.arguments["bins"].bytes_read == counted.arguments["bins"].bytes_written == 64
    counted = launch(atomic_and_plain, 1, 4, np.zeros(1, np.int64), np.zeros(4, np.int64))
    assert kinds(counted) == ["race"]


def test_blocks_that_order_their_accesses_by_fences_are_not_judged():
    x, out = np.arange(4.0), np.zeros(1)
    counted = launch(last_block_sums, 4, 1, x, np.zeros(4), np.zeros(1, np.int64), out)
    assert out[0] == 6 and counted.findings == ()
    assert any("threadfence" in note for note in counted.notes)


# -- warps in step --------------------------------------------------------------------------------


@cuda.jit
def every_other_iteration(x, out):
    i = cuda.grid(1)
    acc = float32(0)
    for k in range(4):
        if (k + i) % 2 == 0:
            acc += x[k]
    out[i] = acc


@cuda.jit
def as_long_as_the_lane(x, out):
    i = cuda.grid(1)
    k = 0
    while k < i:
        out[i] += x[k]
        k += 1


@cuda.jit(device=True)
def element(x, i):
    return x[i]


@cuda.jit
def from_two_places(x, out):
    i = cuda.grid(1)
    if i < 16:
        y = element(x, i)
    else:
        y = element(x, 31 - i)
    out[i] = y


@cuda.jit
def breaking(x, out):
    i = cuda.grid(1)
    for k in range(8):
        for _ in range(2):
            if k == 1:
                break
        if x[k] > i:
            break
    out[i] = k


def test_lanes_that_take_turns_are_not_in_one_request():
    warps = launch(every_other_iteration, 1, 32, np.zeros(4, "f"), np.zeros(32, "f")).warps
    loads = warps.global_memory["x"].loads
    # In each of the four iterations half of the lanes load, all of them the same element.
    assert (loads.requests, loads.sectors, loads.bytes_requested) == (4, 4, 4 * 16 * 4)
    loop, condition = warps.branches
    assert (loop.executions, loop.divergent) == (5, 0)
    assert (condition.line, condition.executions, condition.divergent) == (5, 4, 4)


def test_lanes_that_leave_a_loop_are_not_waited_for():
    warps = launch(as_long_as_the_lane, 1, 4, np.zeros(4, "f"), np.zeros(4, "f")).warps
    assert warps.global_memory["x"].loads.requests == 3  # lane 3 goes round three times
    assert warps.global_memory["x"].loads.bytes_requested == (0 + 1 + 2 + 3) * 4
    (loop,) = warps.branches
    assert (loop.executions, loop.divergent) == (4, 3)


def test_a_function_called_from_two_places_makes_two_requests():
    out = np.zeros(32, np.float32)
    counted = launch(from_two_places, 1, 32, np.arange(32, dtype=np.float32), out)
    loads = counted.warps.global_memory["x"].loads
    assert (loads.requests, loads.sectors) == (2, 4)
    assert counted.warps.global_memory["out"].stores.requests == 1  # they have come together
    assert out.tolist() == [*range(16), *range(15, -1, -1)]


def test_break_leaves_the_loops_as_they_are_counted():
    out = np.zeros(4, np.int64)
    warps = launch(breaking, 1, 4, np.arange(8.0), out).warps
    assert out.tolist() == [1, 2, 3, 4]
    assert warps.global_memory["x"].loads.requests == 5
    assert warps.global_memory["out"].stores.requests == 1


@cuda.jit
def arithmetic(x, out):
    i = cuda.grid(1)
    y = -x[i] * 2.0 + math.sqrt(x[i])  # 4: the sign, product, sum, root
    y = max(y, abs(x[i]))  # 2
    y = cuda.fma(y, y, y)  # 2
    n = 3 * i + 1 - 1  # none: integers
    out[i] += y / (1.0 + 1.0)  # 2: the quotient and the sum; 1 + 1 is worked out beforehand
    out[i] *= n > 1000 or -1.0  # 1


def test_flops_are_counted_by_the_course_s_convention():
    x, out = np.full(8, 4.0, np.float32), np.ones(8, np.float32)
    counted = launch(arithmetic, 1, 8, x, out)
    assert counted.traffic.flops == 8 * 11
    # -4 * 2 + 2 = -6; max(-6, 4) = 4; 4 * 4 + 4 = 20; -(1 + 20 / 2)
    assert out.tolist() == [-11] * 8
    assert counted.arguments["out"].bytes_read == counted.arguments["out"].bytes_written == 64


def test_without_source_requests_are_still_counted():
    scope = {"cuda": cuda}
    exec("def kernel(x, out):\n    i = cuda.grid(1)\n    out[i] = x[i] + 1\n", scope)
    counted = launch(cuda.jit(scope["kernel"]), 1, 32, np.zeros(32, "f"), np.zeros(32, "f"))
    assert counted.warps.global_memory["x"].loads.sectors == 4
    assert counted.traffic.flops == 0 and "source was not found" in counted.notes[0]


@pytest.mark.parametrize("edited", ["x[i] + 2.5 * x[i]", "x[i] - 1.5", "x[i] + 1.5)\n    if (i"])
def test_a_file_that_was_edited_since_is_no_source(tmp_path, edited):
    """What runs is the function that was imported, whatever its file says by now."""
    text = "def kernel(x, out):\n    i = cuda.grid(1)\n    out[i] = (x[i] + 1.5)\n"
    path, scope = tmp_path / "edited.py", {"cuda": cuda}
    path.write_text(text)
    exec(compile(text, str(path), "exec"), scope)
    kernel, out = cuda.jit(scope["kernel"]), np.zeros(4, np.float32)
    assert launch(kernel, 1, 4, np.ones(4, "f"), out).traffic.flops == 4
    exec(compile(text, str(path), "exec"), scope)
    path.write_text(text.replace("x[i] + 1.5", edited))
    counted = launch(cuda.jit(scope["kernel"]), 1, 4, np.ones(4, "f"), out)
    assert out.tolist() == [2.5] * 4 and counted.traffic.flops == 0
    assert "source was not found" in counted.notes[0]


# -- launches -------------------------------------------------------------------------------------


@cuda.jit
def count_votes(x, out):
    i = cuda.threadIdx.x
    out[i, 0] = cuda.syncthreads_count(x[i] > 1)
    out[i, 1] = cuda.syncthreads_and(x[i] > -1)
    out[i, 2] = cuda.syncthreads_or(x[i] > 5)


@cuda.jit
def of_a_tuple(xs, out):
    i = cuda.grid(1)
    out[i] = xs[0][i] + xs[1][0, i]


@cuda.jit
def rows(x, out):
    i, row = cuda.threadIdx.x, x[cuda.threadIdx.y]
    out.T[i, cuda.threadIdx.y] = row[i]


@cuda.jit
def raising(x):
    x[0] = 1
    cuda.syncthreads()
    if cuda.threadIdx.x == 2:
        raise RuntimeError("the kernel's own")
    cuda.syncthreads()


@cuda.jit
def long_loop(x):
    for k in range(10**9):
        x[0] = k


def test_votes_at_a_barrier():
    out = np.zeros((4, 3), np.int64)
    counted = launch(count_votes, 1, 4, np.arange(4), out)
    assert out.tolist() == [[2, 1, 0]] * 4
    assert counted.warps.barriers == 3


def test_arrays_in_tuples_rows_and_transposes():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = np.zeros(4, np.float32)
    counted = launch(of_a_tuple, 1, 4, (x[1], x), out)
    assert out.tolist() == [4, 6, 8, 10]
    assert list(counted.arguments) == ["xs[0]", "xs[1]", "out"]
    out = np.zeros((2, 4), np.float32)
    counted = launch(rows, 1, (4, 2), x, out)
    np.testing.assert_array_equal(out, x)
    assert counted.findings == () and counted.traffic.compulsory_bytes == 64


def test_numba_s_own_wrappers_of_arrays():
    x, out, kept = np.arange(4, dtype=np.float32), np.zeros(4, "f"), np.zeros(4, "f")
    launch(copy, 1, 4, cuda.In(x), cuda.Out(out))
    launch(copy, 1, 4, cuda.InOut(x), cuda.In(kept))
    assert out.tolist() == [0, 1, 2, 3] and kept.tolist() == [0] * 4


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(TypeError, match=r"x is torch\.bfloat16, which NumPy"):
        launch(copy, 1, 4, torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4))
    with pytest.raises(ValueError, match="launched on x, a `meta` tensor"):
        launch(copy, 1, 4, torch.zeros(4, device="meta"), torch.zeros(4))
    with pytest.raises(TypeError, match="x has elements of type"):
        launch(copy, 1, 4, np.zeros(4, [("a", "f4")]), np.zeros(4, "f"))
    with pytest.raises(ValueError, match=r"blocks of 2048 threads \(64 x 32 x 1\)"):
        launch(copy, 1, (64, 32), np.zeros(4, "f"), np.zeros(4, "f"))
    with pytest.raises(TypeError, match="missing a required argument: 'out'"):
        launch(copy, 1, 4, np.zeros(4, "f"))


def test_what_would_take_too_long_is_refused_with_an_estimate(monkeypatch):
    monkeypatch.setattr(cuda_warps, "_PATIENCE_S", 0.05)
    x = torch.zeros(8)
    with pytest.raises(ValueError, match=r"on 1000000 blocks of 8 threads would take about \d+ "):
        launch(copy, 10**6, 8, x, torch.zeros(8))
    with pytest.raises(ValueError, match="long_loop on 1 block of 1024 threads would take"):
        launch(long_loop, 1, 1024, x)


def test_an_error_in_a_kernel_says_where():
    with pytest.raises(RuntimeError, match="the kernel's own") as caught:
        launch(raising, 2, 4, np.zeros(1))
    assert caught.value.__notes__ == ["in thread (2, 0, 0) of block (0, 0, 0)"]


def test_after_an_error_nothing_stays_patched():
    finders, scope = list(sys.meta_path), dict(globals())
    with pytest.raises(RuntimeError):
        launch(raising, 2, 4, np.zeros(1))
    with Meter() as outer:
        copy[1, 4](np.zeros(4, "f"), np.zeros(4, "f"))
        with Meter() as inner:
            copy[1, 4](np.zeros(4, "f"), np.zeros(4, "f"))
    assert (len(outer.launches), len(inner.launches)) == (2, 1)
    assert all(dict(vars(launcher)) == before for launcher, before in BEFORE)
    assert sys.meta_path == finders and scope == globals()
    assert cuda_warps._originals == [] and cuda_warps._install_count == 0
    assert getattr(cuda_warps._running, "run", None) is None


def test_meters_of_two_threads_count_their_own():
    counted, start = {}, threading.Barrier(2)

    def worker(n):
        start.wait()
        with Meter() as meter:
            for _ in range(10):
                through = np.zeros(n, np.float32)
                copy[1, 32](np.arange(n, dtype=np.float32), through)
                assert through.tolist() == list(range(n))
        counted[n] = [each.traffic.bytes for each in meter.launches]

    threads = [threading.Thread(target=worker, args=(n,)) for n in (8, 24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == {8: [64] * 10, 24: [192] * 10}


def test_eager_ops_and_cuda_launches_stand_in_order(device):
    x, out = torch.arange(8.0, device=device), torch.zeros(8, device=device)
    with Meter() as meter:
        y = x * 2
        copy[1, 8](y, out)
        out + 1
    assert [(each.name, each.kind) for each in meter.launches] == [
        ("mul", "torch"), ("copy", "numba"), ("add", "torch"),
    ]  # fmt: skip


def test_a_report_by_warp():
    with Meter() as meter:
        copy[1, 24](np.zeros(20, "f"), np.zeros(20, "f"))
    assert meter.report(by_warp=True).splitlines() == [
        "launch  array  access  requests  sectors/request  useful  bank conflict",
        "-----------------------------------------------------------------------",
        "copy    x      loads          1                3     83%",
        "        out    stores         1                3     83%",
        "copy: 1 of 1 times lanes of a warp went both ways at `if i < x.size:`",
    ]
    assert "<summary>By warp</summary>" in meter._repr_html_()
    with Meter() as meter:
        copy[1, 32](np.zeros(32, "f"), np.zeros(32, "f"))
    assert "both ways" not in meter.report(by_warp=True)
    with Meter() as meter:
        torch.ones(3)
    assert meter.report(by_warp=True) == "No warp was seen: that takes a CUDA kernel."
    assert "By warp" not in meter._repr_html_()


# -- without a meter ------------------------------------------------------------------------------


def test_outside_a_meter_a_launch_gives_the_same(device, needs_unmetered_kernels):
    a, b, c = (torch.from_numpy(m).to(device) for m in matrices(16))
    tiled(4)[(4, 4), (4, 4)](a, b, c)
    inside = torch.zeros_like(c)
    launch(tiled(4), (4, 4), (4, 4), a, b, inside)
    assert torch.equal(c, inside)


def child(code: str, **environment: str) -> subprocess.CompletedProcess:
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "NUMBA_ENABLE_CUDASIM")
    }
    # A kernel's source is read from a file, or from a notebook's cell.
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**inherited, "CUDA_VISIBLE_DEVICES": "", **environment},
    )


KERNEL = """
import torch
from numba import cuda
@cuda.jit
def double(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]
x, out = torch.arange(4.0), torch.zeros(4)
"""


def test_after_setup_kernels_run_without_a_gpu_and_without_a_variable():
    result = child(
        "import sys, course_utils, numba\ncourse_utils.setup()\n"
        "assert 'numba.cuda' not in sys.modules\n"
        + KERNEL
        + "double[1, 8](x, out)\nprint(out.tolist(), cuda.is_available())"
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines()[-1] == "[0.0, 2.0, 4.0, 6.0] True"


def test_numba_may_be_imported_while_a_meter_is_open():
    result = child(
        "from course_utils import Meter\nimport sys\nwith Meter() as outer:\n"
        "    with Meter() as inner:\n"
        + textwrap.indent(KERNEL, "        ")
        + "        double[1, 8](x, out)\n"
        "print(len(outer.launches), len(inner.launches), out.tolist())\n"
        "from course_utils.meter import cuda_warps\nprint(cuda_warps._originals)\n",
        NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0",
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines()[-2:] == ["3 3 [0.0, 2.0, 4.0, 6.0]", "[]"]
