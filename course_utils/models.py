"""Pure formulas of the course: roofline, tiles of a matmul or of rows, occupancy, warp requests.

Units everywhere: bytes, FLOP, seconds, bytes/s, FLOP/s, FLOP/byte. A fused multiply-add is 2 FLOP.
Nothing here measures or imports anything; every function is arithmetic on its arguments, and
refuses an argument that makes no physical sense with a ``ValueError`` that names it.

The roofline is Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model
for Multicore Architectures", Communications of the ACM 52(4), 2009. Occupancy follows NVIDIA's own
calculator, the header cuda_occupancy.h of the CUDA Toolkit (13.5).
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, SupportsFloat, SupportsIndex

if TYPE_CHECKING:
    from course_utils.gpus import GPU


def _number(name: str, value: SupportsFloat, unit: str, *, zero_allowed: bool) -> float:
    """Return ``value`` as a finite float that is positive (or at least zero)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    in_range = number >= 0 if zero_allowed else number > 0
    # A string such as "1e12" converts, but is a mistake of the caller.
    if isinstance(value, str) or not math.isfinite(number) or not in_range:
        kind = "zero or a positive, finite number" if zero_allowed else "a positive, finite number"
        raise ValueError(f"{name} must be {kind} ({unit}), but is {value!r}.")
    return number


def _count(name: str, value: SupportsIndex, unit: str) -> int:
    """Return ``value`` as an int of at least 1; floats are refused, since sizes are exact."""
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} must be an integer of at least 1 ({unit}), but is {value!r}.")
    return count


def ridge(peak: float, bandwidth: float) -> float:
    """Return the ridge point in FLOP/byte: the intensity from which the peak can be reached.

    Args:
        peak: the compute ceiling in FLOP/s.
        bandwidth: the memory ceiling in bytes/s.

    Raises:
        ValueError: if an argument is zero, negative, infinite or NaN.
    """
    return _number("peak", peak, "FLOP/s", zero_allowed=False) / _number(
        "bandwidth", bandwidth, "bytes/s", zero_allowed=False
    )


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """Return the roofline in FLOP/s at ``intensity``: min(peak, intensity * bandwidth).

    Args:
        intensity: FLOP per byte moved; 0 is allowed (a copy computes nothing).
        peak: the compute ceiling in FLOP/s.
        bandwidth: the memory ceiling in bytes/s.

    Raises:
        ValueError: if ``intensity`` is negative, or any argument is infinite or NaN, or a ceiling
            is not positive.
    """
    intensity = _number("intensity", intensity, "FLOP/byte", zero_allowed=True)
    peak = _number("peak", peak, "FLOP/s", zero_allowed=False)
    bandwidth = _number("bandwidth", bandwidth, "bytes/s", zero_allowed=False)
    return min(peak, intensity * bandwidth)


def bound(intensity: float, peak: float, bandwidth: float) -> Literal["memory", "compute"]:
    """Say which ceiling limits a kernel of this intensity.

    Exactly at the ridge both ceilings are reached together; that counts as "compute".

    Args:
        intensity: FLOP per byte moved; 0 is allowed (a copy computes nothing).
        peak: the compute ceiling in FLOP/s.
        bandwidth: the memory ceiling in bytes/s.

    Raises:
        ValueError: as `attainable`.
    """
    intensity = _number("intensity", intensity, "FLOP/byte", zero_allowed=True)
    return "memory" if intensity < ridge(peak, bandwidth) else "compute"


def roofline_time(flops: float, nbytes: float, peak: float, bandwidth: float) -> float:
    """Return the shortest time in seconds that the roofline allows.

    The longer of computing and moving: max(flops / peak, nbytes / bandwidth). It assumes that both
    overlap perfectly and that launching costs nothing, so it is a lower limit, no prediction.

    Args:
        flops: FLOP of the work; 0 is allowed (a copy).
        nbytes: bytes moved, reads and writes together; 0 is allowed (a view moves nothing).
        peak: the compute ceiling in FLOP/s.
        bandwidth: the memory ceiling in bytes/s.

    Raises:
        ValueError: if an argument is negative, infinite or NaN, or a ceiling is not positive.
    """
    flops = _number("flops", flops, "FLOP", zero_allowed=True)
    nbytes = _number("nbytes", nbytes, "bytes", zero_allowed=True)
    peak = _number("peak", peak, "FLOP/s", zero_allowed=False)
    bandwidth = _number("bandwidth", bandwidth, "bytes/s", zero_allowed=False)
    return max(flops / peak, nbytes / bandwidth)


