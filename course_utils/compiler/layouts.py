"""Which thread owns which element of a tile: the compiler's layouts, read from its TTGIR.

Triton decides for every tile how its elements are spread over the registers of the threads of a
program, and writes the decision into its intermediate code (TTGIR) as the tile's encoding. Here
the encodings of loads and stores are read as `Layout`, pure data.

All encodings are linear (Triton's own theory: Zhou et al., "Linear Layouts: Robust Code Generation
of Efficient Tensor Computation Using F2", 2025): the element that a register of a lane of a warp
holds is the exclusive or of one offset for each bit that is set in the three numbers. So a layout
is those offsets.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WARP_SIZE = 32
VECTOR_BYTES = 16  # the most that one instruction loads for a thread; newest GPUs can do 32
SECTOR_BYTES = 32  # what a GPU's memory moves at least; NVIDIA, CUDA C++ Programming Guide


class Owner(NamedTuple):
    """The place of an element: a warp of the program, a lane (thread) of it, one of its registers.

    Registers are counted in elements: an element of 16 bits takes half of a real one.
    """

    warp: int
    lane: int
    register: int


@dataclass(frozen=True)
class Layout:
    """How a tile lies in the registers of a program's threads.

    Attributes:
        shape: of the tile.
        registers: for each bit of the register's number, the offset in the tile that it adds.
        lanes: the same for the lane's number, five bits.
        warps: the same for the warp's number. An offset of zeros means that the bit makes no
            difference: several threads then hold the same element.
        kind: the encoding's name: "blocked", "slice", "linear", "nvidia_mma".
        parameters: of a blocked encoding what it says: "sizePerThread", "threadsPerWarp",
            "warpsPerCTA", "order"; else empty.
    """

    shape: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    lanes: tuple[tuple[int, ...], ...]
    warps: tuple[tuple[int, ...], ...]
    kind: str = "linear"
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    @property
    def num_warps(self) -> int:
        """Warps of the program."""
        return 2 ** len(self.warps)

    @property
    def elements_per_thread(self) -> int:
        """Elements of the tile that each thread holds."""
        return 2 ** len(self.registers)

    def element(self, warp: int, lane: int, register: int) -> tuple[int, ...]:
        """Return the index of the element that a register of a thread holds.

        Raises:
            IndexError: there is no such warp, lane or register.
        """
        numbers = ((warp, self.warps), (lane, self.lanes), (register, self.registers))
        for name, (number, offsets) in zip(("warp", "lane", "register"), numbers, strict=True):
            if not 0 <= number < 2 ** len(offsets):
                raise IndexError(
                    f"There is no {name} {number}; there are {2 ** len(offsets)}, from 0 on."
                )
        index = [0] * len(self.shape)
        for number, offsets in numbers:
            for bit, offset in enumerate(offsets):
                if number >> bit & 1:
                    index = [i ^ o for i, o in zip(index, offset, strict=True)]
        return tuple(index)

    def owner(self, *index: int) -> Owner:
        """Return who holds the element of this index; of several the first warp, lane, register.

        Raises:
            IndexError: the index is outside the tile.
        """
        self._check(index)
        return self._owners[index][0]

    def owners(self, *index: int) -> tuple[Owner, ...]:
        """Return all that hold the element of this index, in order."""
        self._check(index)
        return self._owners[index]

    def _check(self, index: tuple[int, ...]) -> None:
        inside = len(index) == len(self.shape) and all(
            0 <= i < size for i, size in zip(index, self.shape, strict=False)
        )
        if not inside:
            raise IndexError(f"The tile is {_times(self.shape)}, which has no element {index}.")

    @functools.cached_property
    def _owners(self) -> dict[tuple[int, ...], tuple[Owner, ...]]:
        found: dict[tuple[int, ...], list[Owner]] = {}
        numbers = (range(2 ** len(part)) for part in (self.warps, self.lanes, self.registers))
        for place in itertools.product(*numbers):
            found.setdefault(self.element(*place), []).append(Owner(*place))
        return {index: tuple(owners) for index, owners in found.items()}

    @property
    def fastest(self) -> int:
        """The axis along which a thread's elements, and then neighbouring threads, follow.

        In a load or store it is the axis along which the compiler found the addresses contiguous.
        """
        if self.parameters:
            return self.parameters["order"][0]
        for offset in (*self.registers, *self.lanes, *self.warps):
            if any(offset):
                return max(range(len(offset)), key=offset.__getitem__)
        return len(self.shape) - 1

    @property
    def vector(self) -> int:
        """Elements that each thread holds in a row along the fastest axis.

        So many could be loaded by one instruction, if their address allows.
        """
        count = 1
        for offset in self.registers:
            if offset != _unit(self.fastest, count, len(self.shape)):
                break
            count *= 2
        return count

    def instruction(self, elements: int | None = None, warp: int = 0) -> list[list[tuple]]:
        """Return, for each of the 32 lanes of a warp, the indices that it touches at once.

        Args:
            elements: that one instruction moves for each lane; by default `vector`.
            warp: which.
        """
        count = self.vector if elements is None else min(elements, self.elements_per_thread)
        return [[self.element(warp, lane, r) for r in range(count)] for lane in range(WARP_SIZE)]

    def __str__(self) -> str:
        if not self.parameters:
            return f"{_times(self.shape)} tile over {self.num_warps} warps ({self.kind})"
        per_thread, threads, warps = (
            self.parameters[key] for key in ("sizePerThread", "threadsPerWarp", "warpsPerCTA")
        )
        one = math.prod(per_thread) == 1
        order = f", axis {self.fastest} first" * (len(self.shape) > 1)
        return (
            f"{_times(self.shape)} tile: {_times(per_thread)} element{'s' * (not one)} per thread, "
            f"{_times(threads)} threads per warp, {_times(warps)} warps per program{order}"
        )


@dataclass(frozen=True)
class Access:
    """A load or store of a tile in a compiled kernel.

    Attributes:
        kind: "load", "store", "atomic", or "async_copy" (from global to shared memory).
        argument: the parameter that the address comes from; None if it could not be followed.
        bits: of an element.
        layout: who loads or stores which element; None for an encoding that is not known here.
        encoding: the compiler's text of it.
        line: of the kernel's (or helper's) source, 1 for its ``def``; 0 if unknown.
        function: the function that the line is of; empty if unknown.
    """

    kind: str
    argument: str | None
    bits: int
    layout: Layout | None
    encoding: str
    line: int = 0
    function: str = ""

    @property
    def vector(self) -> int:
        """Elements that one instruction can move for a thread: at most 16 bytes."""
        if self.layout is None:
            raise ValueError(
                f"The layout of this {self.kind} is of a kind that is not known here: "
                f"{self.encoding}"
            )
        return min(self.layout.vector, max(8 * VECTOR_BYTES // self.bits, 1))

    def instruction(self, warp: int = 0) -> list[list[tuple]]:
        """Return, for each lane of a warp, the indices that its first instruction touches."""
        vector = self.vector
        return self.layout.instruction(vector, warp)

    def sectors(self) -> int:
        """Return how many sectors of 32 bytes the first instruction of warp 0 touches.

        The fewer for the bytes it needs, the better it is coalesced: 32 threads with 4 bytes each
        need 4 sectors at best and 32 at worst. Taken is what the compiler knew: addresses are
        contiguous along the layout's fastest axis, rows are far apart, and the tile begins at a
        sector.
        """
        return len({self.sector(index) for lane in self.instruction() for index in lane})

    def sector(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Return the row of the tile and the sector of that row that an element lies in."""
        axis = self.layout.fastest
        begin = index[axis] * self.bits // 8
        return index[:axis] + index[axis + 1 :], begin // SECTOR_BYTES


