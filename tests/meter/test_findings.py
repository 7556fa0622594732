"""What no GPU reports: lanes outside their tensor, two writers, races, elements never written."""

import meter_kernels
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from meter_kernels import copy

from course_utils.meter import Finding, Meter, arguments
from course_utils.meter.traffic import Launch

N = 100


def launch(kernel, *args, grid=(1,), **kwargs) -> Launch:
    with Meter() as meter:
        kernel[grid](*args, **kwargs)
    (counted,) = meter.launches
    return counted


def only(counted: Launch, kind: str | None = None) -> Finding:
    """Return the one finding of a launch, or its one finding of a kind."""
    (finding,) = [f for f in counted.findings if kind in (None, f.kind)]
    return finding


def ones(n: int, device: str) -> torch.Tensor:
    return torch.ones(n, device=device)


# -- outside --------------------------------------------------------------------------------------


@triton.jit
def shifted_copy(x_ptr, out_ptr, shift, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + offsets + shift,
    )
    tl.store(out_ptr + offsets, x)


def test_a_correct_kernel_has_no_findings(device):
    x, out = ones(N, device), ones(N, device)
    assert launch(copy, x, out, N, grid=(4,), BLOCK=32).findings == ()


def test_a_read_past_the_end(device):
    # Programs 0 to 3 read 32 elements each, three further on: the last tile ends at 131 of 128.
    x, out = ones(128, device), torch.zeros(128, device=device)
    counted = launch(shifted_copy, x, out, 3, grid=(4,), BLOCK=32)
    finding = only(counted)
    assert finding.kind == "outside"
    assert finding.kernel == "shifted_copy"
    assert finding.argument == "x_ptr"
    assert finding.line == 3
    assert finding.source == "x = tl.load("
    assert finding.program == (3, 0, 0)
    assert finding.lane == (29,)
    assert finding.distance == 1
    assert finding.count == 3
    assert finding.message == (
        "shifted_copy, line 3 `x = tl.load(`: program 3, lane 29 reads 1 element past the end of "
        "x_ptr (128 elements) (3 lanes in all)."
    )


def test_a_read_before_the_start(device):
    x, out = ones(128, device), torch.zeros(128, device=device)
    finding = only(launch(shifted_copy, x, out, -5, grid=(4,), BLOCK=32))
    assert (finding.kind, finding.argument) == ("outside", "x_ptr")
    assert finding.program == (0, 0, 0)
    assert finding.lane == (0,)
    assert finding.distance == -5
    assert finding.count == 5
    assert "reads 5 elements before the start of x_ptr" in finding.message


@triton.jit
def unmasked_fill(out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0)


def test_a_store_past_the_end_is_not_carried_out(device):
    out = torch.zeros(N, device=device)
    finding = only(launch(unmasked_fill, out, grid=(4,), BLOCK=32))
    assert (finding.kind, finding.argument, finding.line) == ("outside", "out_ptr", 3)
    assert finding.source == "tl.store(out_ptr + offsets, 1.0)"
    assert (finding.program, finding.lane, finding.distance) == ((3, 0, 0), (4,), 1)
    assert finding.count == 28
    assert "stores to 1 element past the end of out_ptr (100 elements)" in finding.message
    assert out.sum().item() == N


def test_lanes_that_leave_their_storage_read_zero(device):
    x, out = ones(32, device), torch.full((32,), 7.0, device=device)
    launch(shifted_copy, x, out, 30, BLOCK=32)
    assert out.tolist() == [1.0] * 2 + [0.0] * 30


@triton.jit
def rows_of_a_view(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i)
    tl.store(out_ptr + row * columns + i, x, mask=i < columns)


def test_a_gap_of_a_strided_view(device):
    # Three columns of a matrix of eight: the fourth lane reads what is not the view's.
    view = torch.arange(32.0, device=device).view(4, 8)[:, :3]
    out = torch.zeros(4, 3, device=device)
    counted = launch(rows_of_a_view, view, out, 8, 3, grid=(4,), BLOCK=4)
    finding = only(counted)
    assert (finding.kind, finding.argument, finding.line) == ("outside", "x_ptr", 4)
    assert (finding.program, finding.lane, finding.distance) == ((0, 0, 0), (3,), 0)
    assert finding.count == 4
    assert "a gap between the elements of x_ptr (shape (4, 3), strides (8, 1))" in finding.message
    assert torch.equal(out, view)
    assert counted.arguments["x_ptr"].bytes_read == 64
    assert counted.arguments["x_ptr"].compulsory_read == 48  # its own elements only
    assert counted.arguments["x_ptr"].nbytes == 48


