"""Datasheet table of the GPUs that the course talks about, each figure with its source.

How to read the table:

- **Peaks are dense.** Vendors like to print the rate with 2:4 structured sparsity, twice as high;
  where a datasheet prints only that one, ours is half of it and ``sources`` says so.
- **fp32 is the CUDA cores** (AMD: the vector units). tf32, fp16, bf16 and fp8 are the tensor cores
  (AMD: matrix cores) with fp32 accumulation. On GeForce cards that is half the rate with fp16
  accumulation which reviews print.
- **A dtype that is absent has no such hardware path**: ``"bf16" not in gpu("t4").peak``.
- **Peaks hold at the boost clock.** A card short of power stays below it, and a GeForce board may
  run above the reference clock, so that a measured rate can even exceed the table's.
- **KB, MB and GB of capacities are powers of 1024** here, as NVIDIA's programming guide says of
  KB. Bandwidths are powers of 1000. A device reports somewhat less memory than the datasheet.
- ``notes`` holds, per field, what a reader must know before using the figure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from course_utils import models

KIB, MIB, GIB = 2**10, 2**20, 2**30
GB_PER_S = 1e9
TFLOP_PER_S = 1e12
MHZ = 1e6

_DTYPES = {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class GPU:
    """One GPU as its documents describe it.

    Attributes:
        key: short name in `GPUS`.
        name: name to print.
        vendor: "NVIDIA" or "AMD".
        architecture: the vendor's name of the generation.
        compute_capability: (major, minor); None for AMD, which has no such number.
        bandwidth: peak memory bandwidth in bytes/s.
        peak: dense FLOP/s by dtype: "fp32", "tf32", "fp16", "bf16", "fp8"; absent if the hardware
            has no path for it.
        sms: streaming multiprocessors (AMD: compute units).
        memory_bytes: device memory.
        l2_bytes: L2 cache that one SM can use.
        shared_memory_per_block: the most shared memory one block may ask for, after opting in to
            more than the default 48 KB.
        shared_memory_per_sm: shared memory that the resident blocks of an SM share.
        reserved_shared_memory_per_block: what the system takes per block beside what it asked for.
        registers_per_sm: 32-bit registers, counted per thread.
        max_registers_per_thread: beyond this the compiler spills.
        max_threads_per_sm: resident threads.
        max_warps_per_sm: resident warps.
        max_blocks_per_sm: resident blocks.
        warp_size: threads that execute together.
        boost_clock_hz: highest clock that the vendor rates the CUDA cores for.
        sources: for each figure (by field name) the document it is from.
        notes: caveats by field name.
    """

    key: str
    name: str
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    bandwidth: float
    peak: Mapping[str, float] = field(hash=False)
    sms: int
    memory_bytes: int
    l2_bytes: int
    shared_memory_per_block: int
    shared_memory_per_sm: int
    reserved_shared_memory_per_block: int
    registers_per_sm: int
    max_registers_per_thread: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    warp_size: int
    boost_clock_hz: float
    sources: Mapping[str, str] = field(hash=False, repr=False)
    notes: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        """Make the mappings read-only: the table is shared by everything in the process."""
        for name in ("peak", "sources", "notes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def peak_flops(self, dtype: str) -> float:
        """Return the dense peak in FLOP/s for ``dtype``.

        Args:
            dtype: "fp32", "tf32", "fp16", "bf16" or "fp8"; PyTorch's names of them work too
                ("float16", "torch.bfloat16", or the dtype object itself). "float32" means the
                CUDA cores, so ask for "tf32" by that name.

        Raises:
            ValueError: if this GPU has no hardware path for the dtype, or the name is unknown.
        """
        wanted = str(dtype).lower().removeprefix("torch.")
        wanted = _DTYPES.get(wanted, wanted)
        if wanted not in self.peak:
            raise ValueError(
                f"{self.name} has no peak for dtype {str(dtype)!r}. It has: {', '.join(self.peak)}."
            )
        return self.peak[wanted]

    def ridge(self, dtype: str) -> float:
        """Return the ridge point in FLOP/byte: from this intensity on, the peak can be reached.

        Args:
            dtype: as for `peak_flops`.

        Raises:
            ValueError: as `peak_flops`.
        """
        return models.ridge(self.peak_flops(dtype), self.bandwidth)


_CUDA_GUIDE = (
    "NVIDIA, CUDA C++ Programming Guide, Compute Capabilities, "
    "table Technical Specifications per Compute Capability"
)
_CAPABILITY = "NVIDIA, CUDA GPU Compute Capability list"
_RESERVED = (
    "NVIDIA, CUDA tuning guides of the Ampere to Blackwell architectures, Unified Shared Memory: "
    "CUDA reserves 1 KB per thread block; none before compute capability 8.0"
)
_T4 = "NVIDIA, T4 Tensor Core GPU product brief and datasheet"
_A100 = "NVIDIA, A100 Tensor Core GPU Architecture whitepaper, table of A100 specifications"
_A100_SHEET = "NVIDIA, A100 Tensor Core GPU datasheet"
_GA102 = "NVIDIA, Ampere GA102 GPU Architecture whitepaper, appendix A, GeForce RTX 3090"
_A10 = "NVIDIA, A10 Tensor Core GPU datasheet and product brief"
_ADA = "NVIDIA, Ada GPU Architecture whitepaper, appendix A, GeForce RTX 4090"
_ADA_CHIPS = "NVIDIA, Ada GPU Architecture whitepaper, L2 cache of the full chip"
_L4 = "NVIDIA, L4 Tensor Core GPU datasheet and product brief"
_L40S = "NVIDIA, L40S GPU datasheet and product brief"
_H100 = "NVIDIA, H100 Tensor Core GPU Architecture whitepaper, table 3"
_H100_SHEET = "NVIDIA, H100 Tensor Core GPU datasheet"
_H100_PCIE = "NVIDIA, H100 PCIe GPU product brief PB-11133-001"
_H200 = "NVIDIA, H200 Tensor Core GPU datasheet"
_B200 = "NVIDIA, Blackwell datasheet, HGX B200, individual GPU"
_HGX_B200 = "NVIDIA, HGX platform specifications, HGX B200 (8 GPUs)"
_RTX_BLACKWELL = "NVIDIA, RTX Blackwell GPU Architecture whitepaper, appendix A, GeForce RTX 5090"
_MI300X = "AMD, Instinct MI300X accelerator data sheet"
_CDNA3 = "AMD, CDNA 3 architecture white paper"
_ROCM_SPECS = "AMD, ROCm documentation, GPU specifications table, MI300X"
_ROCMINFO = "rocminfo on an MI300X (gfx942)"
_HALVED = "; halved, since it prints the rate with sparsity"
_DEVICE = "what the device itself reports to CUDA: "

_GEFORCE_PEAK = (
    "fp16 and fp8 are the rates with fp32 accumulation: GeForce tensor cores run at half the rate "
    "that they have with fp16 accumulation. bf16 always accumulates in fp32."
)
_GEFORCE_CLOCK = (
    "Reference clock. Boards often run faster, so measured rates can exceed the table's peaks."
)
_HOPPER_CLOCK = (
    "The clock of the fp32 peak. The tensor core peaks are rated at a lower clock: {mhz} MHz."
)

# By compute capability, from the programming guide's table: threads, warps and blocks per SM;
# shared memory per SM and per block in KB. Registers are the same for all.
_LIMITS = {
    (7, 5): (1024, 32, 16, 64, 64),
    (8, 0): (2048, 64, 32, 164, 163),
    (8, 6): (1536, 48, 16, 100, 99),
    (8, 9): (1536, 48, 24, 100, 99),
    (9, 0): (2048, 64, 32, 228, 227),
    (10, 0): (2048, 64, 32, 228, 227),
    (12, 0): (1536, 48, 24, 100, 99),
}
_LIMIT_FIELDS = (
    "max_threads_per_sm",
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "shared_memory_per_sm",
    "shared_memory_per_block",
    "registers_per_sm",
    "max_registers_per_thread",
    "warp_size",
)


def _nvidia(
    key: str,
    name: str,
    architecture: str,
    compute_capability: tuple[int, int],
    *,
    tflops: Mapping[str, float],
    gb_per_s: float,
    sms: int,
    memory_gb: int,
    l2_bytes: int,
    boost_mhz: float,
    sources: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> GPU:
    """Build an NVIDIA GPU; what its compute capability fixes comes from the programming guide."""
    threads, warps, blocks, per_sm, per_block = _LIMITS[compute_capability]
    return GPU(
        key=key,
        name=name,
        vendor="NVIDIA",
        architecture=architecture,
        compute_capability=compute_capability,
        bandwidth=gb_per_s * GB_PER_S,
        peak={dtype: rate * TFLOP_PER_S for dtype, rate in tflops.items()},
        sms=sms,
        memory_bytes=memory_gb * GIB,
        l2_bytes=l2_bytes,
        shared_memory_per_block=per_block * KIB,
        shared_memory_per_sm=per_sm * KIB,
        # The missing KB between the two columns of the guide's table.
        reserved_shared_memory_per_block=0 if compute_capability < (8, 0) else KIB,
        registers_per_sm=64 * KIB,
        max_registers_per_thread=255,
        max_threads_per_sm=threads,
        max_warps_per_sm=warps,
        max_blocks_per_sm=blocks,
        warp_size=32,
        boost_clock_hz=boost_mhz * MHZ,
        sources={
            "compute_capability": _CAPABILITY,
            **dict.fromkeys(_LIMIT_FIELDS, _CUDA_GUIDE),
            "reserved_shared_memory_per_block": _RESERVED,
            **sources,
        },
        notes=notes or {},
    )


_TABLE = (
    _nvidia(
        "t4",
        "T4",
        "Turing",
        (7, 5),
        tflops={"fp32": 8.1, "fp16": 65.0},
        gb_per_s=320.0,
        sms=40,
        memory_gb=16,
        l2_bytes=4 * MIB,
        boost_mhz=1590,
        sources={
            "bandwidth": f"{_T4}, 320 GB/s (256 bits at 10 Gbit/s)",
            "peak": _T4,
            "sms": f"{_T4}: 2560 CUDA cores, 64 per SM",
            "memory_bytes": _T4,
            "l2_bytes": f"{_DEVICE}4194304 bytes",
            "boost_clock_hz": _T4,
        },
        notes={
            "peak": (
                "No tf32 and no bf16 in hardware. Triton's tl.dot does not reach the fp16 tensor "
                "cores of compute capability 7.5; libraries do."
            ),
        },
    ),
    _nvidia(
        "l4",
        "L4",
        "Ada Lovelace",
        (8, 9),
        tflops={"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5},
        gb_per_s=300.0,
        sms=58,
        memory_gb=24,
        l2_bytes=48 * MIB,
        boost_mhz=2040,
        sources={
            "bandwidth": _L4,
            "peak": f"{_L4}{_HALVED} (except fp32)",
            "sms": f"{_DEVICE}58 SMs, as 7424 CUDA cores; the full AD104 has 60",
            "memory_bytes": _L4,
            "l2_bytes": f"{_ADA_CHIPS} AD104: 48 MB",
            "boost_clock_hz": _L4,
        },
    ),
    _nvidia(
        "a10",
        "A10",
        "Ampere",
        (8, 6),
        tflops={"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0},
        gb_per_s=600.0,
        sms=72,
        memory_gb=24,
        l2_bytes=6 * MIB,
        boost_mhz=1695,
        sources={
            "bandwidth": _A10,
            "peak": _A10,
            "sms": f"{_A10}: 9216 CUDA cores, 128 per SM",
            "memory_bytes": _A10,
            "l2_bytes": f"{_DEVICE}6291456 bytes",
            "boost_clock_hz": _A10,
        },
    ),
    _nvidia(
        "a100_40gb",
        "A100 40 GB",
        "Ampere",
        (8, 0),
        tflops={"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0},
        gb_per_s=1555.0,
        sms=108,
        memory_gb=40,
        l2_bytes=40 * MIB,
        boost_mhz=1410,
        sources=dict.fromkeys(
            ("bandwidth", "peak", "sms", "memory_bytes", "l2_bytes", "boost_clock_hz"), _A100
        ),
        notes={"bandwidth": "The same for the SXM4 and the PCIe card."},
    ),
    _nvidia(
        "a100_80gb",
        "A100 80 GB SXM",
        "Ampere",
        (8, 0),
        tflops={"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0},
        gb_per_s=2039.0,
        sms=108,
        memory_gb=80,
        l2_bytes=40 * MIB,
        boost_mhz=1410,
        sources={
            "bandwidth": _A100_SHEET,
            "peak": _A100_SHEET,
            "sms": _A100,
            "memory_bytes": _A100_SHEET,
            "l2_bytes": _A100,
            "boost_clock_hz": _A100,
        },
        notes={"bandwidth": "The SXM4 module. The PCIe card of 80 GB has 1935 GB/s."},
    ),
    _nvidia(
        "l40s",
        "L40S",
        "Ada Lovelace",
        (8, 9),
        tflops={"fp32": 91.6, "tf32": 183.0, "fp16": 362.05, "bf16": 362.05, "fp8": 733.0},
        gb_per_s=864.0,
        sms=142,
        memory_gb=48,
        l2_bytes=96 * MIB,
        boost_mhz=2520,
        sources={
            "bandwidth": _L40S,
            "peak": f"{_L40S}, which prints both rates",
            "sms": f"{_L40S}: 18176 CUDA cores, 128 per SM",
            "memory_bytes": _L40S,
            "l2_bytes": f"{_ADA_CHIPS} AD102: 96 MB",
            "boost_clock_hz": _L40S,
        },
    ),
    _nvidia(
        "h100_sxm",
        "H100 SXM",
        "Hopper",
        (9, 0),
        tflops={"fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9},
        gb_per_s=3350.0,
        sms=132,
        memory_gb=80,
        l2_bytes=50 * MIB,
        boost_mhz=1980,
        sources={
            "bandwidth": _H100_SHEET,
            "peak": f"{_H100}, which prints both rates",
            "sms": _H100,
            "memory_bytes": _H100,
            "l2_bytes": _H100,
            "boost_clock_hz": _H100,
        },
        notes={"boost_clock_hz": _HOPPER_CLOCK.format(mhz=1830)},
    ),
    _nvidia(
        "h100_pcie",
        "H100 PCIe",
        "Hopper",
        (9, 0),
        tflops={"fp32": 51.2, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0, "fp8": 1513.0},
        gb_per_s=2039.0,
        sms=114,
        memory_gb=80,
        l2_bytes=50 * MIB,
        boost_mhz=1755,
        sources={
            "bandwidth": f"{_H100_PCIE}: 5120 bits at a memory clock of 1593 MHz",
            "peak": f"{_H100}, which prints both rates",
            "sms": _H100,
            "memory_bytes": _H100,
            "l2_bytes": _H100,
            "boost_clock_hz": _H100,
        },
        notes={"boost_clock_hz": _HOPPER_CLOCK.format(mhz=1620)},
    ),
    _nvidia(
        "h200",
        "H200 SXM",
        "Hopper",
        (9, 0),
        tflops={"fp32": 67.0, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979.0},
        gb_per_s=4800.0,
        sms=132,
        memory_gb=141,
        l2_bytes=60 * MIB,
        boost_mhz=1980,
        sources={
            "bandwidth": _H200,
            "peak": f"{_H200}{_HALVED} (except fp32)",
            "sms": f"{_DEVICE}132 SMs",
            "memory_bytes": _H200,
            "l2_bytes": f"{_DEVICE}60 MB",
            "boost_clock_hz": "nvidia-smi on an H200, highest SM clock; also the H100 SXM's",
        },
        notes={"boost_clock_hz": _HOPPER_CLOCK.format(mhz="1830 (H100 SXM, the same chip)")},
    ),
    _nvidia(
        "b200",
        "B200",
        "Blackwell",
        (10, 0),
        tflops={"fp32": 75.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0},
        gb_per_s=7700.0,
        sms=148,
        memory_gb=180,
        l2_bytes=129536 * KIB,
        boost_mhz=1965,
        sources={
            "bandwidth": _B200,
            "peak": f"{_HGX_B200}, an eighth each{_HALVED} (except fp32); {_B200}",
            "sms": f"{_DEVICE}148 SMs",
            "memory_bytes": _B200,
            "l2_bytes": f"{_DEVICE}129536 KB; NVIDIA, Blackwell Tuning Guide: 126 MB",
            "boost_clock_hz": "nvidia-smi on a B200, highest SM clock",
        },
        notes={
            "bandwidth": "HGX B200. Announcements said 8 TB/s, which GB200 has.",
            "boost_clock_hz": (
                "The clock of the fp32 peak. The tensor core peaks follow from a lower clock, of "
                "about 1856 MHz, which the datasheet does not print."
            ),
        },
    ),
    _nvidia(
        "rtx3090",
        "GeForce RTX 3090",
        "Ampere",
        (8, 6),
        tflops={"fp32": 35.6, "tf32": 35.6, "fp16": 71.0, "bf16": 71.0},
        gb_per_s=936.0,
        sms=82,
        memory_gb=24,
        l2_bytes=6 * MIB,
        boost_mhz=1695,
        sources=dict.fromkeys(
            ("bandwidth", "peak", "sms", "memory_bytes", "l2_bytes", "boost_clock_hz"), _GA102
        ),
        notes={"peak": _GEFORCE_PEAK, "boost_clock_hz": _GEFORCE_CLOCK},
    ),
    _nvidia(
        "rtx4090",
        "GeForce RTX 4090",
        "Ada Lovelace",
        (8, 9),
        tflops={"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3},
        gb_per_s=1008.0,
        sms=128,
        memory_gb=24,
        l2_bytes=72 * MIB,
        boost_mhz=2520,
        sources=dict.fromkeys(
            ("bandwidth", "peak", "sms", "memory_bytes", "l2_bytes", "boost_clock_hz"), _ADA
        ),
        notes={"peak": _GEFORCE_PEAK, "boost_clock_hz": _GEFORCE_CLOCK},
    ),
    _nvidia(
        "rtx5090",
        "GeForce RTX 5090",
        "Blackwell",
        (12, 0),
        tflops={"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419.0},
        gb_per_s=1792.0,
        sms=170,
        memory_gb=32,
        l2_bytes=96 * MIB,
        boost_mhz=2407,
        sources=dict.fromkeys(
            ("bandwidth", "peak", "sms", "memory_bytes", "l2_bytes", "boost_clock_hz"),
            _RTX_BLACKWELL,
        ),
        notes={"peak": _GEFORCE_PEAK, "boost_clock_hz": _GEFORCE_CLOCK},
    ),
    GPU(
        key="mi300x",
        name="Instinct MI300X",
        vendor="AMD",
        architecture="CDNA 3",
        compute_capability=None,
        bandwidth=5300 * GB_PER_S,
        peak={
            "fp32": 163.4 * TFLOP_PER_S,
            "tf32": 653.7 * TFLOP_PER_S,
            "fp16": 1307.4 * TFLOP_PER_S,
            "bf16": 1307.4 * TFLOP_PER_S,
            "fp8": 2614.9 * TFLOP_PER_S,
        },
        sms=304,
        memory_bytes=192 * GIB,
        l2_bytes=4 * MIB,
        shared_memory_per_block=64 * KIB,
        shared_memory_per_sm=64 * KIB,
        reserved_shared_memory_per_block=0,
        registers_per_sm=128 * KIB,
        max_registers_per_thread=512,
        max_threads_per_sm=2048,
        max_warps_per_sm=32,
        max_blocks_per_sm=32,
        warp_size=64,
        boost_clock_hz=2100 * MHZ,
        sources={
            "bandwidth": _MI300X,
            "peak": f"{_MI300X}, which prints both rates",
            "sms": _MI300X,
            "memory_bytes": _MI300X,
            "l2_bytes": f"{_CDNA3}; {_ROCM_SPECS}: 32 MB (4 MB per XCD)",
            "shared_memory_per_block": f"{_ROCM_SPECS}: LDS",
            "shared_memory_per_sm": f"{_ROCM_SPECS}: LDS",
            "reserved_shared_memory_per_block": "no AMD document mentions a reservation",
            "registers_per_sm": f"{_ROCM_SPECS}: 512 KB of vector registers of 4 bytes",
            "max_registers_per_thread": (
                "LLVM, User Guide for the AMDGPU Backend, gfx90a and gfx942: 512 in all"
            ),
            "max_threads_per_sm": f"{_ROCMINFO}: max work-items per CU",
            "max_warps_per_sm": f"{_ROCMINFO}: max waves per CU",
            "max_blocks_per_sm": "LLVM, AMDGPU backend, getMaxWorkGroupsPerCU",
            "warp_size": _ROCM_SPECS,
            "boost_clock_hz": f"{_MI300X}: peak engine clock",
        },
        notes={
            "compute_capability": "AMD has none; compilers call the architecture gfx942.",
            "sms": "Compute units: 38 on each of 8 dies (XCDs).",
            "l2_bytes": (
                "Per XCD, which is what a compute unit sees and what the device reports. The eight "
                "have 32 MB, but what two of them read is cached twice. Behind them lies a last "
                "level of 256 MB (Infinity Cache), which the NVIDIA GPUs here do not have."
            ),
            "shared_memory_per_block": "AMD calls it LDS; there is nothing to opt in to.",
            "registers_per_sm": (
                "Vector registers, counted per thread as for NVIDIA. Scalar registers are extra."
            ),
            "max_registers_per_thread": "256 general ones and 256 accumulation registers.",
            "max_blocks_per_sm": (
                "For blocks of one wavefront. Larger ones are limited by the 32 wavefronts; the 16 "
                "barriers that they share never limit them further."
            ),
        },
    ),
)

GPUS: Mapping[str, GPU] = MappingProxyType({entry.key: entry for entry in _TABLE})
"""Every GPU of the course by key, NVIDIA's data-centre cards first."""

