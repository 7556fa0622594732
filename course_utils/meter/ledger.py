"""The ledger of one launch: which argument each address belongs to, and who touched it.

A kernel's pointers are plain numbers. To know which tensor a pointer came from whatever arithmetic
was done on it, each tensor argument gets an address region of its own, 2^48 bytes wide, with the
tensor in the middle: the upper bits of an address then name the argument, and a lane that leaves
its tensor is seen even where it would land in a neighbour. Addresses are translated back just
before memory is touched; lanes that left their tensor's storage are switched off, not followed.

This file knows numpy and tensors' shapes; it does not know who runs the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from course_utils.meter.torch_ops import tensor_bytes
from course_utils.meter.traffic import ArgumentTraffic, Finding, Launch, Traffic

_REGION_BITS = 48  # user-space addresses of today's machines fit below, so regions never clash
_MIDDLE = 1 << (_REGION_BITS - 1)
_ALIGNMENT_MASK = 0xFFF  # a region keeps the low bits, so alignment checks see the true address

_NOBODY = 0  # no program yet
_SEVERAL = -1  # more than one program
_ATOMIC = -2  # written by atomics, whose meeting at one address is no conflict


@dataclass(frozen=True)
class Position:
    """Where a running kernel stands: program id and grid, and the source line."""

    program: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def number(self) -> int:
        """Number the programs from 1."""
        (x, y, z), (nx, ny, _) = self.program, self.grid
        return 1 + x + nx * (y + ny * z)


class Memory:
    """Who read and who wrote each cell of one storage, during one launch."""

    def __init__(self, start: int, nbytes: int, cell: int) -> None:
        self.start = start
        self.nbytes = nbytes
        self.cell = cell  # bytes per cell: the element size, until an access is finer
        cells = -(-nbytes // cell)
        self.reader = np.zeros(cells, np.int32)
        self.writer = np.zeros(cells, np.int32)

    def cells_of(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Map byte offsets of accesses ``width`` bytes wide to cell indices."""
        if width % self.cell or (self.cell > 1 and (offsets % self.cell).any()):
            self._refine()
        first = offsets // self.cell
        per_access = width // self.cell
        if per_access == 1:
            return first
        return (first[:, None] + np.arange(per_access)).ravel()

    def _refine(self) -> None:
        self.reader = np.repeat(self.reader, self.cell)[: self.nbytes]
        self.writer = np.repeat(self.writer, self.cell)[: self.nbytes]
        self.cell = 1

    def read(self, cells: np.ndarray, program: int, atomic: bool) -> np.ndarray:
        """Note a read; return which of the cells another program has written."""
        reader = self.reader[cells]
        if reader.any():
            seen = (reader == _NOBODY) | (reader == program)
            self.reader[cells] = np.where(seen, program, _SEVERAL)
        else:
            self.reader[cells] = program
        writer = self.writer[cells]
        clash = (writer != _NOBODY) & (writer != program)
        return clash & (writer != _ATOMIC) if atomic else clash

    def write(self, cells: np.ndarray, program: int, atomic: bool) -> tuple[np.ndarray, np.ndarray]:
        """Note a write; return which cells others have written, and which others have read."""
        writer = self.writer[cells]
        written = (writer != _NOBODY) & (writer != program)
        if atomic:
            written &= writer != _ATOMIC
            self.writer[cells] = _ATOMIC
            return written, np.zeros_like(written)
        self.writer[cells] = np.where(written, _SEVERAL, program)
        reader = self.reader[cells]
        return written, (reader != _NOBODY) & (reader != program)


