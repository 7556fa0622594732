"""The ledger of one launch: every access is counted here, and what is wrong with it is noted.

The addresses that come in name their argument (see :mod:`course_utils.meter.arguments`). They are
translated back just before memory is touched; lanes that left their tensor's storage are switched
off, not followed. Bytes outside the tensors are counted as requested, but not as compulsory.

This file knows numpy and tensors' shapes; it does not know who runs the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from course_utils.meter.arguments import NOBODY, REGION_BITS, Argument, Memory
from course_utils.meter.tensors import tensor_bytes
from course_utils.meter.traffic import ArgumentTraffic, Finding, Launch, Traffic

_FIRST_PAGE = 4096  # no tensor lies there: an address so low is a null pointer


@dataclass(frozen=True)
class Position:
    """Where a running kernel stands: the program's id in its grid."""

    program: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def number(self) -> int:
        """Number the programs from 1."""
        (x, y, z), (nx, ny, _) = self.program, self.grid
        return 1 + x + nx * (y + ny * z)


@dataclass(frozen=True)
class SourceLine:
    """A line of a running kernel, or of a helper that it called.

    Attributes:
        function: the name of the function it stands in.
        number: counted from that function's ``def`` as 1.
        text: the line itself, without indentation.
    """

    function: str
    number: int
    text: str


@dataclass(frozen=True)
class Store:
    """One tile that a program stored.

    Attributes:
        tensor: where to.
        elements: which of its elements, counted from its start in memory; int64, one per lane that
            stored.
        lanes: which lanes those are, one row each, the indices within the tile; int64.
        program: the program's id.
        line: the line that stored.
    """

    tensor: torch.Tensor
    elements: np.ndarray
    lanes: np.ndarray
    program: tuple[int, int, int]
    line: SourceLine


