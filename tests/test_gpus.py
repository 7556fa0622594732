"""The datasheet table against figures from elsewhere: chip counts, clocks, buses, published ridges.

The numbers in this file are no copies of the table. They are what a GPU is built of (cores, FLOP
per clock and SM, bus width and data rate), and the table's peaks and bandwidths must follow.
"""

import dataclasses

import pytest

from course_utils import gpus
from course_utils.gpus import GPUS, find, gpu

KEYS = [
    "t4", "l4", "a10", "a100_40gb", "a100_80gb", "l40s", "h100_sxm", "h100_pcie", "h200", "b200",
    "rtx3090", "rtx4090", "rtx5090", "mi300x",
]  # fmt: skip

# CUDA cores (AMD: stream processors) of the whole GPU, and per SM, as the product pages count them.
CORES = {
    "t4": (2560, 64),
    "l4": (7424, 128),
    "a10": (9216, 128),
    "a100_40gb": (6912, 64),
    "a100_80gb": (6912, 64),
    "l40s": (18176, 128),
    "h100_sxm": (16896, 128),
    "h100_pcie": (14592, 128),
    "h200": (16896, 128),
    "b200": (18944, 128),
    "rtx3090": (10496, 128),
    "rtx4090": (16384, 128),
    "rtx5090": (21760, 128),
    "mi300x": (19456, 64),
}

# Dense fp16 FLOP per clock and SM of the tensor cores with fp32 accumulation, and the clock in MHz
# that the peak is rated at. Architecture whitepapers: Turing 8 tensor cores of 64 FMA; A100 4 of
# 256; H100 4 of 512; GA10x and Ada 4 of 128, which GeForce halves; CDNA 3 white paper for the CU.
TENSOR = {
    "t4": (1024, 1590),
    "l4": (1024, 2040),
    "a10": (1024, 1695),
    "a100_40gb": (2048, 1410),
    "a100_80gb": (2048, 1410),
    "l40s": (1024, 2520),
    "h100_sxm": (4096, 1830),
    "h100_pcie": (4096, 1620),
    "h200": (4096, 1830),
    "rtx3090": (512, 1695),
    "rtx4090": (512, 2520),
    "rtx5090": (512, 2407),
    "mi300x": (2048, 2100),
}

# Memory bus in bits, and data rate in Gbit/s per pin (for HBM twice the memory clock that
# nvidia-smi reports: 1215, 1593, 2619, 1593, 3201, 3996 MHz).
MEMORY = {
    "t4": (256, 10.0),
    "l4": (192, 12.5),
    "a10": (384, 12.5),
    "a100_40gb": (5120, 2.430),
    "a100_80gb": (5120, 3.186),
    "l40s": (384, 18.0),
    "h100_sxm": (5120, 5.238),
    "h100_pcie": (5120, 3.186),
    "h200": (6144, 6.402),
    "b200": (7680, 7.992),
    "rtx3090": (384, 19.5),
    "rtx4090": (384, 21.0),
    "rtx5090": (512, 28.0),
    "mi300x": (8192, 5.2),
}


def test_the_table_has_the_gpus_of_the_course_in_order():
    assert list(GPUS) == KEYS
    assert all(entry.key == key for key, entry in GPUS.items())


@pytest.mark.parametrize("key", KEYS)
def test_cores_are_sms_times_cores_per_sm(key):
    cores, per_sm = CORES[key]
    assert GPUS[key].sms * per_sm == cores


@pytest.mark.parametrize("key", KEYS)
def test_fp32_peak_is_cores_times_clock_times_two(key):
    entry = GPUS[key]
    # CDNA 3 issues two fp32 FMAs per lane and clock (256 FLOP per CU), so it has 4, not 2.
    flop_per_core = 4 if key == "mi300x" else 2
    computed = CORES[key][0] * flop_per_core * entry.boost_clock_hz
    assert entry.peak["fp32"] == pytest.approx(computed, rel=0.01)


@pytest.mark.parametrize("key", TENSOR)
def test_fp16_peak_is_sms_times_tensor_rate_times_clock(key):
    entry = GPUS[key]
    flop_per_clock, mhz = TENSOR[key]
    assert entry.peak["fp16"] == pytest.approx(entry.sms * flop_per_clock * mhz * 1e6, rel=0.02)


def test_b200_fp16_peak_is_twice_hoppers_rate_just_below_its_highest_clock():
    # The clock of this peak is not published: it must lie between Hopper's and the highest.
    entry = GPUS["b200"]
    clock = entry.peak["fp16"] / (entry.sms * 8192)
    assert 1830e6 < clock < entry.boost_clock_hz