@triton.jit
def add_neighbours(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + y, mask=i < n)


def test_a_lane_in_a_neighbouring_tensor_is_outside_all_the_same(device):
    memory = torch.arange(64.0, device=device)
    x, y, out = memory[:16], memory[16:32], memory[32:48]
    counted = launch(add_neighbours, x, y, out, 18, BLOCK=32)
    findings = {f.argument: f for f in counted.findings if f.kind == "outside"}
    assert list(findings) == ["x_ptr", "y_ptr", "out_ptr"]
    x_finding = findings["x_ptr"]
    assert (x_finding.line, x_finding.lane, x_finding.distance) == (3, (16,), 1)
    assert x_finding.count == 2
    assert x_finding.message == (
        "add_neighbours, line 3 `x = tl.load(x_ptr + i, mask=i < n)`: program 0, lane 16 reads "
        "1 element past the end of x_ptr (16 elements), which is y_ptr[0] (2 lanes in all)."
    )
    assert "which is" not in findings["out_ptr"].message  # nothing was given beyond it
    # Inside their storage, the lanes go where they would go on a GPU.
    assert memory[48].item() == 16.0 + 32.0


def test_tensors_of_their_own_are_never_called_neighbours():
    memory = np.ones(48, np.float32)  # three storages that happen to lie side by side
    tensors = [torch.from_numpy(memory[i : i + 16]) for i in (0, 16, 32)]
    counted = launch(add_neighbours, *tensors, 18, BLOCK=32)
    assert [f.kind for f in counted.findings].count("outside") == 3
    assert not any("which is" in finding.message for finding in counted.findings)


@triton.jit
def two_dimensional(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = rows[:, None] * N + columns[None, :]
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(out_ptr + tile, tl.load(x_ptr + tile), mask=inside)


def test_program_and_lane_have_as_many_numbers_as_the_grid_and_the_tile(device):
    x, out = ones(8 * 8, device).view(8, 8), torch.zeros(8, 8, device=device)
    counted = launch(two_dimensional, x, out, 8, 8, grid=(2, 2), BM=8, BN=4)
    finding = only(counted)
    assert finding.program == (1, 0, 0)
    assert finding.lane == (0, 0)
    assert finding.distance == 1
    assert finding.count == 2 * 8 * 4  # rows 8 to 15 of both column tiles
    assert "program 1, lane (0, 0) reads" in finding.message


def test_program_ids_are_written_as_the_grid_has_them(device):
    x, out = ones(8 * 8, device).view(8, 8), torch.zeros(8, 8, device=device)
    counted = launch(two_dimensional, x[:, :4], out, 8, 8, grid=(1, 2), BM=8, BN=4)
    finding = only(counted, "outside")
    assert finding.program == (0, 1, 0)
    assert "program (0, 1), lane (0, 0)" in finding.message


@triton.jit
def through_a_helper(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, meter_kernels.load_row(x_ptr, i))


def test_a_line_in_a_helper_names_the_helper(device):
    finding = only(launch(through_a_helper, ones(6, device), ones(8, device), B=8))
    assert (finding.kernel, finding.line) == ("through_a_helper", 2)
    assert finding.source == "return tl.load(x_ptr + offsets)"
    assert finding.message.startswith("through_a_helper, in load_row, line 2 `return tl.load(")


@triton.jit
def atomic_past_the_end(x_ptr, B: tl.constexpr):
    tl.atomic_add(x_ptr + tl.arange(0, B), 1.0)


@triton.jit
def swap_past_the_end(lock_ptr, out_ptr):
    tl.store(out_ptr, tl.atomic_cas(lock_ptr + 4, 0, 1))


def test_atomics_past_the_end(device):
    x = torch.zeros(6, device=device)
    finding = only(launch(atomic_past_the_end, x, B=8))
    assert (finding.kind, finding.distance, finding.count) == ("outside", 1, 2)
    assert "updates atomically 1 element past the end of x_ptr" in finding.message
    assert x.tolist() == [1.0] * 6

    lock = torch.zeros(4, device=device, dtype=torch.int32)
    out = torch.full((1,), 9, device=device, dtype=torch.int32)
    finding = only(launch(swap_past_the_end, lock, out), "outside")
    assert (finding.line, finding.distance) == (2, 1)
    assert lock.tolist() == [0] * 4
    assert out.item() == 0


@triton.jit
def far_away(x_ptr, out_ptr, offset, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i + offset))


