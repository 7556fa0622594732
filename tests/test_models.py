"""The formulas of course_utils.models against numbers worked out by hand."""

import math

import pytest

from course_utils import models

# H200 SXM datasheet: 989.5 TFLOP/s dense bf16, 67 TFLOP/s fp32, 4.8 TB/s.
BF16, FP32, BANDWIDTH = 989.5e12, 67e12, 4.8e12


def test_ridge_of_the_h200():
    assert models.ridge(BF16, BANDWIDTH) == pytest.approx(206.1, abs=0.1)
    assert models.ridge(FP32, BANDWIDTH) == pytest.approx(13.96, abs=0.01)


@pytest.mark.parametrize(
    ("intensity", "flops_per_s"),
    [
        (0, 0.0),  # a copy computes nothing
        (1 / 8, 0.6e12),  # one FLOP per element read and written in fp32
        (100, 480e12),
        (206.145, 989.496e12),
        (1000, 989.5e12),
    ],
)
def test_attainable(intensity, flops_per_s):
    assert models.attainable(intensity, BF16, BANDWIDTH) == pytest.approx(flops_per_s)


def test_attainable_is_continuous_at_the_ridge():
    at_ridge = models.ridge(BF16, BANDWIDTH)
    assert models.attainable(at_ridge, BF16, BANDWIDTH) == pytest.approx(BF16)


def test_bound_on_either_side_of_the_ridge():
    assert models.bound(0, 8.0, 2.0) == "memory"
    assert models.bound(3.999, 8.0, 2.0) == "memory"
    assert models.bound(4.0, 8.0, 2.0) == "compute"
    assert models.bound(4.001, 8.0, 2.0) == "compute"


def test_roofline_time_of_a_copy_is_its_bytes_over_the_bandwidth():
    # 2^28 float32 read and written: 2^31 bytes at 4.8 TB/s.
    assert models.roofline_time(0, 2**31, FP32, BANDWIDTH) == pytest.approx(447.4e-6, rel=1e-3)


def test_roofline_time_of_a_big_matmul_is_its_flops_over_the_peak():
    flops = models.matmul_flops(8192, 8192, 8192)
    nbytes = 3 * 8192 * 8192 * 2
    # 1.0995e12 FLOP at 989.5 TFLOP/s; moving 403 MB takes only 84 microseconds.
    assert models.roofline_time(flops, nbytes, BF16, BANDWIDTH) == pytest.approx(
        1.1112e-3, rel=1e-3
    )


def test_roofline_time_of_a_view_is_zero():
    assert models.roofline_time(0, 0, FP32, BANDWIDTH) == 0.0


def test_roofline_time_and_attainable_agree():
    flops, nbytes = 3.0e9, 1.0e9
    rate = models.attainable(flops / nbytes, FP32, BANDWIDTH)
    assert flops / models.roofline_time(flops, nbytes, FP32, BANDWIDTH) == pytest.approx(rate)


def test_matmul_flops_is_exact():
    assert models.matmul_flops(2, 3, 5) == 60
    # Beyond 2^53, where a float would round.
    assert models.matmul_flops(2**20 + 1, 2**20 + 1, 2**20 + 1) == 2 * (2**20 + 1) ** 3


@pytest.mark.parametrize(("block", "intensity"), [(16, 4.0), (32, 8.0), (64, 16.0)])
def test_flops_per_byte_loaded_of_a_128_cubed_fp32_matmul(block, intensity):
    loaded = models.tile_loads(128, 128, 128, block, block, 4)
    assert models.matmul_flops(128, 128, 128) / loaded == intensity
    assert models.tile_intensity(block, block, itemsize=4) == intensity


def test_one_tile_loads_each_input_once():
    # The compulsory bytes of a 128^3 fp32 matmul: two inputs of 64 KiB.
    assert models.tile_loads(128, 128, 128, 128, 128, 4) == 131072


def test_naive_matmul_loads_two_elements_per_multiply_add():
    assert models.tile_loads(8, 8, 8, 1, 1, 4) == 2 * 8**3 * 4
    assert models.tile_intensity(1, 1, itemsize=4) == 0.25


def test_tile_traffic_adds_the_output():
    # A (2 x 5) read for each of 2 columns of tiles, B (5 x 4) for each of 2 rows; output 2 x 4.
    assert models.tile_loads(2, 4, 5, 1, 2, 2) == (2 * 5 * 2 + 5 * 4 * 2) * 2
    assert models.tile_traffic(2, 4, 5, 1, 2, 2) == (20 + 40 + 8) * 2