def matmul_flops(m: int, n: int, k: int) -> int:
    """Return the FLOP of an (m, k) by (k, n) matmul: 2 m n k, a multiply and an add per term.

    Raises:
        ValueError: if a size is not an integer of at least 1.
    """
    m, n, k = _count("m", m, "rows"), _count("n", n, "columns"), _count("k", k, "inner size")
    return 2 * m * n * k


def tile_loads(m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int) -> int:
    """Return the bytes that a tiled (m, k) by (k, n) matmul loads from memory, no cache helping.

    Each program computes one block_m by block_n tile of the output, and for it reads its block_m
    rows of A and its block_n columns of B once. So A is read once per column of tiles and B once
    per row of tiles: (m k ceil(n / block_n) + n k ceil(m / block_m)) * itemsize. Lanes that a mask
    switches off at a ragged edge are not counted, which makes this exact for every size; the
    tile's depth does not matter.

    Args:
        m: rows of A and of the output.
        n: columns of B and of the output.
        k: inner size.
        block_m: rows of the output tile.
        block_n: columns of the output tile.
        itemsize: bytes per element of A and of B.

    Raises:
        ValueError: if an argument is not an integer of at least 1.
    """
    m, n, k = _count("m", m, "rows"), _count("n", n, "columns"), _count("k", k, "inner size")
    block_m = _count("block_m", block_m, "rows of a tile")
    block_n = _count("block_n", block_n, "columns of a tile")
    itemsize = _count("itemsize", itemsize, "bytes per element")
    # -(-a // b) is ceil(a / b) without going through floats.
    return (m * k * -(-n // block_n) + n * k * -(-m // block_m)) * itemsize


def tile_traffic(m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int) -> int:
    """Return the bytes that a tiled matmul loads and stores: `tile_loads` plus the m n output.

    Args:
        m: rows of A and of the output.
        n: columns of B and of the output.
        k: inner size.
        block_m: rows of the output tile.
        block_n: columns of the output tile.
        itemsize: bytes per element of A, of B and of the output.

    Raises:
        ValueError: if an argument is not an integer of at least 1.
    """
    return tile_loads(m, n, k, block_m, block_n, itemsize) + m * n * itemsize


def tile_intensity(
    block_m: int, block_n: int, block_k: int | None = None, *, itemsize: int
) -> float:
    """Return the FLOP per byte loaded of one step of a tiled matmul.

    A step multiplies a (block_m, block_k) tile by a (block_k, block_n) tile:
    2 block_m block_n block_k / ((block_m + block_n) block_k itemsize). The depth cancels, so it
    may be left out. A square tile of side B has B / itemsize: B / 4 in fp32, B / 2 in bf16. The
    output's store is left out; over a long inner size it vanishes.

    Args:
        block_m: rows of the output tile.
        block_n: columns of the output tile.
        block_k: depth of a step; does not change the result.
        itemsize: bytes per element of A and of B.

    Raises:
        ValueError: if an argument is not an integer of at least 1.
    """
    block_m = _count("block_m", block_m, "rows of a tile")
    block_n = _count("block_n", block_n, "columns of a tile")
    itemsize = _count("itemsize", itemsize, "bytes per element")
    if block_k is not None:
        _count("block_k", block_k, "depth of a tile")
    return 2 * block_m * block_n / ((block_m + block_n) * itemsize)


def tile_footprint(
    block_m: int, block_n: int, block_k: int, *, itemsize: int, stages: int = 1
) -> int:
    """Return the bytes of shared memory that the two input tiles of a step occupy.

    (block_m block_k + block_k block_n) * itemsize * stages. The accumulator lives in registers and
    padding against bank conflicts is not counted.

    Args:
        block_m: rows of the output tile.
        block_n: columns of the output tile.
        block_k: depth of a step.
        itemsize: bytes per element of A and of B.
        stages: how many steps are held at once (software pipelining).

    Raises:
        ValueError: if an argument is not an integer of at least 1.
    """
    block_m = _count("block_m", block_m, "rows of a tile")
    block_n = _count("block_n", block_n, "columns of a tile")
    block_k = _count("block_k", block_k, "depth of a tile")
    itemsize = _count("itemsize", itemsize, "bytes per element")
    stages = _count("stages", stages, "pipeline stages")
    return (block_m + block_n) * block_k * itemsize * stages


@dataclass(frozen=True)
class RowTraffic:
    """What a kernel that reduces rows asks of memory; see `row_traffic`.

    Attributes:
        programs: of the launch.
        steps: of each program's loop beyond the tile that it keeps; 0 without one.
        bytes_read: requested bytes of loads.
        bytes_written: requested bytes of stores.
        compulsory_bytes: each distinct address once, read and written.
        masked_lanes_read: lanes of loads that lie beyond the matrix.
        masked_lanes_written: lanes of stores that lie beyond it.
    """

    programs: int
    steps: int
    bytes_read: int
    bytes_written: int
    compulsory_bytes: int
    masked_lanes_read: int
    masked_lanes_written: int


def row_traffic(
    rows: int,
    columns: int,
    itemsize: int,
    *,
    tile_rows: int,
    tile_columns: int,
    step: int = 0,
    again: bool = False,
) -> RowTraffic:
    """Return the traffic of a kernel that reduces each row and writes a row of the same length.

    A program reads a tile of whole rows and writes it; with `again` it reads the tile twice. With a
    `step`, it has one row, of which it keeps tile_columns; the rest it reads twice, in tiles of
    `step` columns, and writes once. The last tile in each direction may stand over the edge.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        itemsize: bytes per element, of input and output.
        tile_rows: rows of a program; 1 with a step.
        tile_columns: columns of the tile; at least `columns`, unless there is a step.
        step: columns of each step of the loop; 0: no loop.
        again: read the tile a second time; not with a step.

    Raises:
        ValueError: if a size is not an integer of at least 1 (0 is allowed for `step`), or the
            tiles do not cover the rows as described.
    """
    rows, columns = _count("rows", rows, "rows"), _count("columns", columns, "columns")
    itemsize = _count("itemsize", itemsize, "bytes per element")
    tile_rows = _count("tile_rows", tile_rows, "rows of a tile")
    tile_columns = _count("tile_columns", tile_columns, "columns of a tile")
    step = _count("step", step, "columns of a step; 0 for no loop") if step != 0 else 0
    if step and (tile_rows != 1 or again):
        raise ValueError("with a step a program has one row (tile_rows=1), and again=False.")
    if not step and tile_columns < columns:
        raise ValueError(
            f"a tile of {tile_columns} columns does not hold a row of {columns}: "
            "give a wider tile, or a step."
        )
    programs = -(-rows // tile_rows)
    rest = max(columns - tile_columns, 0)
    steps = -(-rest // step) if step else 0
    tile_masked = programs * tile_rows * tile_columns - rows * (columns - rest)
    rest_masked = rows * (steps * step - rest)
    passes = 2 if again else 1
    return RowTraffic(
        programs,
        steps,
        rows * (passes * (columns - rest) + 2 * rest) * itemsize,
        rows * columns * itemsize,
        2 * rows * columns * itemsize,
        passes * tile_masked + 2 * rest_masked,
        tile_masked + rest_masked,
    )


# What NVIDIA's hardware gives out in units, by cuda_occupancy.h: the functions
# cudaOccRegAllocationGranularity, cudaOccSubPartitionsPerMultiprocessor and
# cudaOccSMemAllocationGranularity. The same for every compute capability of the table of GPUs,
# except that shared memory comes in larger units before 8.0.
REGISTER_UNIT = 256  # registers, per warp
PARTITIONS_PER_SM = 4  # each with a quarter of the registers, for its own warps
SHARED_MEMORY_UNIT = 128  # bytes
SHARED_MEMORY_UNIT_BEFORE_8_0 = 256
# CUDA C++ Programming Guide, Compute Capabilities, Technical Specifications: the same for all.
MAX_THREADS_PER_BLOCK = 1024


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds at once, and which resource allows no more.

    Attributes:
        blocks_per_sm: resident blocks; 0 if not even one fits.
        warps_per_sm: resident warps.
        max_warps_per_sm: warps that the SM could hold.
        limits: blocks that each resource alone would allow: "warps", "blocks", "registers",
            "shared memory". A resource that the kernel does not use is absent.
    """

    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    limits: Mapping[str, int] = field(hash=False)

    @property
    def fraction(self) -> float:
        """Resident warps by the warps that the SM could hold, 0 to 1: the occupancy."""
        return self.warps_per_sm / self.max_warps_per_sm

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that allow no further block; all of them, where several run out at once."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks_per_sm)

    def __str__(self) -> str:
        return (
            f"{self.fraction:.0%}: {self.blocks_per_sm} block{'s' * (self.blocks_per_sm != 1)} and "
            f"{self.warps_per_sm} of {self.max_warps_per_sm} warps per SM, limited by "
            f"{' and '.join(self.limited_by)}"
        )


def occupancy(
    gpu: GPU,
    threads_per_block: int,
    registers_per_thread: int,
    shared_memory_per_block: int = 0,
) -> Occupancy:
    """Return how many blocks of a kernel one SM of ``gpu`` holds at once.

    The smallest of four limits, each rounded as the hardware allocates (NVIDIA, cuda_occupancy.h,
    the functions cudaOccMaxBlocksPerSM...Limit):

    - warps: the SM's warps by the block's; a last, incomplete warp counts whole.
    - blocks: the most that an SM holds.
    - registers: 32 times the registers of a thread, rounded up to 256, for each warp. A warp lives
      in one of four partitions, so each partition holds a whole number of warps.
    - shared memory: what the block asks for and what the system reserves, rounded up to 128 bytes
      (256 before compute capability 8.0). Most shared memory that the SM can have is assumed,
      which is what a driver chooses for a kernel that is limited by it.

    Barriers, of which a block of more than a few can also run short, are left out.

    Args:
        gpu: an NVIDIA GPU of `course_utils.gpus`.
        threads_per_block: 1 to 1024.
        registers_per_thread: as the compiler reports them.
        shared_memory_per_block: bytes that the kernel asks for, static and dynamic together.

    Raises:
        ValueError: if a number is no integer or out of range, or the GPU is not NVIDIA's. A block
            that asks for more registers or shared memory than there are is no error; then
            `blocks_per_sm` is 0 and `limited_by` says why.
    """
    if gpu.vendor != "NVIDIA":
        raise ValueError(
            f"occupancy() knows how NVIDIA GPUs allocate, but {gpu.name} is from {gpu.vendor}. "
            "Choose an NVIDIA GPU, such as gpus.gpu('h200')."
        )
    threads = _count("threads_per_block", threads_per_block, "threads")
    registers = _count("registers_per_thread", registers_per_thread, "32-bit registers")
    shared = shared_memory_per_block
    if shared != 0:
        shared = _count("shared_memory_per_block", shared, "bytes; 0 is allowed")
    if threads > MAX_THREADS_PER_BLOCK:
        raise ValueError(
            f"threads_per_block is {threads}, but a block has at most {MAX_THREADS_PER_BLOCK}."
        )

    warps = -(-threads // gpu.warp_size)
    limits = {"warps": gpu.max_warps_per_sm // warps, "blocks": gpu.max_blocks_per_sm}

    per_warp = _round_up(registers * gpu.warp_size, REGISTER_UNIT)
    warps_per_partition = gpu.registers_per_sm // PARTITIONS_PER_SM // per_warp
    limits["registers"] = PARTITIONS_PER_SM * warps_per_partition // warps
    if registers > gpu.max_registers_per_thread:
        limits["registers"] = 0

    old = gpu.compute_capability < (8, 0)
    unit = SHARED_MEMORY_UNIT_BEFORE_8_0 if old else SHARED_MEMORY_UNIT
    allocated = _round_up(shared + gpu.reserved_shared_memory_per_block, unit)
    if shared > gpu.shared_memory_per_block:
        limits["shared memory"] = 0
    elif shared:
        limits["shared memory"] = gpu.shared_memory_per_sm // allocated

    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, gpu.max_warps_per_sm, MappingProxyType(limits))


def _round_up(value: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that is not below ``value``."""
    return -(-value // unit) * unit


# CUDA C++ Programming Guide, Hardware Implementation and Compute Capabilities: the same for all.
WARP_SIZE = 32
SECTOR_BYTES = 32  # global memory moves in these; the guide's "32-byte memory transactions"
BANKS = 32
BANK_BYTES = 4  # successive 32-bit words of shared memory lie in successive banks


def sectors(addresses: Iterable[int | None], itemsize: int) -> int:
    """Return how many 32-byte sectors of global memory one request of a warp touches.

    Lanes that name the same sector share it; an element that lies across the border of two sectors
    touches both. 32 lanes that read consecutive 4-byte elements touch 4, with a stride of 8
    elements or more 32.

    Args:
        addresses: the byte address of each lane's element; None for a lane that takes no part.
        itemsize: bytes per element.

    Raises:
        ValueError: if there are more than 32 lanes, an address is negative or no integer, or
            ``itemsize`` is not an integer of at least 1.
    """
    lanes = _lanes(addresses)
    itemsize = _count("itemsize", itemsize, "bytes per element")
    return len(_units(lanes, itemsize, SECTOR_BYTES))


def bank_conflicts(addresses: Iterable[int | None], itemsize: int) -> int:
    """Return the degree of bank conflict of one request of a warp to shared memory.

    How many different 32-bit words the busiest of the 32 banks has to deliver, one after the
    other: 1 is free of conflicts, 32 is the worst. Lanes that name the same word share it, whatever
    bytes of it they want. A warp's 8-byte elements are delivered by halves of the warp and its
    16-byte elements by quarters, since a half or a quarter of them fills all banks; a conflict is
    one within such a part.

    Args:
        addresses: the byte address of each lane's element, in the order of the lanes; None for a
            lane that takes no part.
        itemsize: bytes per element, at most 16.

    Returns:
        1 to 32; 0 if no lane takes part.

    Raises:
        ValueError: as `sectors`, and if ``itemsize`` is more than 16.
    """
    lanes = _lanes(addresses)
    itemsize = _count("itemsize", itemsize, "bytes per element")
    if itemsize > 16:
        raise ValueError(f"itemsize is {itemsize}, but a lane accesses at most 16 bytes at once.")
    together = WARP_SIZE * BANK_BYTES // max(itemsize, BANK_BYTES)
    degree = 0
    for first in range(0, len(lanes), together):
        words = _units(lanes[first : first + together], itemsize, BANK_BYTES)
        degree = max(degree, *Counter(word % BANKS for word in words).values(), 0)
    return degree


def _lanes(addresses: Iterable[int | None]) -> Sequence[int | None]:
    """Return a warp's addresses as a list, checked."""
    lanes = list(addresses)
    if len(lanes) > WARP_SIZE:
        raise ValueError(f"a warp has {WARP_SIZE} lanes, but there are {len(lanes)} addresses.")
    for lane, address in enumerate(lanes):
        if address is None:
            continue
        try:
            lanes[lane] = operator.index(address)
        except TypeError:
            lanes[lane] = -1
        if lanes[lane] < 0:
            raise ValueError(
                f"the address of lane {lane} must be an integer of at least 0 (bytes), or None for "
                f"a lane that takes no part, but is {address!r}."
            )
    return lanes


def _units(lanes: Sequence[int | None], itemsize: int, unit: int) -> set[int]:
    """Return the numbers of all units, ``unit`` bytes each, that the lanes' elements touch."""
    return {
        number
        for address in lanes
        if address is not None
        for number in range(address // unit, (address + itemsize - 1) // unit + 1)
    }