@dataclass
class Argument:
    """One tensor argument: its region of addresses, its true place, and its counts."""

    name: str
    tensor: torch.Tensor
    region: int
    memory: Memory
    bytes_read: int = 0
    bytes_written: int = 0
    masked_read: int = 0
    masked_written: int = 0

    def __post_init__(self) -> None:
        tensor = self.tensor
        self.itemsize = tensor.element_size()
        self.real = tensor.data_ptr()
        self.base = (self.region << _REGION_BITS) + _MIDDLE + (self.real & _ALIGNMENT_MASK)
        reach = sum((size - 1) * stride for size, stride in _dims(tensor)) + 1
        self.elements = reach if tensor.numel() else 0
        # A view with gaps between its rows owns only part of what it spans.
        self.owned: np.ndarray | None = None
        if self.elements != tensor.numel():
            self.owned = np.zeros(self.elements, bool)
            if self.elements:
                view = np.lib.stride_tricks.as_strided(
                    self.owned, tuple(tensor.shape), tuple(tensor.stride())
                )
                view[...] = True

    def inside(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Tell which byte offsets name whole elements of this very tensor."""
        within = (offsets >= 0) & (offsets <= self.elements * self.itemsize - width)
        if self.owned is not None:
            index = np.where(within, offsets, 0) // self.itemsize
            within &= self.owned[index] if self.elements else False
        return within

    def in_storage(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Tell which byte offsets can be followed without leaving the tensor's storage."""
        start = self.real - self.memory.start
        return (offsets >= -start) & (offsets + start <= self.memory.nbytes - width)

    def own_cells(self, cells: np.ndarray) -> np.ndarray:
        """Cut one of the memory's maps down to this tensor's own cells."""
        per_element = self.itemsize // self.memory.cell
        first = (self.real - self.memory.start) // self.memory.cell
        span = cells[first : first + self.elements * per_element]
        if self.owned is not None:
            span = span[np.repeat(self.owned, per_element)]
        return span

    def index_text(self, element: int) -> str:
        """Name an element by its offset from the tensor's start, as a reader would index it."""
        if self.tensor.dim() <= 1 or not 0 <= element < self.elements:
            return f"{self.name}[{element}]"
        order = sorted(range(self.tensor.dim()), key=lambda d: -self.tensor.stride(d))
        index = [0] * self.tensor.dim()
        for dim in order:
            if self.tensor.stride(dim) > 0 and self.tensor.shape[dim] > 1:
                index[dim], element = divmod(element, self.tensor.stride(dim))
        return f"{self.name}[{', '.join(map(str, index))}]"


def _dims(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    return zip(tensor.shape, tensor.stride(), strict=True)


@dataclass
class _FirstSight:
    """A finding while it is still being counted."""

    kind: str
    argument: str
    line: int | None
    source: str
    program: tuple[int, int, int]
    lane: tuple[int, ...]
    story: str
    distance: int | None = None
    count: int = 0


@dataclass
class Ledger:
    """Everything that is written down during one launch.

    Attributes:
        kernel: its name.
        position: tells which program is running.
        source_line: tells which line of the kernel is running, and its text.
        flops: floating-point operations so far; the caller adds to it.
        reducing: how many reductions the caller is inside of.
    """

    kernel: str
    position: Callable[[], Position]
    source_line: Callable[[], tuple[int | None, str]]
    arguments: list[Argument] = field(default_factory=list)
    by_identity: dict[int, list[Argument]] = field(default_factory=dict)
    memories: dict[int, Memory] = field(default_factory=dict)
    sights: dict[tuple, _FirstSight] = field(default_factory=dict)
    foreign_read: int = 0
    foreign_written: int = 0
    flops: int = 0
    reducing: int = 0

    # -- arguments ----------------------------------------------------------------------------

    def register(self, name: str, value: Any) -> None:
        """Give every tensor inside one kernel argument its region."""
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            for index, item in enumerate(value):
                self.register(f"{name}.{fields[index]}" if fields else f"{name}[{index}]", item)
        elif hasattr(value, "block_shape") and hasattr(value, "base"):  # host tensor descriptor
            self.register(name, value.base)
        elif hasattr(value, "data_ptr"):
            tensor = getattr(value, "base", value) if not torch.is_tensor(value) else value
            argument = Argument(name, tensor, len(self.arguments) + 1, self._memory_of(tensor))
            self.arguments.append(argument)
            self.by_identity.setdefault(id(value), []).append(argument)

    def _memory_of(self, tensor: torch.Tensor) -> Memory:
        storage = tensor.untyped_storage()
        memory = self.memories.get(storage.data_ptr())
        if memory is None:
            memory = Memory(storage.data_ptr(), storage.nbytes(), tensor.element_size())
            self.memories[storage.data_ptr()] = memory
        elif memory.cell != tensor.element_size():
            memory._refine()
        return memory

    def argument_for(self, value: Any) -> Argument | None:
        """Return the region made for this very object; one passed twice has two, in order."""
        waiting = self.by_identity.get(id(value))
        if not waiting:
            return None
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    # -- accesses -----------------------------------------------------------------------------

    def access(
        self, pointers: np.ndarray, mask: np.ndarray, width: int, reads: bool, writes: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count one load, store or atomic.

        Args:
            pointers: region addresses of a tile, uint64, any shape.
            mask: the tile's mask, bool, same shape.
            width: bytes per lane.
            reads: a load, or an atomic.
            writes: a store, or an atomic.

        Returns:
            True addresses and the mask of the lanes that may follow them.
        """
        pointers = np.asarray(pointers, np.uint64)
        mask = np.broadcast_to(np.asarray(mask, bool), pointers.shape)
        regions = pointers >> np.uint64(_REGION_BITS)
        region = int(regions.flat[0]) if pointers.size else 0
        if (regions == regions.flat[0]).all() if pointers.size else True:
            return self._access_region(region, pointers, mask, width, reads, writes)
        real, allowed = pointers.copy(), np.zeros(pointers.shape, bool)
        for one in np.unique(regions):
            here = regions == one
            moved, ok = self._access_region(int(one), pointers, mask & here, width, reads, writes)
            real[here] = moved[here]
            allowed |= ok
        return real, allowed

    def _access_region(self, region, pointers, mask, width, reads, writes):
        active = int(np.count_nonzero(mask))
        if not 1 <= region <= len(self.arguments):
            # A pointer that came out of memory rather than an argument: nothing to hold it to.
            self.foreign_read += active * width * reads
            self.foreign_written += active * width * writes
            return pointers, mask
        argument = self.arguments[region - 1]
        nbytes, asleep = active * width, mask.size - active
        if reads:
            argument.bytes_read += nbytes
            argument.masked_read += asleep
        if writes:
            argument.bytes_written += nbytes
            argument.masked_written += asleep
        shift = (argument.real - argument.base) & 0xFFFFFFFFFFFFFFFF
        real = pointers + np.uint64(shift)
        if not active:
            return real, mask
        everyone = active == mask.size
        chosen = pointers.ravel() if everyone else pointers[mask]
        offsets = chosen.astype(np.int64) - np.int64(argument.base)
        allowed = mask
        within = argument.inside(offsets, width)
        if not within.all():
            self._see_outside(argument, offsets, within, mask, width, reads, writes)
            reachable = argument.in_storage(offsets, width)
            allowed = mask.copy()
            allowed[mask] = reachable
            offsets, mask = offsets[reachable], allowed
        self._note(argument, offsets, mask, width, reads, writes)
        return real, allowed

    def _note(self, argument, offsets, mask, width, reads, writes) -> None:
        memory = argument.memory
        cells = memory.cells_of(offsets + (argument.real - memory.start), width)
        program = self.position().number
        if reads:
            clash = memory.read(cells, program, atomic=writes)
            story = "reads {element}, which another program wrote"
            self._see_clash("race", argument, offsets, mask, clash, story)
        if writes:
            twice, was_read = memory.write(cells, program, atomic=reads)
            story = "stores to {element}, which another program also stored to"
            self._see_clash("two writers", argument, offsets, mask, twice, story)
            story = "stores to {element}, which another program reads"
            self._see_clash("race", argument, offsets, mask, was_read, story)

    # -- findings -----------------------------------------------------------------------------

    def _see_outside(self, argument, offsets, within, mask, width, reads, writes) -> None:
        where = int(np.flatnonzero(~within)[0])
        element = int(offsets[where] // argument.itemsize)
        size = argument.elements
        verb = "adds atomically at" if reads and writes else "reads" if reads else "stores to"
        if element >= size:
            distance = element - size + 1
            place = f"{_elements(distance)} past the end of {argument.name} ({size} elements)"
        elif element < 0:
            distance = element
            place = f"{_elements(-distance)} before the start of {argument.name}"
        else:
            distance = 0
            place = (
                f"a gap between the elements of {argument.name} "
                f"(shape {tuple(argument.tensor.shape)}, strides {tuple(argument.tensor.stride())})"
            )
        story = f"{verb} {place}"
        neighbour = self._owner_of(argument.real + int(offsets[where]), argument)
        if neighbour:
            story += f"; on a GPU that may well land in {neighbour}"
        self._see("outside", argument, mask, where, story, distance, int((~within).sum()))

    def _see_clash(self, kind, argument, offsets, mask, clash, story) -> None:
        if not clash.any():
            return
        per_access = clash.size // offsets.size
        lanes = clash.reshape(offsets.size, per_access).any(axis=1)
        where = int(np.flatnonzero(lanes)[0])
        element = argument.index_text(int(offsets[where] // argument.itemsize))
        story = story.format(element=element)
        self._see(kind, argument, mask, where, story, None, int(lanes.sum()))

    def _see(self, kind, argument, mask, where, story, distance, count) -> None:
        line, source = self.source_line()
        key = (kind, argument.name, line, source)
        sight = self.sights.get(key)
        if sight is None:
            lane = tuple(int(axis[where]) for axis in np.nonzero(mask)) if mask.ndim else ()
            program = self.position().program
            sight = _FirstSight(kind, argument.name, line, source, program, lane, story, distance)
            self.sights[key] = sight
        sight.count += count

    def _owner_of(self, address: int, not_this: Argument) -> str | None:
        for argument in self.arguments:
            start = argument.real
            if argument is not not_this and argument.elements:
                if start <= address < start + argument.elements * argument.itemsize:
                    return argument.name
        return None

    # -- the result ---------------------------------------------------------------------------

    def launch(self, grid: tuple[int, int, int]) -> Launch:
        """Sum up."""
        arguments = {a.name: self._argument_traffic(a) for a in self.arguments}
        traffic = Traffic.total(arguments.values())
        traffic = replace(
            traffic,
            bytes_read=traffic.bytes_read + self.foreign_read,
            bytes_written=traffic.bytes_written + self.foreign_written,
            # Two arguments may share memory: distinct addresses are counted on the memory.
            compulsory_read=self._distinct("reader") + self.foreign_read,
            compulsory_written=self._distinct("writer") + self.foreign_written,
            flops=self.flops,
        )
        notes = ()
        if self.foreign_read or self.foreign_written:
            notes = (
                "bytes reached through pointers that were loaded from memory are in the total, "
                "but belong to no argument",
            )
        return Launch(
            name=self.kernel,
            kind="triton",
            traffic=traffic,
            arguments=arguments,
            grid=grid,
            findings=tuple(self._findings(arguments)),
            notes=notes,
        )

    def _distinct(self, who: str) -> int:
        return sum(int(np.count_nonzero(getattr(m, who))) * m.cell for m in self.memories.values())

    def _argument_traffic(self, a: Argument) -> ArgumentTraffic:
        read, written = a.own_cells(a.memory.reader), a.own_cells(a.memory.writer)
        cell = a.memory.cell
        unwritten = 0
        if a.bytes_written:
            unwritten = int(np.count_nonzero(written == _NOBODY)) * cell // a.itemsize
        return ArgumentTraffic(
            bytes_read=a.bytes_read,
            bytes_written=a.bytes_written,
            compulsory_read=int(np.count_nonzero(read)) * cell if a.bytes_read else 0,
            compulsory_written=int(np.count_nonzero(written)) * cell if a.bytes_written else 0,
            masked_lanes_read=a.masked_read,
            masked_lanes_written=a.masked_written,
            nbytes=tensor_bytes(a.tensor),
            elements_unwritten=unwritten,
        )

    def _findings(self, arguments: dict[str, ArgumentTraffic]) -> Iterator[Finding]:
        for s in self.sights.values():
            at = f"{self.kernel}, line {s.line} `{s.source}`" if s.line else self.kernel
            lane = s.lane[0] if len(s.lane) == 1 else s.lane
            more = f" ({s.count} lanes in all)" if s.count > 1 else ""
            yield Finding(
                kind=s.kind,
                message=f"{at}: program {_short(s.program)}, lane {lane} {s.story}{more}.",
                kernel=self.kernel,
                argument=s.argument,
                line=s.line,
                source=s.source,
                program=s.program,
                lane=s.lane,
                distance=s.distance,
                count=s.count,
            )
        for a in self.arguments:
            missing = arguments[a.name].elements_unwritten
            if missing:
                yield Finding(
                    kind="unwritten",
                    message=(
                        f"{self.kernel} stores to {a.name} but leaves {missing} of its "
                        f"{a.tensor.numel()} elements unwritten, the first at "
                        f"{self._first_unwritten(a)}."
                    ),
                    kernel=self.kernel,
                    argument=a.name,
                    count=missing,
                )

    def _first_unwritten(self, a: Argument) -> str:
        per_element = a.itemsize // a.memory.cell
        first = (a.real - a.memory.start) // a.memory.cell
        empty = a.memory.writer[first : first + a.elements * per_element] == _NOBODY
        if a.owned is not None:
            empty &= np.repeat(a.owned, per_element)
        return a.index_text(int(np.flatnonzero(empty)[0]) // per_element)


def _elements(count: int) -> str:
    return f"{count} element" if count == 1 else f"{count} elements"


def _short(program: tuple[int, int, int]) -> Any:
    """Write program ids as their author does: 3 rather than (3, 0, 0)."""
    x, y, z = program
    return x if y == z == 0 else (x, y) if z == 0 else (x, y, z)
