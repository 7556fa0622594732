"""The ledger of one CUDA launch: what its threads did, summed up by warp, and what is wrong.

Threads report each access and each branch, one after the other. From time to time the reports are
summed up: into requests (see :mod:`course_utils.meter.warps`), into the bytes that were touched,
and into places where two threads met with no barrier between them.

This file knows NumPy; it does not know who runs the kernel.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_utils import models
from course_utils.meter.ledger import SourceLine
from course_utils.meter.traffic import ArgumentTraffic, Finding, Launch, Traffic
from course_utils.meter.warps import (
    ATOMIC,
    OPERATIONS,
    READ,
    THREADS_PER_BLOCK,
    WRITE,
    Access,
    Branch,
    GlobalAccess,
    GlobalRequests,
    SharedAccess,
    SharedRequests,
    Warps,
    both_ways,
    label,
    requests_of,
)

_ENOUGH = 1 << 17  # reports that are summed up at once
_DOES = {READ: "reads {}", WRITE: "stores to {}", ATOMIC: "updates {} atomically"}
_ADDRESSES = 1 << 48  # an index below 0 gives an address that wraps round, as a pointer would
_NO_SOURCE = "the kernel's source was not found: its FLOPs and branches are not counted"
_FENCED = "the kernel calls threadfence(): whether its blocks wait for one another is not judged"


@dataclass(eq=False)
class Array:
    """An array that is watched.

    Attributes:
        name: as the kernel's author calls it.
        number: of this array in the ledger.
        memory: arrays with an equal one overlap where their addresses do.
        is_shared: whether it is in shared memory.
        start: byte address of its first element.
        itemsize: bytes per element.
        shape, strides: as NumPy has them; strides in bytes.
        nbytes: the bytes it owns.
    """

    name: str
    number: int
    memory: Any
    is_shared: bool
    start: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int

    def index_of(self, address: int) -> tuple[int, ...] | None:
        """Return the index of the element at an address; None if there is none of its own."""
        rest, index = address - self.start, [0] * len(self.shape)
        for axis in sorted(range(len(index)), key=lambda axis: -abs(self.strides[axis])):
            if self.strides[axis] and self.shape[axis] > 1:
                index[axis], rest = divmod(rest, self.strides[axis])
        inside = all(0 <= i < n for i, n in zip(index, self.shape, strict=True))
        return tuple(index) if inside and rest == 0 else None

    def text(self, index: Sequence[int]) -> str:
        """Write an element as the kernel's author does: tile[3, 0]."""
        return f"{self.name}[{', '.join(map(str, index))}]" if len(index) else self.name

    @property
    def own_addresses(self) -> np.ndarray:
        """Addresses of its elements, in its shape; broadcast dimensions once."""
        addresses = np.full((1,) * len(self.shape), self.start)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            along = [1] * len(self.shape)
            along[axis] = size if stride else min(size, 1)
            addresses = addresses + (np.arange(along[axis]) * stride).reshape(along)
        return addresses


@dataclass
class _Sight:
    """A finding while it is being counted."""

    kind: str
    array: Array | None
    site: int
    thread: int
    story: str
    distance: int | None = None
    other_site: int | None = None
    count: int = 0