# ---------------------------------------------------------------------------------------------
# Encodings
# ---------------------------------------------------------------------------------------------


def blocked(
    shape: Sequence[int],
    size_per_thread: Sequence[int],
    threads_per_warp: Sequence[int],
    warps_per_program: Sequence[int],
    order: Sequence[int],
) -> Layout:
    """Return the layout of a blocked encoding (``#ttg.blocked``) over a tile.

    Each thread holds a block of `size_per_thread` elements; the threads of a warp lie beside each
    other, then the warps, all with the axes in `order`, the fastest first. A larger tile is covered
    by repeating this; of a smaller one several threads hold the same element.

    All numbers are powers of two.
    """
    parts = [_along(axes, order) for axes in (size_per_thread, threads_per_warp, warps_per_program)]
    registers, lanes, warps = _stack(parts, len(shape))
    registers, lanes, warps = (_within(part, shape) for part in (registers, lanes, warps))
    covered = [
        min(a * b * c, size)
        for a, b, c, size in zip(
            size_per_thread, threads_per_warp, warps_per_program, shape, strict=True
        )
    ]
    for axis in order:
        while covered[axis] < shape[axis]:
            registers.append(_unit(axis, covered[axis], len(shape)))
            covered[axis] *= 2
    names = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    values = (size_per_thread, threads_per_warp, warps_per_program, order)
    return Layout(
        tuple(shape),
        # A register that would repeat an element is not there.
        tuple(offset for offset in registers if any(offset)),
        tuple(lanes),
        tuple(warps),
        "blocked",
        {name: tuple(value) for name, value in zip(names, values, strict=True)},
    )


