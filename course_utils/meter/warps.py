"""What a CUDA kernel asked of memory, warp by warp: plain data, and how accesses become requests.

A warp's 32 lanes run together, so what they access in one instruction is one *request*. Which
accesses belong together is told by where they were made: same warp, same place in the code, same
iterations of the loops around it, same stretch between two barriers. Lanes that a branch has
switched off are not in the request; the others do not wait for them. This is how a GPU runs
structured code; it does not promise to (lanes may drift apart), but has no reason not to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from course_utils import models

READ, WRITE, ATOMIC = range(3)
OPERATIONS = ("loads", "stores", "atomics")


@dataclass(frozen=True)
class GlobalRequests:
    """Requests of warps to one array in global memory.

    Attributes:
        requests: instructions that warps made.
        sectors: 32-byte sectors that those touched, counted anew for each request.
        bytes_requested: bytes that lanes name; lanes that name the same bytes count each.
        bytes_used: bytes that lanes name; counted once per request.
    """

    requests: int = 0
    sectors: int = 0
    bytes_requested: int = 0
    bytes_used: int = 0

    @property
    def sectors_per_request(self) -> float:
        """4 is right for 4-byte elements in a row, 32 is the worst; 0 without requests."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def useful_share(self) -> float:
        """Share of the bytes in those sectors that lanes wanted, 0 to 1; 1 without requests."""
        if not self.sectors:
            return 1.0
        return self.bytes_used / (self.sectors * models.SECTOR_BYTES)


@dataclass(frozen=True)
class SharedRequests:
    """Requests of warps to one array in shared memory.

    Attributes:
        requests: instructions that warps made.
        passes: the sum of their degrees of bank conflict; equals `requests` where there is none.
        worst: the highest degree, see `models.bank_conflicts`; 0 without requests.
        bytes_requested: bytes that lanes name; lanes that name the same bytes count each.
    """

    requests: int = 0
    passes: int = 0
    worst: int = 0
    bytes_requested: int = 0

    @property
    def conflict_degree(self) -> float:
        """The mean degree of bank conflict: 1 is none, 32 is the worst; 0 without requests."""
        return self.passes / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class GlobalAccess:
    """How one array in global memory was accessed, by kind of instruction."""

    loads: GlobalRequests = GlobalRequests()
    stores: GlobalRequests = GlobalRequests()
    atomics: GlobalRequests = GlobalRequests()


@dataclass(frozen=True)
class SharedAccess:
    """How one array in shared memory was accessed, by kind of instruction."""

    loads: SharedRequests = SharedRequests()
    stores: SharedRequests = SharedRequests()
    atomics: SharedRequests = SharedRequests()


@dataclass(frozen=True)
class Branch:
    """An `if`, `while` or `for` of the kernel, or of a function that it called.

    Attributes:
        function: the name of the function it stands in.
        line: counted from that function's ``def`` as 1.
        source: that line's text.
        executions: how often a warp came to it; to a loop's head once more than it went round.
        divergent: how often its lanes went both ways.
    """

    function: str
    line: int
    source: str
    executions: int
    divergent: int


@dataclass(frozen=True)
class Warps:
    """What the warps of one launch did.

    Attributes:
        block: threads of a block along x, y, z.
        global_memory: the requests by argument.
        shared_memory: the requests by the name of the shared array.
        branches: those that any warp came to, in the order in which they were first met; empty
            where the kernel's source cannot be found.
        barriers: barriers that a block passed; the most of any block.
        shared_bytes: shared memory of a block, static and dynamic; the most of any block.
    """

    block: tuple[int, int, int]
    global_memory: dict[str, GlobalAccess] = field(default_factory=dict)
    shared_memory: dict[str, SharedAccess] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    barriers: int = 0
    shared_bytes: int = 0

    @property
    def divergent_branches(self) -> int:
        """How often the lanes of a warp went both ways at a branch."""
        return sum(branch.divergent for branch in self.branches)


# -- from accesses to requests --------------------------------------------------------------------

THREADS_PER_BLOCK = models.MAX_THREADS_PER_BLOCK
"""Threads are numbered through all blocks as if each had this many."""


class Access(NamedTuple):
    """What one thread did at one place in the code; as columns, what many did.

    Attributes:
        thread: its number.
        phase: barriers that it has passed in its block.
        context: stands for the iterations of the loops, and the calls, that led to the place.
        site: stands for the place in the code.
        array: stands for the array.
        address: byte address within the array's memory.
        operation: READ, WRITE or ATOMIC.
    """

    thread: int
    phase: int
    context: int
    site: int
    array: int
    address: int
    operation: int


class Request(NamedTuple):
    """What the lanes of a warp access together.

    Attributes:
        array, operation: as in `Access`.
        addresses: byte address of each of the 32 lanes; None where it takes no part.
    """

    array: int
    operation: int
    addresses: list[int | None]


def requests_of(accesses: Access) -> Iterator[Request]:
    """Yield the requests that columns of accesses are made of.

    Args:
        accesses: integer arrays of one length, in the order in which each thread made them.
    """
    a = accesses
    # What a thread does twice at one place, within one iteration, is two instructions.
    again = rank_within(label(a.thread, a.phase, a.context, a.site))
    request = label(
        a.thread // models.WARP_SIZE, a.phase, a.context, a.site, again, a.array, a.operation
    )
    order = np.argsort(request, kind="stable")
    ends = np.cumsum(np.bincount(request)).tolist()
    lanes = (a.thread[order] % models.WARP_SIZE).tolist()
    addresses = a.address[order].tolist()
    arrays, operations = a.array[order].tolist(), a.operation[order].tolist()
    start = 0
    for end in ends:
        by_lane: list[int | None] = [None] * models.WARP_SIZE
        for at in range(start, end):
            by_lane[lanes[at]] = addresses[at]
        yield Request(arrays[start], operations[start], by_lane)
        start = end


def both_ways(thread, phase, context, site, taken) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group what threads did at branches by warp.

    Args:
        thread, phase, context, site: integer arrays of one length, as in `Access`.
        taken: whether the condition held; bool.

    Returns:
        The sites, and for each how often a warp came to it, and how often lanes went both ways.
    """
    again = rank_within(label(thread, phase, context, site))
    group = label(thread // models.WARP_SIZE, phase, context, site, again)
    _, first, lanes = np.unique(group, return_index=True, return_counts=True)
    going = np.bincount(group, weights=taken)
    divergent = (going > 0) & (going < lanes)
    sites, index = np.unique(site[first], return_inverse=True)
    return sites, np.bincount(index), np.bincount(index, weights=divergent).astype(np.int64)


def label(*columns: np.ndarray) -> np.ndarray:
    """Number the distinct rows of some columns of non-negative integers, densely from 0."""
    labels = np.zeros_like(columns[0])
    for column in columns:
        span = int(column.max(initial=0)) + 1
        labels = np.unique(labels * span + column, return_inverse=True)[1]
    return labels


def rank_within(labels: np.ndarray) -> np.ndarray:
    """Count for each element how many of the same label stand before it."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(labels.size) - starts
    return ranks