@dataclass
class _FirstSight:
    """A finding while it is still being counted."""

    kind: str
    argument: str
    line: SourceLine
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
        running_line: tells which line is running.
        follow_foreign: whether pointers that came out of memory lead anywhere.
        on_store: is told of each store into a tensor, for those who ask where a value came from.
        flops: floating-point operations so far; the caller adds to it.
        reducing: how many reductions the caller is inside of.
    """

    kernel: str
    position: Callable[[], Position]
    running_line: Callable[[], SourceLine]
    follow_foreign: bool = True
    on_store: Callable[[Store], None] | None = None
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
        if storage.data_ptr() not in self.memories:
            self.memories[storage.data_ptr()] = Memory(storage)
        return self.memories[storage.data_ptr()]

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
        if not pointers.size:
            return pointers, mask
        regions = pointers >> np.uint64(REGION_BITS)
        if (regions == regions.flat[0]).all():
            region = int(regions.flat[0])
            return self._access_region(region, pointers, mask, mask.size, width, reads, writes)
        real, allowed = pointers.copy(), np.zeros(pointers.shape, bool)
        for region in np.unique(regions):
            here = regions == region
            moved, ok = self._access_region(
                int(region), pointers, mask & here, int(here.sum()), width, reads, writes
            )
            real[here] = moved[here]
            allowed |= ok
        return real, allowed

    def _access_region(self, region, pointers, mask, lanes, width, reads, writes):
        if not 1 <= region <= len(self.arguments):
            return self._access_elsewhere(region, pointers, mask, width, reads, writes)
        argument = self.arguments[region - 1]
        active = int(np.count_nonzero(mask))
        nbytes, asleep = active * width, lanes - active
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
        within = argument.inside(offsets, width)
        if within.all():
            self._note(argument, offsets, mask, width, reads, writes)
            return real, mask
        self._see_outside(argument, offsets, within, mask, width, reads, writes)
        memory, addresses = argument.memory, offsets + argument.real
        ends = addresses + width
        reachable = (addresses >= memory.storage_start) & (ends <= memory.storage_end)
        mapped = (addresses >= memory.start) & (ends <= memory.end)
        allowed, noted = mask.copy(), mask.copy()
        allowed[mask], noted[mask] = reachable, mapped
        if mapped.any():
            self._note(argument, offsets[mapped], noted, width, reads, writes)
        return real, allowed

    def _access_elsewhere(self, region, pointers, mask, width, reads, writes):
        """Count what a pointer reaches that no argument gave."""
        lost = mask & ((pointers < _FIRST_PAGE) if region == 0 else True)
        if lost.any():
            verb = "updates atomically" if reads and writes else "reads" if reads else "stores to"
            story = f"{verb} an address that is in no tensor"
            where = int(np.flatnonzero(lost[mask])[0])
            self._see("outside", "", mask, where, story, None, int(np.count_nonzero(lost)))
            mask = mask & ~lost
        active = int(np.count_nonzero(mask))
        if active and not self.follow_foreign:
            raise ValueError(
                f"{self.kernel} follows a pointer that it loaded from memory. The meter runs "
                f"kernels on copies of their tensors, which that address does not lead to: "
                f"count this kernel on CPU tensors instead"
            )
        self.foreign_read += active * width * reads
        self.foreign_written += active * width * writes
        return pointers, mask

    def _note(self, argument, offsets, mask, width, reads, writes) -> None:
        memory = argument.memory
        cells = memory.cells_of(offsets + argument.real, width)
        if memory.touched:
            for map_, used in zip(memory.touched[argument.region], (reads, writes), strict=True):
                map_[cells] |= used
        if writes and self.on_store is not None:
            self.on_store(
                Store(
                    argument.tensor,
                    offsets // argument.itemsize,
                    np.argwhere(mask),
                    self.position().program,
                    self.running_line(),
                )
            )
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
        verb = "updates atomically" if reads and writes else "reads" if reads else "stores to"
        last = int(offsets[where] + width - 1) // argument.itemsize
        if last >= size:
            distance = last - size + 1
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
        neighbour = self._element_at(argument.real + int(offsets[where]), argument)
        if neighbour:
            story += f", which is {neighbour}"
        count = int(np.count_nonzero(~within))
        self._see("outside", argument.name, mask, where, story, distance, count)

    def _see_clash(self, kind, argument, offsets, mask, clash, story) -> None:
        if not clash.any():
            return
        per_access = clash.size // offsets.size
        lanes = clash.reshape(offsets.size, per_access).any(axis=1)
        where = int(np.flatnonzero(lanes)[0])
        element = argument.index_text(int(offsets[where] // argument.itemsize))
        story = story.format(element=element)
        self._see(kind, argument.name, mask, where, story, None, int(np.count_nonzero(lanes)))

    def _see(self, kind, argument, mask, where, story, distance, count) -> None:
        line = self.running_line()
        key = (kind, argument, line)
        sight = self.sights.get(key)
        if sight is None:
            lane = tuple(int(axis[where]) for axis in np.nonzero(mask)) if mask.ndim else ()
            program = self.position().program
            sight = _FirstSight(kind, argument, line, program, lane, story, distance)
            self.sights[key] = sight
        sight.count += count

    def _element_at(self, address: int, not_this: Argument) -> str | None:
        """Name the element of another argument at this address, if both are views of one storage.

        Where two storages lie beside each other is chance, and would differ on the next run.
        """
        for argument in self.arguments:
            offset = address - argument.real
            if argument is not not_this and argument.memory is not_this.memory:
                if argument.inside(np.array([offset]), 1)[0]:
                    return argument.index_text(offset // argument.itemsize)
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
        read, written = a.touched()
        cell = a.memory.cell
        unwritten = 0
        if a.bytes_written:
            by_anyone = np.count_nonzero(a.own_cells(a.memory.writer))
            unwritten = a.own_count - int(by_anyone) * cell // a.itemsize
        return ArgumentTraffic(
            bytes_read=a.bytes_read,
            bytes_written=a.bytes_written,
            compulsory_read=int(np.count_nonzero(read)) * cell,
            compulsory_written=int(np.count_nonzero(written)) * cell,
            masked_lanes_read=a.masked_read,
            masked_lanes_written=a.masked_written,
            nbytes=tensor_bytes(a.tensor),
            elements_unwritten=unwritten,
        )

    def _findings(self, arguments: dict[str, ArgumentTraffic]) -> Iterator[Finding]:
        for s in self.sights.values():
            helper = "" if s.line.function == self.kernel else f"in {s.line.function}, "
            at = f"{self.kernel}, {helper}line {s.line.number} `{s.line.text}`"
            lane = s.lane[0] if len(s.lane) == 1 else s.lane
            more = f" ({s.count} lanes in all)" if s.count > 1 else ""
            yield Finding(
                kind=s.kind,
                message=f"{at}: program {_short(s.program)}, lane {lane} {s.story}{more}.",
                kernel=self.kernel,
                argument=s.argument,
                line=s.line.number,
                source=s.line.text,
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
                        f"{a.own_count} elements unwritten, the first at "
                        f"{self._first_unwritten(a)}."
                    ),
                    kernel=self.kernel,
                    argument=a.name,
                    count=missing,
                )

    def _first_unwritten(self, a: Argument) -> str:
        cells = a.own_cells(a.memory.writer).reshape(-1, a.itemsize // a.memory.cell)
        gap = int(np.flatnonzero((cells == NOBODY).any(axis=1))[0])
        return a.index_text(gap if a.owned is None else int(np.flatnonzero(a.owned)[gap]))


def _elements(count: int) -> str:
    return f"{count} element" if count == 1 else f"{count} elements"


def _short(program: tuple[int, int, int]) -> Any:
    """Write program ids as their author does: 3 rather than (3, 0, 0)."""
    x, y, z = program
    return x if y == z == 0 else (x, y) if z == 0 else (x, y, z)