def _along(sizes: Sequence[int], order: Sequence[int]) -> list[tuple[int, int]]:
    """Return (axis, bit) for the bits of a number that counts through an array, fastest first."""
    return [(axis, bit) for axis in order for bit in range(sizes[axis].bit_length() - 1)]


def _stack(parts: list[list[tuple[int, int]]], rank: int) -> list[list[tuple[int, ...]]]:
    """Turn arrays inside each other, the innermost first, into offsets."""
    inner = [0] * rank  # bits of each axis that the arrays inside have used
    result = []
    for part in parts:
        result.append([_unit(axis, 2 ** (inner[axis] + bit), rank) for axis, bit in part])
        for axis, _ in part:
            inner[axis] += 1
    return result


def _unit(axis: int, value: int, rank: int) -> tuple[int, ...]:
    return tuple(value if i == axis else 0 for i in range(rank))


def _within(offsets: list[tuple[int, ...]], shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Let an offset that leaves the tile make no difference."""
    return [
        tuple(o if o < size else 0 for o, size in zip(offset, shape, strict=True))
        for offset in offsets
    ]


def sliced(parent: Layout, axis: int) -> Layout:
    """Return the layout of ``#ttg.slice``: a tile's layout with one axis left out."""

    def drop(offset: tuple[int, ...]) -> tuple[int, ...]:
        return offset[:axis] + offset[axis + 1 :]

    registers, lanes, warps = (
        tuple(map(drop, part)) for part in (parent.registers, parent.lanes, parent.warps)
    )
    registers = tuple(offset for offset in registers if any(offset))
    return Layout(drop(parent.shape), registers, lanes, warps, "slice")


def nvidia_mma(shape: Sequence[int], warps_per_program: Sequence[int]) -> Layout:
    """Return the layout of an ``mma.sync`` result (``#ttg.nvidia_mma``, versionMajor 2).

    The accumulator of m16n8: lane l holds rows l // 4 and l // 4 + 8, columns 2 (l % 4) and the
    next (NVIDIA, PTX ISA, Warp-level Matrix Instructions, mma.m16n8k16). Instructions lie side by
    side along columns first, warps along columns first.
    """
    rows, columns = len(shape) - 2, len(shape) - 1
    rank = len(shape)
    registers = [_unit(columns, 1, rank), _unit(rows, 8, rank)]
    lanes = [
        *(_unit(columns, value, rank) for value in (2, 4)),
        *(_unit(rows, value, rank) for value in (1, 2, 4)),
    ]
    covered = [1] * rank
    covered[rows], covered[columns] = 16, 8
    warps = []
    for axis in reversed(range(rank)):
        for _ in range(warps_per_program[axis].bit_length() - 1):
            warps.append(_unit(axis, covered[axis], rank))
            covered[axis] *= 2
    registers, lanes, warps = (_within(part, shape) for part in (registers, lanes, warps))
    for axis in reversed(range(rank)):
        while covered[axis] < shape[axis]:
            registers.append(_unit(axis, covered[axis], rank))
            covered[axis] *= 2
    return Layout(
        tuple(shape),
        tuple(offset for offset in registers if any(offset)),
        tuple(lanes),
        tuple(warps),
        "nvidia_mma",
    )


# ---------------------------------------------------------------------------------------------
# TTGIR
# ---------------------------------------------------------------------------------------------

_ACCESS = {
    "tt.load": "load",
    "tt.store": "store",
    "tt.atomic_rmw": "atomic",
    "tt.atomic_cas": "atomic",
    "ttg.async_copy_global_to_local": "async_copy",
}
_OPERATION = re.compile(
    r"^\s*(?:(?P<results>%[\w$.:-]+(?:, *%[\w$.:-]+)*) = )?(?P<op>[a-z_]+\.[\w.]+) ?(?P<rest>.*)$"
)
_VALUE = re.compile(r"%[\w$.-]+")
_BITS = re.compile(r"!tt\.ptr<\w*?(\d+)\w*(?:, *\d+)?>")


def read_accesses(ttgir: str) -> list[Access]:
    """Return the loads and stores of tiles in a kernel's TTGIR, in order.

    Loads of a single number, and copies by the tensor memory accelerator (tensor descriptors),
    in which threads take no part, are left out.
    """
    aliases = dict(re.findall(r"^(#\w+) = (#ttg\..*|#ttng\..*)$", ttgir, re.M))
    places = _Places(ttgir)
    origins = _Origins(ttgir)
    found = []
    for line in ttgir.splitlines():
        match = _OPERATION.match(line)
        if not match or match["op"] not in _ACCESS:
            continue
        tile = _pointer_tile(match["rest"])
        if tile is None:
            continue
        shape, bits, encoding = tile
        text = aliases.get(encoding, encoding)
        pointer = _VALUE.search(match["rest"])
        line_number, function = places.of(line)
        found.append(
            Access(
                _ACCESS[match["op"]],
                origins.argument(pointer[0]) if pointer else None,
                bits,
                read_layout(text, shape, aliases),
                text,
                line_number,
                function,
            )
        )
    return found


def _pointer_tile(text: str) -> tuple[tuple[int, ...], int, str] | None:
    """Read the first ``tensor<1024x!tt.ptr<f32>, #encoding>`` of a line."""
    for match in re.finditer(r"tensor<((?:\d+x)+)(!tt\.ptr<)", text):
        end = _closing(text, match.start() + len("tensor"))
        inside = text[match.start(2) : end]
        bits = _BITS.match(inside)
        if bits:
            encoding = inside[bits.end() :].lstrip(", ")
            shape = tuple(int(size) for size in match[1].rstrip("x").split("x"))
            # A pointer to 1-bit values points to bytes.
            return shape, max(int(bits[1]), 8), encoding
    return None


def _closing(text: str, begin: int) -> int:
    """Return where the bracket that opens at ``begin`` closes."""
    depth = 0
    for place in range(begin, len(text)):
        depth += {"<": 1, ">": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def read_layout(
    encoding: str, shape: Sequence[int], aliases: Mapping[str, str] | None = None
) -> Layout | None:
    """Return the layout that an encoding's text gives a tile; None if it is of another kind.

    Args:
        encoding: such as ``#ttg.blocked<{sizePerThread = [4], ...}>``, or an alias.
        shape: of the tile.
        aliases: texts by alias ("#blocked").
    """
    aliases = aliases or {}
    text = aliases.get(encoding.strip(), encoding.strip())
    numbers = {
        name: [int(n) for n in values.split(",")]
        for name, values in re.findall(r"(\w+) = \[([\d, ]+)\]", text)
    }
    if text.startswith("#ttg.blocked<"):
        keys = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
        return blocked(shape, *(numbers[key] for key in keys))
    if text.startswith("#ttg.linear<"):
        return _linear(text, shape)
    if text.startswith("#ttg.slice<"):
        match = re.match(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>$", text)
        if match:
            axis = int(match[1])
            # The parent's size along the axis left out does not matter: every place along it holds
            # the same; one element of it is enough.
            whole = (*shape[:axis], 1, *shape[axis:])
            parent = read_layout(match[2], whole, aliases)
            return None if parent is None else sliced(parent, axis)
    version = re.search(r"versionMajor = (\d+)", text)
    if text.startswith("#ttg.nvidia_mma<") and version and version[1] == "2":
        return nvidia_mma(shape, numbers["warpsPerCTA"])
    return None


def _linear(text: str, shape: Sequence[int]) -> Layout:
    def offsets(name: str) -> tuple[tuple[int, ...], ...]:
        match = re.search(rf"\b{name} = \[((?:\[[\d, ]*\](?:, )?)*)\]", text)
        rows = re.findall(r"\[([\d, ]*)\]", match[1]) if match else []
        return tuple(tuple(int(n) for n in row.split(",")) for row in rows)

    return Layout(tuple(shape), *(offsets(name) for name in ("register", "lane", "warp")))


class _Origins:
    """Follows an address back to the kernel's parameter that it comes from."""

    def __init__(self, ttgir: str) -> None:
        self._parameters: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        signature = re.search(r"tt\.func public @\w+\((.*)\) attributes", ttgir)
        for value, rest in re.findall(r"(%\w+): ([^%]*)", signature[1] if signature else ""):
            named = re.search(r'loc\("(\w+)"', rest) or re.search(r"loc\((#loc\d*)\)", rest)
            name = value[1:]
            if named:
                name = named[1]
                if name.startswith("#"):
                    alias = re.search(rf'^{name} = loc\("(\w+)"', ttgir, re.M)
                    name = alias[1] if alias else value[1:]
            self._parameters[value] = name
        for line in ttgir.splitlines():
            for inner, outer in re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)(?=[,)])", line):
                self._sources.setdefault(inner, outer)  # what a loop starts with
            match = _OPERATION.match(line)
            if match and match["results"]:
                operand = _VALUE.search(match["rest"])
                if operand:
                    result = match["results"].split(",")[0].split(":")[0].strip()
                    self._sources.setdefault(result, operand[0])

    def argument(self, value: str) -> str | None:
        for _ in range(len(self._sources) + 1):
            value = value.split("#")[0]
            if value in self._parameters:
                return self._parameters[value]
            if value not in self._sources:
                return None
            value = self._sources[value]
        return None


class _Places:
    """Finds the line of the source that an operation is for."""

    def __init__(self, ttgir: str) -> None:
        self._aliases = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ttgir, re.M))

    def of(self, line: str) -> tuple[int, str]:
        match = re.search(r"loc\((.*)\)$", line)
        text = match[1] if match else ""
        for _ in range(len(self._aliases) + 1):
            # Of a call's place the first is inside the function called.
            place = re.search(r'"[^"]*?/(\d+)_(\w+)\.py":(\d+):\d+', text)
            if place:
                return int(place[3]), place[2]
            alias = re.search(r"#loc\d*", text)
            if not alias or alias[0] not in self._aliases:
                return 0, ""
            text = self._aliases[alias[0]]
        return 0, ""


def _times(sizes: Sequence[Any]) -> str:
    return " × ".join(map(str, sizes))