@pytest.mark.parametrize("offset", [10**6, -(10**6), 2**31 + 5, 2**47, -(2**46), 2**60, -(2**61)])
def test_lanes_far_away_are_reported_not_followed(device, offset):
    x, out = ones(8, device), ones(8, device)
    finding = only(launch(far_away, x, out, offset, B=8))
    assert (finding.kind, finding.argument, finding.count) == ("outside", "x_ptr", 8)
    assert (finding.distance > 0) == (offset > 0)
    assert out.tolist() == [0.0] * 8


@triton.jit
def far_away_masked(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i.to(tl.int64) * 2**45, mask=i < n, other=3.0)
    tl.store(out_ptr + i, x)


def test_masked_lanes_may_point_anywhere(device):
    x, out = ones(8, device), torch.zeros(16, device=device)
    counted = launch(far_away_masked, x, out, 1, B=16)
    assert counted.findings == ()
    assert out.tolist() == [1.0] + [3.0] * 15
    assert counted.traffic.masked_lanes_read == 15


@triton.jit
def overflowing(x_ptr, out_ptr, stride, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + tl.program_id(0) * stride + i))


def test_an_offset_that_overflows_32_bits(device):
    x, out = ones(8, device), ones(8, device)
    counted = launch(overflowing, x, out, 2**30, grid=(3,), B=8)
    finding = only(counted, "outside")
    assert finding.program == (1, 0, 0)
    assert finding.count == 16  # program 2 wraps around to -2^31
    assert finding.distance == 2**30 - 7


@triton.jit
def wide_read(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr.to(tl.pointer_type(tl.int64)) + i))


def test_an_access_wider_than_the_elements(device):
    x = torch.arange(7, device=device, dtype=torch.int32)
    out = torch.zeros(4, device=device, dtype=torch.int64)
    counted = launch(wide_read, x, out, B=4)
    finding = only(counted)
    assert (finding.argument, finding.lane, finding.distance) == ("x_ptr", (3,), 1)
    assert counted.arguments["x_ptr"].bytes_read == 32
    assert counted.arguments["x_ptr"].compulsory_read == 24


@triton.jit
def wide_read_of_rows(x_ptr, out_ptr):
    pair = x_ptr.to(tl.pointer_type(tl.int64))
    tl.store(out_ptr, tl.load(pair))
    tl.store(out_ptr + 1, tl.load(pair + 1))


def test_a_wide_access_that_ends_in_a_gap(device):
    view = torch.arange(8, device=device, dtype=torch.int32).view(2, 4)[:, :3]
    out = torch.zeros(2, device=device, dtype=torch.int64)
    finding = only(launch(wide_read_of_rows, view, out), "outside")
    assert (finding.line, finding.count, finding.distance) == (4, 1, 0)
    assert "a gap between the elements of x_ptr" in finding.message