def test_ragged_edges_are_counted_without_their_masked_lanes():
    m, n, k, block_m, block_n = 70, 50, 33, 32, 16
    elements = 0
    for row in range(0, m, block_m):
        for column in range(0, n, block_n):
            rows, columns = min(block_m, m - row), min(block_n, n - column)
            elements += (rows + columns) * k
    assert models.tile_loads(m, n, k, block_m, block_n, 4) == 4 * elements


def test_loads_are_not_symmetric_in_the_two_sides_of_a_tile():
    assert models.tile_loads(64, 32, 1, 64, 1, 1) == 64 * 32 + 32
    assert models.tile_loads(64, 32, 1, 1, 32, 1) == 64 + 32 * 64


@pytest.mark.parametrize(
    ("block_m", "block_n", "itemsize", "intensity"),
    [(32, 32, 4, 8.0), (128, 128, 2, 64.0), (128, 64, 2, 128 * 64 / 192), (1, 1, 1, 1.0)],
)
def test_tile_intensity(block_m, block_n, itemsize, intensity):
    assert models.tile_intensity(block_m, block_n, itemsize=itemsize) == pytest.approx(intensity)
    assert models.tile_intensity(block_m, block_n, 16, itemsize=itemsize) == pytest.approx(
        intensity
    )


def test_tile_footprint():
    assert models.tile_footprint(32, 32, 32, itemsize=4) == 8192
    # Triton's usual bf16 matmul: 128 x 256 x 64 in 3 stages fits the 227 KB of an H200.
    assert models.tile_footprint(128, 256, 64, itemsize=2, stages=3) == 147456


BAD_NUMBERS = [-1.0, math.nan, math.inf, "4.8e12", None]


@pytest.mark.parametrize("bad", [0, *BAD_NUMBERS])
def test_bad_ceilings_are_refused_by_name(bad):
    calls = [
        lambda peak, bandwidth: models.ridge(peak, bandwidth),
        lambda peak, bandwidth: models.attainable(1.0, peak, bandwidth),
        lambda peak, bandwidth: models.bound(1.0, peak, bandwidth),
        lambda peak, bandwidth: models.roofline_time(1.0, 1.0, peak, bandwidth),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"^peak must be a positive, finite number \(FLOP/s\)"):
            call(bad, 1.0)
        with pytest.raises(ValueError, match=r"^bandwidth must be .* \(bytes/s\), but is"):
            call(1.0, bad)


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_bad_work_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=r"^intensity must be zero or a positive"):
        models.attainable(bad, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"^intensity must be zero or a positive"):
        models.bound(bad, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"^flops must be"):
        models.roofline_time(bad, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"^nbytes must be"):
        models.roofline_time(1.0, bad, 1.0, 1.0)


@pytest.mark.parametrize("bad", [0, -16, 2.5, 32.0, math.nan, "32"])
def test_bad_sizes_are_refused_by_name(bad):
    functions = [
        (models.matmul_flops, {"m": 8, "n": 8, "k": 8}),
        (models.tile_loads, dict.fromkeys(["m", "n", "k", "block_m", "block_n", "itemsize"], 8)),
        (models.tile_traffic, dict.fromkeys(["m", "n", "k", "block_m", "block_n", "itemsize"], 8)),
        (models.tile_intensity, dict.fromkeys(["block_m", "block_n", "block_k", "itemsize"], 8)),
        (
            models.tile_footprint,
            dict.fromkeys(["block_m", "block_n", "block_k", "itemsize", "stages"], 8),
        ),
    ]
    for function, arguments in functions:
        for name in arguments:
            with pytest.raises(ValueError, match=rf"^{name} must be an integer of at least 1"):
                function(**{**arguments, name: bad})


def test_numpy_numbers_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert models.tile_intensity(numpy.int64(32), numpy.int32(32), itemsize=4) == 8.0
    assert models.attainable(numpy.float32(1.0), 8.0, 2.0) == 2.0