# What torch.cuda.get_device_name() returns, word by word: a laptop chip, a cut-down variant ("Ti",
# "D", "NVL") or a slice of a GPU ("MIG 1g.5gb") has a longer name and is another GPU.
_DEVICE_NAMES = {
    "t4": ("Tesla T4", "NVIDIA T4"),
    "l4": ("NVIDIA L4",),
    "a10": ("NVIDIA A10",),
    "a100_40gb": ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
    "a100_80gb": ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM-80GB"),
    "l40s": ("NVIDIA L40S",),
    "h100_sxm": ("NVIDIA H100 80GB HBM3",),
    "h100_pcie": ("NVIDIA H100 PCIe",),
    "h200": ("NVIDIA H200",),
    "b200": ("NVIDIA B200",),
    "rtx3090": ("NVIDIA GeForce RTX 3090",),
    "rtx4090": ("NVIDIA GeForce RTX 4090",),
    "rtx5090": ("NVIDIA GeForce RTX 5090",),
    "mi300x": ("AMD Instinct MI300X", "AMD Instinct MI300X OAM", "AMD Instinct MI300X VF"),
}
# What people type. A bare family name means its usual member: the A100 of Colab and of the
# FlashAttention paper, the H100 of the usual 8-GPU server.
_NICKNAMES = {
    "a100": "a100_40gb",
    "a100_40gb_sxm": "a100_40gb",
    "a100_40gb_pcie": "a100_40gb",
    "a100_80gb": "a100_80gb",
    "h100": "h100_sxm",
    "h100_sxm5": "h100_sxm",
    "h100_80gb": "h100_sxm",
    "h200_sxm": "h200",
    "3090": "rtx3090",
    "4090": "rtx4090",
    "5090": "rtx5090",
}