@triton.jit
def reads_twice_outside(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    y = tl.load(x_ptr + i + 1)
    tl.store(out_ptr + i, x + y)


def test_each_line_and_argument_is_one_finding_over_all_programs(device):
    counted = launch(reads_twice_outside, ones(6, device), ones(8, device), grid=(3,), B=8)
    outside = [f for f in counted.findings if f.kind == "outside"]
    assert [(f.line, f.count) for f in outside] == [(3, 3 * 2), (4, 3 * 3)]
    assert all(f.program == (0, 0, 0) for f in outside)  # the first occurrence


# -- two writers ----------------------------------------------------------------------------------


@triton.jit
def overlapping_tiles(out_ptr, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0)


def test_two_programs_that_store_to_one_address(device):
    out = torch.zeros(24, device=device)
    counted = launch(overlapping_tiles, out, 8, grid=(2,), BLOCK=16)
    finding = only(counted)
    assert (finding.kind, finding.argument) == ("two writers", "out_ptr")
    assert (finding.line, finding.source) == (3, "tl.store(out_ptr + offsets, 1.0)")
    assert (finding.program, finding.lane) == ((1, 0, 0), (0,))
    assert finding.count == 8
    assert finding.distance is None
    assert "stores to out_ptr[8], which another program also stored to" in finding.message


def test_the_address_is_named_by_the_tensors_own_index(device):
    out = torch.zeros(3, 8, device=device)
    finding = only(launch(overlapping_tiles, out, 10, grid=(1,), BLOCK=16), "unwritten")
    assert "the first at out_ptr[2, 0]" in finding.message
    out = torch.zeros(8, 3, device=device).t()
    finding = only(launch(overlapping_tiles, out, 10, grid=(1,), BLOCK=16), "unwritten")
    assert "the first at out_ptr[1, 5]" in finding.message
    scalar = torch.zeros((), device=device)
    finding = only(launch(overlapping_tiles, scalar, 0, grid=(2,), BLOCK=1))
    assert "stores to out_ptr, which another program" in finding.message


@triton.jit
def store_by_row(out_ptr, AXIS: tl.constexpr):
    tl.store(out_ptr + tl.program_id(AXIS), 1.0)


@pytest.mark.parametrize("axis, grid", [(0, (2, 3)), (0, (2, 1, 3)), (1, (3, 2)), (2, (1, 3, 2))])
def test_programs_differ_along_every_axis_of_the_grid(device, axis, grid):
    finding = only(launch(store_by_row, torch.zeros(2, device=device), grid=grid, AXIS=axis))
    assert (finding.kind, finding.count) == ("two writers", 4)


@triton.jit
def store_then_load(x_ptr, out_ptr):
    tl.store(x_ptr, 1.0)
    tl.store(out_ptr + tl.program_id(0), tl.load(x_ptr))


def test_what_two_programs_wrote_belongs_to_neither(device):
    x, out = torch.zeros(1, device=device), torch.zeros(3, device=device)
    counted = launch(store_then_load, x, out, grid=(3,))
    assert only(counted, "two writers").count == 2
    races = [(f.line, f.program, f.count) for f in counted.findings if f.kind == "race"]
    assert races == [(2, (1, 0, 0), 2), (3, (1, 0, 0), 2)]


@triton.jit
def store_twice(out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, 1.0)
    tl.store(out_ptr + i // 2, 2.0)


def test_one_program_may_store_where_it_stored(device):
    assert launch(store_twice, torch.zeros(8, device=device), B=8).findings == ()


@triton.jit
def tiles_of_two_arguments(first_ptr, second_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(first_ptr + i, 1.0)
    else:
        tl.store(second_ptr + i, 2.0)


def test_two_arguments_of_one_memory_meet(device):
    memory = torch.zeros(12, device=device)
    counted = launch(tiles_of_two_arguments, memory[:8], memory[4:], grid=(2,), BLOCK=8)
    finding = only(counted)
    assert (finding.kind, finding.argument, finding.count) == ("two writers", "second_ptr", 4)
    assert "stores to second_ptr[0]" in finding.message


# -- races ----------------------------------------------------------------------------------------


@triton.jit
def shift_in_place(x_ptr, shift, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets + shift, mask=offsets + shift < n, other=0.0)
    tl.store(x_ptr + offsets, x)


def test_a_program_that_reads_what_another_has_written(device):
    # Program 1 reads the last element of program 0's tile, which program 0 has replaced.
    x = torch.arange(32.0, device=device)
    counted = launch(shift_in_place, x[1:], -1, 31, grid=(1,), BLOCK=16)
    assert [f.kind for f in counted.findings if f.kind == "race"] == []
    x = torch.arange(33.0, device=device)
    counted = launch(shift_in_place, x[1:], -1, 32, grid=(2,), BLOCK=16)
    finding = only(counted, "race")
    assert (finding.argument, finding.line) == ("x_ptr", 3)
    assert (finding.program, finding.lane, finding.count) == ((1, 0, 0), (0,), 1)
    assert "reads x_ptr[15], which another program wrote" in finding.message


def test_a_program_that_writes_what_another_has_read(device):
    # Program 0 reads the first element of program 1's tile; on a GPU it may come too late.
    x = torch.arange(32.0, device=device)
    finding = only(launch(shift_in_place, x, 1, 32, grid=(2,), BLOCK=16))
    assert (finding.kind, finding.argument, finding.line) == ("race", "x_ptr", 4)
    assert (finding.program, finding.lane, finding.count) == ((1, 0, 0), (0,), 1)
    assert "stores to x_ptr[16], which another program reads" in finding.message


@triton.jit
def last_reader_writes(x_ptr, out_ptr):
    tl.store(out_ptr + tl.program_id(0), tl.load(x_ptr))
    if tl.program_id(0) == 2:
        tl.store(x_ptr, 1.0)


def test_the_last_of_several_readers_writes(device):
    x, out = torch.zeros(1, device=device), torch.zeros(3, device=device)
    finding = only(launch(last_reader_writes, x, out, grid=(3,)))
    assert (finding.kind, finding.line, finding.program) == ("race", 4, (2, 0, 0))


def test_reading_together_and_updating_ones_own_tile_are_no_race(device):
    x = torch.arange(32.0, device=device)
    assert launch(shift_in_place, x, 0, 32, grid=(2,), BLOCK=16).findings == ()


@triton.jit
def count_then_read(counter_ptr, out_ptr):
    tl.atomic_add(counter_ptr, 1)
    tl.store(out_ptr + tl.program_id(0), tl.load(counter_ptr))


def test_a_plain_read_of_what_others_update_atomically_is_a_race(device):
    counter = torch.zeros(1, device=device, dtype=torch.int32)
    out = torch.zeros(4, device=device, dtype=torch.int32)
    finding = only(launch(count_then_read, counter, out, grid=(4,)))
    assert (finding.kind, finding.argument, finding.line) == ("race", "counter_ptr", 3)
    assert (finding.program, finding.count) == ((1, 0, 0), 3)


@triton.jit
def own_counter(counter_ptr):
    mine = counter_ptr + tl.program_id(0)
    tl.atomic_add(mine, 1)
    tl.store(mine, tl.load(mine) + 1)
    tl.atomic_add(mine, 1)


def test_a_program_may_mix_atomics_and_stores_on_its_own(device):
    counters = torch.zeros(4, device=device, dtype=torch.int32)
    assert launch(own_counter, counters, grid=(4,)).findings == ()
    assert counters.tolist() == [3] * 4


@triton.jit
def initialise_then_count(counter_ptr):
    if tl.program_id(0) == 0:
        tl.store(counter_ptr, 0)
    tl.atomic_add(counter_ptr, 1)


def test_a_plain_store_among_atomics_is_found(device):
    counter = torch.zeros(1, device=device, dtype=torch.int32)
    counted = launch(initialise_then_count, counter, grid=(4,))
    assert {(f.kind, f.line) for f in counted.findings} == {("race", 4), ("two writers", 4)}
    assert only(counted, "two writers").program == (1, 0, 0)


@triton.jit
def count_then_overwrite(counter_ptr):
    tl.atomic_add(counter_ptr, 1)
    if tl.program_id(0) == 3:
        tl.store(counter_ptr, 0)


def test_a_plain_store_after_atomics_is_found(device):
    counter = torch.zeros(1, device=device, dtype=torch.int32)
    counted = launch(count_then_overwrite, counter, grid=(4,))
    finding = only(counted, "two writers")
    assert (finding.line, finding.program, finding.count) == (4, (3, 0, 0), 1)


# -- unwritten ------------------------------------------------------------------------------------


def test_an_output_that_is_not_written_to_its_end(device):
    x, out = ones(N, device), torch.zeros(N, device=device)
    counted = launch(copy, x, out, N - 4, grid=(3,), BLOCK=32)
    finding = only(counted)
    assert (finding.kind, finding.argument, finding.count) == ("unwritten", "out_ptr", 4)
    assert (finding.line, finding.program, finding.lane) == (None, None, None)
    assert finding.message == (
        "copy stores to out_ptr but leaves 4 of its 100 elements unwritten, the first at "
        "out_ptr[96]."
    )
    assert counted.arguments["out_ptr"].elements_unwritten == 4
    assert counted.arguments["x_ptr"].elements_unwritten == 0


def test_gaps_of_a_strided_output_are_not_its_elements(device):
    x = torch.arange(12.0, device=device).view(4, 3)
    out = torch.zeros(4, 8, device=device)[:, :3]
    counted = launch(strided_copy, x, out, 8, 3, grid=(4,), BLOCK=4)
    assert torch.equal(out, x)
    assert counted.findings == ()
    counted = launch(strided_copy, x, out, 8, 2, grid=(4,), BLOCK=4)
    finding = only(counted)
    assert (finding.kind, finding.count) == ("unwritten", 4)
    assert "4 of its 12 elements unwritten, the first at out_ptr[0, 2]" in finding.message


@triton.jit
def strided_copy(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * 3 + i, mask=i < columns)
    tl.store(out_ptr + row * stride + i, x, mask=i < columns)


def test_an_expanded_output_counts_its_own_elements(device):
    out = torch.zeros(1, device=device).expand(2**30)
    assert launch(unmasked_fill, out, BLOCK=1).findings == ()
    memory = arguments.Memory(out.untyped_storage())
    argument = arguments.Argument("out_ptr", out, 1, memory)
    assert argument.own_count == 1
    assert argument.owned is None  # no map of 2^30 elements


def test_findings_of_all_launches_are_the_meters(device):
    x, out = ones(N, device), torch.zeros(N, device=device)
    with Meter() as meter:
        copy[(3,)](x, out, N - 4, BLOCK=32)
        x * 2
        unmasked_fill[(4,)](out, BLOCK=32)
    assert [(f.kind, f.kernel) for f in meter.findings] == [
        ("unwritten", "copy"), ("outside", "unmasked_fill"),
    ]  # fmt: skip