def test_row_traffic_by_hand():
    # 3 rows of 1000 in programs of two rows of 1024: 24 lanes stand over in each row, and a row.
    traffic = models.row_traffic(3, 1000, 4, tile_rows=2, tile_columns=1024, again=True)
    assert (traffic.programs, traffic.steps) == (2, 0)
    assert (traffic.bytes_read, traffic.bytes_written) == (2 * 12_000, 12_000)
    assert traffic.compulsory_bytes == 24_000
    assert traffic.masked_lanes_written == 3 * 24 + 1024
    assert traffic.masked_lanes_read == 2 * traffic.masked_lanes_written
    # 256 columns kept, 744 in three steps of 256, which are 768.
    traffic = models.row_traffic(3, 1000, 2, tile_rows=1, tile_columns=256, step=256)
    assert (traffic.programs, traffic.steps) == (3, 3)
    assert traffic.bytes_read == 3 * (256 + 2 * 744) * 2
    assert traffic.masked_lanes_read == 2 * traffic.masked_lanes_written == 2 * 3 * 24


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tile_columns": 512}, "a tile of 512 columns does not hold a row of 1000"),
        ({"step": 256, "tile_rows": 2}, "with a step a program has one row"),
        ({"step": 256, "again": True}, "with a step a program has one row"),
        ({"step": -1}, "step must be an integer of at least 1"),
        ({"rows": 0}, "rows must be an integer of at least 1"),
        ({"itemsize": 2.0}, "itemsize must be an integer of at least 1"),
    ],
)
def test_row_traffic_refuses_what_covers_no_row(changed, message):
    sizes = {"rows": 3, "columns": 1000, "itemsize": 4, "tile_rows": 1, "tile_columns": 1024}
    with pytest.raises(ValueError, match=message):
        models.row_traffic(**{**sizes, **changed})


# Requests of warps


def every(step: int, start: int = 0, lanes: int = 32) -> list[int]:
    return [start + step * lane for lane in range(lanes)]


@pytest.mark.parametrize(
    ("addresses", "itemsize", "sectors"),
    [
        (every(4), 4, 4),
        (every(8), 4, 8),
        (every(128), 4, 32),
        (every(4, start=4), 4, 5),
        (every(8), 8, 8),
        (every(2), 2, 2),
        (every(16), 16, 16),
        ([64] * 32, 4, 1),
        (every(-4, start=124), 4, 4),
        (every(8, start=28, lanes=1), 8, 2),  # one element across the border of two sectors
        ([None] * 31 + [0], 4, 1),
        ([None] * 32, 4, 0),
        ([], 4, 0),
    ],
)
def test_sectors_of_a_request(addresses, itemsize, sectors):
    assert models.sectors(addresses, itemsize) == sectors


@pytest.mark.parametrize(
    ("addresses", "itemsize", "degree"),
    [
        (every(4), 4, 1),
        (every(8), 4, 2),
        (every(12), 4, 1),  # an odd number of words apart: all banks
        (every(128), 4, 32),  # a column of a tile 32 wide
        (every(132), 4, 1),  # and of one padded to 33
        ([8] * 32, 4, 1),  # one word for all
        (every(2), 2, 1),  # two lanes to a word
        (every(64), 2, 16),
        (every(8), 8, 1),  # a half of the warp fills all banks
        (every(16), 8, 2),
        (every(256), 8, 16),
        (every(16), 16, 1),
        (every(128), 16, 8),
        ([0, 128, None, 256], 4, 3),
        ([0] + [None] * 15 + [256], 8, 1),  # not in one half
        ([None] * 32, 4, 0),
    ],
)
def test_bank_conflicts_of_a_request(addresses, itemsize, degree):
    assert models.bank_conflicts(addresses, itemsize) == degree


@pytest.mark.parametrize("model", [models.sectors, models.bank_conflicts])
@pytest.mark.parametrize(
    ("addresses", "itemsize", "message"),
    [
        ([0] * 33, 4, "a warp has 32 lanes, but there are 33"),
        ([0, -4], 4, "address of lane 1 must be an integer of at least 0 .* but is -4"),
        ([0.5], 4, "address of lane 0"),
        ([0], 0, "itemsize"),
    ],
)
def test_impossible_requests_are_refused(model, addresses, itemsize, message):
    with pytest.raises(ValueError, match=message):
        model(addresses, itemsize)


def test_a_lane_has_at_most_16_bytes_in_shared_memory():
    with pytest.raises(ValueError, match="itemsize is 32, but a lane accesses at most 16"):
        models.bank_conflicts([0], 32)