@pytest.mark.parametrize("key", KEYS)
def test_narrower_dtypes_double_the_rate(key):
    # One sparse figure among dense ones would be off by a factor of 2.
    peak = GPUS[key].peak
    if key == "t4":
        assert list(peak) == ["fp32", "fp16"]
        return
    assert peak["bf16"] == peak["fp16"]
    assert peak["tf32"] == pytest.approx(peak["fp16"] / 2, rel=0.02)
    if "fp8" in peak:
        assert peak["fp8"] == pytest.approx(peak["fp16"] * 2, rel=0.02)


def test_only_ada_and_later_have_fp8():
    with_fp8 = {key for key, entry in GPUS.items() if "fp8" in entry.peak}
    assert with_fp8 == set(KEYS) - {"t4", "a10", "a100_40gb", "a100_80gb", "rtx3090"}


@pytest.mark.parametrize("key", KEYS)
def test_bandwidth_is_bus_width_times_data_rate(key):
    bits, gbit_per_s = MEMORY[key]
    assert GPUS[key].bandwidth == pytest.approx(bits / 8 * gbit_per_s * 1e9, rel=0.03)


@pytest.mark.parametrize(
    ("key", "dtype", "flop_per_byte"),
    [
        ("t4", "fp16", 203),
        ("l4", "fp16", 403),
        ("a10", "fp16", 208),
        ("a100_40gb", "bf16", 201),
        ("a100_80gb", "bf16", 153),
        ("l40s", "bf16", 419),
        ("h100_sxm", "bf16", 295),
        ("h100_pcie", "bf16", 371),
        ("h200", "bf16", 206),
        ("b200", "bf16", 292),
        ("rtx3090", "bf16", 76),
        ("rtx4090", "bf16", 164),
        ("rtx5090", "bf16", 117),
        ("mi300x", "bf16", 247),
        ("mi300x", "fp8", 493),
        ("h200", "fp32", 14),
        ("t4", "fp32", 25),
    ],
)
def test_ridge_points(key, dtype, flop_per_byte):
    assert GPUS[key].ridge(dtype) == pytest.approx(flop_per_byte, abs=0.7)


def test_dtypes_go_by_pytorchs_names_too():
    entry = gpu("h200")
    assert entry.peak_flops("torch.bfloat16") == entry.peak_flops("bf16") == 989.5e12
    assert entry.ridge("float16") == entry.ridge("fp16")
    # float32 is the CUDA cores, never tf32.
    assert entry.peak_flops("float32") == 67e12


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8", "int4"])
def test_a_missing_hardware_path_is_an_error_that_lists_the_others(dtype):
    with pytest.raises(ValueError, match=rf"^T4 has no peak for dtype '{dtype}'.*: fp32, fp16\.$"):
        gpu("t4").ridge(dtype)


# CUDA C++ Programming Guide, Technical Specifications per Compute Capability.
GUIDE = {
    # threads, warps, blocks per SM; shared memory in KB per SM, per block
    (7, 5): (1024, 32, 16, 64, 64),
    (8, 0): (2048, 64, 32, 164, 163),
    (8, 6): (1536, 48, 16, 100, 99),
    (8, 9): (1536, 48, 24, 100, 99),
    (9, 0): (2048, 64, 32, 228, 227),
    (10, 0): (2048, 64, 32, 228, 227),
    (12, 0): (1536, 48, 24, 100, 99),
}
CAPABILITY = {
    "t4": (7, 5), "l4": (8, 9), "a10": (8, 6), "a100_40gb": (8, 0), "a100_80gb": (8, 0),
    "l40s": (8, 9), "h100_sxm": (9, 0), "h100_pcie": (9, 0), "h200": (9, 0), "b200": (10, 0),
    "rtx3090": (8, 6), "rtx4090": (8, 9), "rtx5090": (12, 0),
}  # fmt: skip


@pytest.mark.parametrize("key", CAPABILITY)
def test_limits_follow_the_compute_capability(key):
    entry = GPUS[key]
    assert entry.compute_capability == CAPABILITY[key]
    threads, warps, blocks, per_sm, per_block = GUIDE[entry.compute_capability]
    assert entry.max_threads_per_sm == threads
    assert entry.max_warps_per_sm == warps
    assert entry.max_blocks_per_sm == blocks
    assert entry.shared_memory_per_sm == per_sm * 1024
    assert entry.shared_memory_per_block == per_block * 1024
    assert entry.registers_per_sm == 65536
    assert entry.max_registers_per_thread == 255
    assert entry.warp_size == 32
    assert entry.vendor == "NVIDIA"