def _device_key(name: str) -> str:
    """Normalise a device name: older drivers leave "NVIDIA" out."""
    return " ".join(name.lower().split()).removeprefix("nvidia ")


def _compact(name: str) -> str:
    """Reduce a name to what tells one GPU from another: no brands, no punctuation, no case."""
    bare = re.sub(r"\b(nvidia|amd|tesla|geforce|instinct)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]", "", bare)


_BY_DEVICE_NAME = {
    _device_key(name): GPUS[key] for key, names in _DEVICE_NAMES.items() for name in names
}
_BY_ANY_NAME = {
    **{_compact(nickname): GPUS[key] for nickname, key in _NICKNAMES.items()},
    **{_compact(name): GPUS[key] for key, names in _DEVICE_NAMES.items() for name in names},
    **{_compact(name): entry for entry in _TABLE for name in (entry.key, entry.name)},
}


def gpu(key_or_name: str) -> GPU:
    """Return a GPU of the table by key, name or device name.

    Case, brand and punctuation do not matter: "h200", "H200", "NVIDIA H200" are the same. "A100"
    means the one of 40 GB, "H100" the SXM module.

    Args:
        key_or_name: e.g. "rtx4090", "A100 80GB", "NVIDIA H100 PCIe".

    Raises:
        ValueError: if the name is not in the table; the message lists the keys.
    """
    found = _BY_ANY_NAME.get(_compact(key_or_name)) if isinstance(key_or_name, str) else None
    if found is None:
        raise ValueError(f"Unknown GPU {key_or_name!r}. Use one of these keys: {', '.join(GPUS)}.")
    return found


def find(device_name: str, memory_bytes: int | None = None) -> GPU | None:
    """Return the GPU that a device name means, or None if the table does not have it.

    Strict on purpose, unlike `gpu`: a similar GPU's figures would be wrong. Laptop chips, variants
    and MIG slices give None.

    Args:
        device_name: what ``torch.cuda.get_device_name()`` returns.
        memory_bytes: what the device reports as its total memory; if it is far from the table's,
            the device is a slice of that GPU or a variant, and None is returned.
    """
    found = _BY_DEVICE_NAME.get(_device_key(device_name))
    if found is None:
        return None
    # ECC and the driver take up to 9 % of GDDR cards (L4, A10, T4); nothing reports more.
    if memory_bytes is not None and not 0.88 <= memory_bytes / found.memory_bytes <= 1.02:
        return None
    return found