class WarpLedger:
    """Everything that is written down during one launch.

    Attributes:
        kernel: its name.
        grid, block: blocks, and threads of a block, along x, y, z.
        flops: floating-point operations so far; the caller adds to it.
        barriers: barriers of the block that passed most.
        shared_bytes: shared memory of the block that asked for most.
        has_source: whether the kernel reports its branches and FLOPs.
        is_fenced: whether it orders its blocks' accesses by itself.
        accesses: reports not yet summed up, see `Access`.
        branches: the same of branches: thread, phase, context, site, outcome.
    """

    def __init__(self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        self.kernel, self.grid, self.block = kernel, grid, block
        self.flops = 0
        self.barriers = 0
        self.shared_bytes = 0
        self.has_source = True
        self.is_fenced = False
        self.accesses: list[tuple[int, ...]] = []
        self.branches: list[tuple[int, ...]] = []
        self.arrays: list[Array] = []
        self._lines: list[SourceLine] = []
        self._sights: dict[tuple, _Sight] = {}
        self._tallies: dict[tuple[int, int], Counter] = {}
        self._ways: Counter = Counter()
        self._divergent: Counter = Counter()
        self._touched: list[np.ndarray] = []  # columns array, address, operation, site, thread
        self._cells: dict[Any, int] = {}

    # -- what is reported -------------------------------------------------------------------------

    def add_array(self, name: str, array: np.ndarray, memory: Any, start: int = 0, *,
                  nbytes: int, is_shared: bool = False) -> Array:  # fmt: skip
        """Watch one more array; arguments as the attributes of `Array`.

        A second shared array of one name, of another function, gets a prime behind it.
        """
        while any(name == other.name and is_shared == other.is_shared for other in self.arrays):
            name += "'"
        added = Array(
            name, len(self.arrays), memory, is_shared, start,
            array.itemsize, array.shape, array.strides, nbytes,
        )  # fmt: skip
        self.arrays.append(added)
        # Elements of two sizes in one memory can only be compared byte by byte.
        known = self._cells.setdefault(memory, array.itemsize)
        self._cells[memory] = known if known == array.itemsize else 1
        return added

    def add_site(self, line: SourceLine) -> int:
        """Give a place in the code its number."""
        self._lines.append(line)
        return len(self._lines) - 1

    def see_outside(self, array: Array, shape: Sequence[int], index: Sequence[int]) -> None:
        """Note that the last access left its array, or the part of it with this shape."""
        access = Access(*self.accesses[-1])
        axis, i = next((k, i) for k, i in enumerate(index) if not -shape[k] <= i < shape[k])
        size = shape[axis]
        distance = i - size + 1 if i >= 0 else i + size
        where = f"axis {axis} has {size} elements" if len(index) > 1 else f"it has {size} elements"
        story = f"{_DOES[access.operation].format(array.text(index))}, which is outside: {where}"
        actual = array.index_of(access.address)
        if actual is not None:
            story += f". On a GPU that is {array.text(actual)}"
        self._see("outside", array, access.site, access.thread, story, distance=distance)

    def see_uninitialised(self, array: Array) -> None:
        """Note that the last access read shared memory that no thread has stored to."""
        access = Access(*self.accesses[-1])
        index = array.index_of(access.address)
        story = f"reads {array.text(index)}, which no thread of the block has stored to"
        self._see("uninitialised", array, access.site, access.thread, story)

    def see_barrier(self, waiting: dict[int, int], ended: int) -> None:
        """Note a barrier at which not the whole block stands.

        Args:
            waiting: for each site at which threads wait, the first of them.
            ended: how many threads have ended without coming.
        """
        (site, thread), *others = waiting.items()
        if others:
            other_site, other = others[0]
            story = (
                f"waits at a barrier while thread {self._thread(other)} waits at another one, in "
                f"{self._at(other_site)}; a barrier is for the whole block"
            )
            self._see("barrier", None, site, thread, story, other_site=other_site)
        elif ended:
            story = (
                f"waits at a barrier that {ended} threads of its block never reach, because they "
                f"have ended; a barrier is for the whole block"
            )
            self._see("barrier", None, site, thread, story)

    def _see(self, kind, array, site, thread, story, *, distance=None, other_site=None, count=1):
        places = frozenset(self._lines[s] for s in (site, other_site) if s is not None)
        key = (kind, array, places)
        sight = self._sights.get(key)
        if sight is None:
            sight = _Sight(kind, array, site, thread, story, distance, other_site)
            self._sights[key] = sight
        sight.count += count

    # -- summing up -------------------------------------------------------------------------------

    def at_barrier(self) -> None:
        """Sum up if there is much to sum up; call it when no thread is between two barriers."""
        if len(self.accesses) + len(self.branches) > _ENOUGH:
            self.sum_up()

    def sum_up(self) -> None:
        """Sum up all reports so far."""
        if self.branches:
            thread, phase, context, site, taken = _columns(self.branches, 5)
            for found in zip(*both_ways(thread, phase, context, site, taken), strict=True):
                place, times, divergent = map(int, found)
                self._ways[place] += times
                self._divergent[place] += divergent
            self.branches.clear()
        if self.accesses:
            accesses = Access(*_columns(self.accesses, len(Access._fields)))
            self.accesses.clear()
            self._count(accesses)
            self._compare(accesses)

    def _count(self, accesses: Access) -> None:
        for request in requests_of(accesses._replace(address=accesses.address % _ADDRESSES)):
            array = self.arrays[request.array]
            tally = self._tallies.setdefault((request.array, request.operation), Counter())
            active = [address for address in request.addresses if address is not None]
            tally["requests"] += 1
            tally["bytes_requested"] += len(active) * array.itemsize
            if array.is_shared:
                degree = models.bank_conflicts(request.addresses, array.itemsize)
                tally["passes"] += degree
                tally["worst"] = max(tally["worst"], degree)
            else:
                tally["sectors"] += models.sectors(active, array.itemsize)
                tally["bytes_used"] += len(set(active)) * array.itemsize

    def _compare(self, accesses: Access) -> None:
        """Look for threads that met between two barriers, and keep what blocks have to compare."""
        a = self._by_cell(accesses)
        memory = self._memories[a.array]
        block = a.thread // THREADS_PER_BLOCK
        place = label(memory, a.address, block, a.phase)
        for one, other in meetings(place, a.thread, a):
            self._see_meetings(one, other, "with no barrier between them")
        kept = ~self._are_shared[a.array]
        columns = np.stack([a.array, a.address, a.operation, a.site, a.thread])[:, kept]
        same = label(*columns[:4], columns[4] // THREADS_PER_BLOCK)
        self._touched.append(columns[:, np.unique(same, return_index=True)[1]])

    @property
    def _memories(self) -> np.ndarray:
        """By array: the number of its memory."""
        numbers = {memory: number for number, memory in enumerate(self._cells)}
        return np.array([numbers[array.memory] for array in self.arrays])

    @property
    def _are_shared(self) -> np.ndarray:
        return np.array([array.is_shared for array in self.arrays])

    def _by_cell(self, accesses: Access) -> Access:
        """Leave out what is outside, and split up what is wider than its memory's cells."""
        inside = np.ones(accesses.array.size, bool)
        cells = np.ones(len(self.arrays), np.int64)
        for array in self.arrays:
            own = accesses.array == array.number
            cells[array.number] = array.itemsize // self._cells[array.memory]
            low, high = _bounds(array)
            inside[own] = (accesses.address[own] >= low) & (accesses.address[own] < high)
        chosen = [column[inside] for column in accesses]
        parts = cells[chosen[Access._fields.index("array")]]
        spread = Access(*(np.repeat(column, parts) for column in chosen))
        starts = np.repeat(np.cumsum(parts) - parts, parts)
        step = np.array([self._cells[array.memory] for array in self.arrays])[spread.array]
        return spread._replace(address=spread.address + (np.arange(starts.size) - starts) * step)

    def _see_meetings(self, one: Access, other: Access, why: str) -> None:
        sites = np.sort(np.stack([one.site, other.site]), axis=0)
        kinds = label(one.array, *sites)
        _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
        for at, count in sorted(zip(first.tolist(), counts.tolist(), strict=True)):
            a, b = (Access(*(int(column[at]) for column in columns)) for columns in (one, other))
            array = self.arrays[a.array]
            into_element = (a.address - array.start) % array.itemsize
            index = array.index_of(a.address - into_element) or ()
            same_block = a.thread // THREADS_PER_BLOCK == b.thread // THREADS_PER_BLOCK
            whose = "" if same_block else f" of block {self._block(b.thread)}"
            story = (
                f"{_DOES[a.operation].format(array.text(index))}, and thread "
                f"{self._thread(b.thread)}{whose} {_DOES[b.operation].format('it')} in "
                f"{self._at(b.site)}, {why}"
            )
            kind = "race" if READ in (a.operation, b.operation) else "two writers"
            self._see(kind, array, a.site, a.thread, story, other_site=b.site, count=count)

    # -- the result -------------------------------------------------------------------------------

    def launch(self) -> Launch:
        """Sum up everything."""
        self.sum_up()
        touched = (
            np.concatenate(self._touched, axis=1) if self._touched else np.zeros((5, 0), np.int64)
        )
        if not self.is_fenced:
            self._compare_blocks(touched)
        arguments = {a.name: self._traffic(a, touched) for a in self.arrays if not a.is_shared}
        total = dataclasses.replace(
            Traffic.total(arguments.values()),
            compulsory_read=self._distinct(touched, READ),
            compulsory_written=self._distinct(touched, WRITE),
            flops=self.flops,
        )
        notes = [_NO_SOURCE] * (not self.has_source) + [_FENCED] * self.is_fenced
        return Launch(
            name=self.kernel,
            kind="numba",
            traffic=total,
            arguments=arguments,
            grid=self.grid,
            findings=tuple(self._findings(arguments, touched)),
            notes=tuple(notes),
            warps=self._warps(),
        )

    def _compare_blocks(self, touched: np.ndarray) -> None:
        array, address, operation, site, thread = touched
        place = label(self._memories[array], address) if array.size else array
        columns = Access(thread, thread, thread, site, array, address, operation)
        for one, other in meetings(place, thread // THREADS_PER_BLOCK, columns):
            self._see_meetings(one, other, "and blocks do not wait for each other")

    def _distinct(self, touched: np.ndarray, direction: int, number: int | None = None) -> int:
        """Distinct bytes read, or written, of one array or of all."""
        array, address, operation, *_ = touched
        chosen = (operation == direction) | (operation == ATOMIC)
        if number is not None:
            chosen &= array == number
        total = 0
        for index, memory in enumerate(self._cells):
            own = chosen & (self._memories[array] == index) if array.size else chosen
            total += np.unique(address[own]).size * self._cells[memory]
        return total

    def _traffic(self, array: Array, touched: np.ndarray) -> ArgumentTraffic:
        moved = [self._tallies.get((array.number, o), Counter()) for o in (READ, WRITE, ATOMIC)]
        read, written, both = (tally["bytes_requested"] for tally in moved)
        unwritten = len(self._unwritten(array, touched)) if written + both else 0
        return ArgumentTraffic(
            bytes_read=read + both,
            bytes_written=written + both,
            compulsory_read=self._distinct(touched, READ, array.number),
            compulsory_written=self._distinct(touched, WRITE, array.number),
            nbytes=array.nbytes,
            elements_unwritten=unwritten,
        )

    def _unwritten(self, array: Array, touched: np.ndarray) -> np.ndarray:
        """The indices of an array's own elements that no store reached, one row each."""
        numbers, address, operation, *_ = touched
        same_memory = np.array([other.memory == array.memory for other in self.arrays])
        written = address[(operation != READ) & same_memory[numbers]]
        return np.argwhere(~np.isin(array.own_addresses, written))

    def _warps(self) -> Warps:
        access: dict[bool, dict[str, Any]] = {False: {}, True: {}}
        for array in self.arrays:
            of_array, of_requests = (
                (SharedAccess, SharedRequests)
                if array.is_shared
                else (GlobalAccess, GlobalRequests)
            )
            access[array.is_shared][array.name] = of_array(
                *(
                    of_requests(**self._tallies.get((array.number, operation), {}))
                    for operation in range(len(OPERATIONS))
                )
            )
        return Warps(
            block=self.block,
            global_memory=access[False],
            shared_memory=access[True],
            branches=tuple(self._branches()),
            barriers=self.barriers,
            shared_bytes=self.shared_bytes,
        )

    def _branches(self) -> Iterator[Branch]:
        for site in sorted(self._ways):
            line = self._lines[site]
            yield Branch(
                line.function, line.number, line.text, self._ways[site], self._divergent[site]
            )

    def _findings(self, arguments, touched) -> Iterator[Finding]:
        racing = {sight.array for sight in self._sights.values() if sight.kind == "race"}
        for sight in self._sights.values():
            # Where threads race, what one finds not yet stored is the race.
            if sight.kind == "uninitialised" and sight.array in racing:
                continue
            yield self._finding(sight)
        for array in self.arrays:
            missing = 0 if array.is_shared else arguments[array.name].elements_unwritten
            if missing:
                first = array.text(self._unwritten(array, touched)[0])
                yield Finding(
                    kind="unwritten",
                    message=(
                        f"{self.kernel} stores to {array.name} but leaves {missing} of its "
                        f"elements unwritten, the first at {first}."
                    ),
                    kernel=self.kernel,
                    argument=array.name,
                    count=missing,
                )

    def _finding(self, sight: _Sight) -> Finding:
        line = self._lines[sight.site]
        other = None if sight.other_site is None else self._lines[sight.other_site]
        more = f" ({sight.count} times in all)" if sight.count > 1 else ""
        return Finding(
            kind=sight.kind,
            message=(
                f"{self.kernel}, {self._at(sight.site)}: thread {self._thread(sight.thread)} of "
                f"block {self._block(sight.thread)} {sight.story}{more}."
            ),
            kernel=self.kernel,
            argument=sight.array.name if sight.array else "",
            line=line.number,
            source=line.text,
            program=self._block_index(sight.thread),
            lane=self._thread_index(sight.thread),
            distance=sight.distance,
            count=sight.count,
            other_line=other.number if other else None,
            other_source=other.text if other else "",
        )

    def _at(self, site: int) -> str:
        line = self._lines[site]
        helper = "" if line.function == self.kernel else f"{line.function}, "
        return f"{helper}line {line.number} `{line.text}`"

    def _block_index(self, thread: int) -> tuple[int, int, int]:
        return _unravel(thread // THREADS_PER_BLOCK, self.grid)

    def _thread_index(self, thread: int) -> tuple[int, int, int]:
        return _unravel(thread % THREADS_PER_BLOCK, self.block)

    def _block(self, thread: int) -> str:
        return _short(self._block_index(thread), self.grid)

    def _thread(self, thread: int) -> str:
        return _short(self._thread_index(thread), self.block)


def meetings(
    place: np.ndarray, actor: np.ndarray, accesses: Access
) -> Iterator[tuple[Access, Access]]:
    """Find accesses to one place by two actors, of which one stores.

    Two atomics may meet; an atomic and a plain access may not.

    Args:
        place: dense numbers of what is accessed, and between which barriers.
        actor: who accesses it: a thread, or a block.
        accesses: columns of the same length.

    Yields:
        Columns of accesses, and of what each of them meets. A place where any two meet is found,
        though not every pair of them: each is compared with the place's first store, first atomic
        and first load.
    """
    operation = accesses.operation
    for first_of, meets in ((WRITE, None), (ATOMIC, READ), (READ, ATOMIC)):
        found = np.flatnonzero(operation == first_of)
        first = np.full(int(place.max(initial=-1)) + 1, -1)
        first[place[found[::-1]]] = found[::-1]
        reference = first[place]
        chosen = (reference >= 0) & (actor != actor[reference])
        if meets is not None:
            chosen &= operation == meets
        other = np.flatnonzero(chosen)
        yield (
            Access(*(column[reference[other]] for column in accesses)),
            Access(*(column[other] for column in accesses)),
        )


def _columns(reports: list[tuple[int, ...]], width: int) -> np.ndarray:
    flat = itertools.chain.from_iterable(reports)
    return np.fromiter(flat, np.int64, len(reports) * width).reshape(-1, width).T.copy()


def _bounds(array: Array) -> tuple[int, int]:
    """The lowest address of an array's elements, and where the last of them ends."""
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True) if n]
    low = array.start + sum(min(step, 0) for step in steps)
    return low, array.start + sum(max(step, 0) for step in steps) + array.itemsize


def _unravel(number: int, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, rest = number % sizes[0], number // sizes[0]
    return x, rest % sizes[1], rest // sizes[1]


def _short(index: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """Write an index in as many dimensions as its author thinks in: 3 rather than (3, 0, 0)."""
    used = max((axis + 1 for axis, size in enumerate(sizes) if size > 1), default=1)
    return str(index[0]) if used == 1 else str(index[:used])