@pytest.mark.parametrize("key", KEYS)
def test_the_biggest_block_fills_an_sm_exactly(key):
    entry = GPUS[key]
    taken = entry.shared_memory_per_block + entry.reserved_shared_memory_per_block
    assert taken == entry.shared_memory_per_sm
    assert entry.max_threads_per_sm == entry.max_warps_per_sm * entry.warp_size


def test_shared_memory_per_block_as_cuda_reports_it():
    # cudaDeviceProp.sharedMemPerBlockOptin
    assert gpu("t4").shared_memory_per_block == 65536
    assert gpu("a100_40gb").shared_memory_per_block == 166912
    assert gpu("rtx4090").shared_memory_per_block == 101376
    assert gpu("h200").shared_memory_per_block == 232448


@pytest.mark.parametrize(
    ("key", "mib"),
    [
        ("t4", 4), ("l4", 48), ("a10", 6), ("a100_40gb", 40), ("a100_80gb", 40), ("l40s", 96),
        ("h100_sxm", 50), ("h100_pcie", 50), ("h200", 60), ("b200", 126.5), ("rtx3090", 6),
        ("rtx4090", 72), ("rtx5090", 96), ("mi300x", 4),
    ],
)  # fmt: skip
def test_l2(key, mib):
    assert GPUS[key].l2_bytes == mib * 2**20


@pytest.mark.parametrize(
    ("key", "gib"),
    [
        ("t4", 16), ("l4", 24), ("a10", 24), ("a100_40gb", 40), ("a100_80gb", 80), ("l40s", 48),
        ("h100_sxm", 80), ("h100_pcie", 80), ("h200", 141), ("b200", 180), ("rtx3090", 24),
        ("rtx4090", 24), ("rtx5090", 32), ("mi300x", 192),
    ],
)  # fmt: skip
def test_memory(key, gib):
    assert GPUS[key].memory_bytes == gib * 2**30


def test_mi300x():
    entry = gpu("mi300x")
    assert entry.vendor == "AMD"
    assert entry.compute_capability is None
    assert entry.sms == 8 * 38
    assert entry.warp_size == 64
    assert entry.shared_memory_per_block == entry.shared_memory_per_sm == 65536
    # 4 SIMDs of 128 KB of vector registers; 8 wavefronts on each leave 64 registers per thread.
    assert entry.registers_per_sm * 4 == 4 * 128 * 1024
    assert entry.registers_per_sm / entry.max_threads_per_sm == 64
    assert entry.max_registers_per_thread == 256 + 256
    # rocminfo: 32 waves per CU, so at most 32 blocks of one wave.
    assert entry.max_warps_per_sm == entry.max_blocks_per_sm == 32
    # The fields that mean something else on AMD say so.
    for name in ("compute_capability", "sms", "l2_bytes", "shared_memory_per_block"):
        assert entry.notes[name]


@pytest.mark.parametrize("key", ["rtx3090", "rtx4090", "rtx5090"])
def test_geforce_peaks_say_that_they_accumulate_in_fp32(key):
    assert "fp32 accumulation" in GPUS[key].notes["peak"]
    assert "half the rate" in GPUS[key].notes["peak"]


@pytest.mark.parametrize("key", KEYS)
def test_every_figure_has_a_source(key):
    entry = GPUS[key]
    no_figures = {"key", "name", "vendor", "architecture", "sources", "notes"}
    figures = {f.name for f in dataclasses.fields(entry)} - no_figures
    if entry.compute_capability is None:
        assert "compute_capability" in entry.notes
        assert set(entry.sources) == figures - {"compute_capability"}
    else:
        assert set(entry.sources) == figures
    assert all(len(source) > 10 for source in entry.sources.values())
    assert set(entry.notes) <= figures


def test_halved_sparse_figures_are_declared():
    # These three documents print the tensor rates only with sparsity.
    for key in ("l4", "h200", "b200"):
        assert "halved" in GPUS[key].sources["peak"]


