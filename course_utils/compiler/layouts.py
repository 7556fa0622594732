"""Which thread owns which element of a tile: the layouts that Triton chooses from.

Triton decides for every tile how its elements are spread over the registers of the threads of a
program. `Layout` is such a decision as pure data; `course_utils.compiler.ttgir` reads them from the
compiler's intermediate code.

All encodings are linear (Triton's own theory: Zhou et al., "Linear Layouts: Robust Code Generation
of Efficient Tensor Computation Using F2", 2025): the element that a register of a lane of a warp
holds is the exclusive or of one offset for each bit that is set in the three numbers. So a layout
is those offsets.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WARP_SIZE = 32


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


def _times(sizes: Sequence[Any]) -> str:
    return " × ".join(map(str, sizes))