def test_the_table_is_read_only():
    entry = gpu("h200")
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.sms = 1
    with pytest.raises(TypeError):
        entry.peak["bf16"] = 1.0
    with pytest.raises(TypeError):
        GPUS["h200"] = entry
    assert len({*GPUS.values()}) == len(KEYS)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("H200 SXM", "h200"),
        ("A100", "a100_40gb"),
        ("A100 80GB", "a100_80gb"),
        ("a100-80gb", "a100_80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb"),
        ("H100", "h100_sxm"),
        ("H100 PCIe", "h100_pcie"),
        ("Tesla T4", "t4"),
        ("  l4 ", "l4"),
        ("RTX 4090", "rtx4090"),
        ("GeForce RTX 3090", "rtx3090"),
        ("5090", "rtx5090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_forgiving_lookup(name, key):
    assert gpu(name) is GPUS[key]


@pytest.mark.parametrize("entry", GPUS.values(), ids=KEYS)
def test_lookup_by_key_and_printed_name(entry):
    assert gpu(entry.key) is entry
    assert gpu(entry.name) is entry


@pytest.mark.parametrize("name", ["", "V100", "H300", "RTX 4090 Laptop", "A100 PCIe 80GB", None, 7])
def test_unknown_names_are_an_error_that_lists_the_keys(name):
    with pytest.raises(ValueError, match=r"^Unknown GPU .*t4, l4, .*h200.*, mi300x\.$"):
        gpu(name)


# Names as torch.cuda.get_device_name() gives them; total memory where a real machine's is known.
DEVICES = [
    ("Tesla T4", 15843721216, "t4"),
    ("NVIDIA L4", None, "l4"),
    ("NVIDIA A10", 23609475072, "a10"),
    ("NVIDIA A100-SXM4-40GB", 42298834944, "a100_40gb"),
    ("NVIDIA A100-PCIE-40GB", None, "a100_40gb"),
    ("A100-SXM4-40GB", 42405855232, "a100_40gb"),
    ("NVIDIA A100-SXM4-80GB", None, "a100_80gb"),
    ("NVIDIA L40S", 45589 * 2**20, "l40s"),
    ("NVIDIA H100 80GB HBM3", None, "h100_sxm"),
    ("NVIDIA H100 PCIe", 85019328512, "h100_pcie"),
    ("NVIDIA H200", 143156 * 2**20, "h200"),
    ("NVIDIA B200", 182642 * 2**20, "b200"),
    ("NVIDIA GeForce RTX 3090", None, "rtx3090"),
    ("NVIDIA GeForce RTX 4090", None, "rtx4090"),
    ("NVIDIA GeForce RTX 5090", 33677180928, "rtx5090"),
    ("AMD Instinct MI300X", 196592 * 2**20, "mi300x"),
    ("AMD Instinct MI300X OAM", None, "mi300x"),
    ("AMD Instinct MI300X VF", 196288 * 2**20, "mi300x"),
]


@pytest.mark.parametrize(("name", "memory_bytes", "key"), DEVICES)
def test_find_knows_real_device_names(name, memory_bytes, key):
    assert find(name) is GPUS[key]
    assert find(name, memory_bytes) is GPUS[key]


def test_every_gpu_has_a_device_name():
    assert {key for _, _, key in DEVICES} == set(KEYS)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A100",
        "NVIDIA H100",
        "Tesla V100-SXM2-16GB",
        "NVIDIA A10G",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA L40",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "AMD Instinct MI300A",
    ],
)
def test_find_does_not_guess(name):
    assert find(name) is None


def test_find_refuses_a_slice_or_a_variant_by_its_memory():
    assert find("NVIDIA H200", 16 * 2**30) is None
    assert find("NVIDIA H100 80GB HBM3", 64 * 2**30) is None
    assert find("NVIDIA H100 80GB HBM3", 94 * 2**30) is None


def test_lookup_tables_do_not_collide():
    spellings = {}
    for key, names in gpus._DEVICE_NAMES.items():
        for name in (*names, key, GPUS[key].name):
            assert spellings.setdefault(gpus._compact(name), key) == key
    for nickname, key in gpus._NICKNAMES.items():
        assert spellings.setdefault(gpus._compact(nickname), key) == key


def test_the_gpu_of_this_machine_agrees_with_the_table():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    device = torch.cuda.get_device_properties(0)
    entry = find(device.name, device.total_memory)
    if entry is None:
        pytest.skip(f"{device.name} is not in the table")
    assert entry.sms == device.multi_processor_count
    assert entry.l2_bytes == device.L2_cache_size
    assert entry.max_threads_per_sm == device.max_threads_per_multi_processor
    assert entry.registers_per_sm == device.regs_per_multiprocessor
    assert entry.warp_size == device.warp_size
    if entry.vendor == "NVIDIA":
        assert entry.compute_capability == (device.major, device.minor)
        assert entry.shared_memory_per_block == device.shared_memory_per_block_optin
        assert entry.shared_memory_per_sm == device.shared_memory_per_multiprocessor
