"""The arguments of one launch: where each tensor lies, and who touched which of its bytes.

A kernel's pointers are plain numbers. To know which tensor a pointer came from whatever arithmetic
was done on it, each tensor argument gets an address region of its own, 2^48 bytes wide, with the
tensor in the middle: the upper bits of an address then name the argument, and a lane that leaves
its tensor is seen even where it would land in a neighbour.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

REGION_BITS = 48  # user-space addresses of today's machines fit below, so regions never clash
_MIDDLE = 1 << (REGION_BITS - 1)
_ALIGNMENT_MASK = 0xFFF  # a region keeps the low bits, so alignment checks see the true address

# Who touched a cell. Programs are numbered from 1; a program that has only updated it atomically is
# written as its negative number, because atomics that meet at one address are no conflict.
NOBODY = 0
_SEVERAL_ATOMICS = np.iinfo(np.int32).min
_SEVERAL = np.iinfo(np.int32).max  # at least one of them with a plain store


def stay_in_region(before: np.ndarray, after: np.ndarray, offsets: np.ndarray) -> None:
    """Hold pointers that an offset carried out of their region at its edge, in place.

    Args:
        before: region addresses before the offset was added, uint64.
        after: the same after it; changed where the region is another one.
        offsets: what was added, in elements; its sign tells which edge.
    """
    if not after.size or int((before ^ after).max()) >> REGION_BITS == 0:
        return
    # Far beyond any memory: what matters is that it stays recognisable as outside its tensor.
    span = np.uint64((1 << REGION_BITS) - 1)
    edge = np.where(offsets < 0, before & ~span, before | span & ~np.uint64(_ALIGNMENT_MASK))
    after[...] = np.where((before ^ after) >> np.uint64(REGION_BITS), edge, after)


class Memory:
    """Who read and who wrote each cell of one storage, during one launch.

    Only the window that arguments span is mapped: a storage may be far larger than the few
    elements of it that a kernel was given.
    """

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage_start = storage.data_ptr()
        self.storage_end = self.storage_start + storage.nbytes()
        self.start = self.storage_end
        self.end = self.storage_start
        self.cell = 0  # bytes per cell: the element size, until an access is finer
        self.regions: list[int] = []

    def include(self, region: int, start: int, end: int, itemsize: int) -> None:
        """Widen the window by an argument's bytes, before anything is noted."""
        self.start, self.end = min(self.start, start), max(self.end, end)
        self.cell = itemsize if self.cell in (0, itemsize) else 1
        self.regions.append(region)

    @functools.cached_property
    def reader(self) -> np.ndarray:
        """Who read each cell."""
        return np.zeros(-(-(self.end - self.start) // self.cell), np.int32)

    @functools.cached_property
    def writer(self) -> np.ndarray:
        """Who wrote each cell."""
        return np.zeros_like(self.reader)

    @functools.cached_property
    def touched(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Which cells each argument read and wrote; kept only where several share this memory."""
        if len(self.regions) == 1:
            return {}
        size = self.reader.size
        return {r: (np.zeros(size, bool), np.zeros(size, bool)) for r in self.regions}

    def cells_of(self, addresses: np.ndarray, width: int) -> np.ndarray:
        """Map accesses ``width`` bytes wide at these true addresses to cell indices."""
        offsets = addresses - self.start
        if width % self.cell or (self.cell > 1 and (offsets % self.cell).any()):
            self.refine()
        first = offsets // self.cell
        per_access = width // self.cell
        if per_access == 1:
            return first
        return (first[:, None] + np.arange(per_access)).ravel()

    def refine(self) -> None:
        """Make the cells one byte wide."""

        def finer(cells: np.ndarray) -> np.ndarray:
            return np.repeat(cells, self.cell)[: self.end - self.start]

        self.touched = {r: (finer(a), finer(b)) for r, (a, b) in self.touched.items()}
        self.reader, self.writer = finer(self.reader), finer(self.writer)
        self.cell = 1

    def read(self, cells: np.ndarray, program: int, atomic: bool) -> np.ndarray:
        """Note a read; return which of the cells another program has written."""
        reader = self.reader[cells]
        if reader.any():
            alone = (reader == NOBODY) | (reader == program)
            self.reader[cells] = np.where(alone, program, _SEVERAL)
        else:
            self.reader[cells] = program
        writer = self.writer[cells]
        clash = (writer != NOBODY) & (writer != program) & (writer != -program)
        return clash & (writer > 0) if atomic else clash

    def write(self, cells: np.ndarray, program: int, atomic: bool) -> tuple[np.ndarray, np.ndarray]:
        """Note a write; return which cells others have written, and which others have read."""
        writer = self.writer[cells]
        others = (writer != NOBODY) & (writer != program) & (writer != -program)
        if atomic:
            clash = others & (writer > 0)
            # A plain store stays on record: another program's atomic must not meet it unseen.
            mark = np.where(writer == program, program, -program)
            mark = np.where(others, _SEVERAL_ATOMICS, mark)
            self.writer[cells] = np.where(clash, _SEVERAL, mark)
            return clash, np.zeros_like(clash)
        self.writer[cells] = np.where(others, _SEVERAL, program)
        reader = self.reader[cells]
        return others, (reader != NOBODY) & (reader != program)


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
        self.base = (self.region << REGION_BITS) + _MIDDLE + (self.real & _ALIGNMENT_MASK)
        dims = [(size, stride) for size, stride in _dims(tensor) if stride]
        reach = sum((size - 1) * stride for size, stride in dims) + 1
        self.elements = reach if tensor.numel() else 0
        # A view with gaps between its rows owns only part of what it spans.
        self.owned: np.ndarray | None = None
        if self.elements and self.elements != math.prod(size for size, _ in dims):
            self.owned = np.zeros(self.elements, bool)
            shape, strides = [size for size, _ in dims], [stride for _, stride in dims]
            np.lib.stride_tricks.as_strided(self.owned, shape, strides)[...] = True
        end = self.real + self.elements * self.itemsize
        self.memory.include(self.region, self.real, end, self.itemsize)

    @property
    def own_count(self) -> int:
        """How many elements are its own; those of a broadcast dimension count once."""
        return self.elements if self.owned is None else int(np.count_nonzero(self.owned))

    def inside(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Tell which accesses, ``width`` bytes at these byte offsets, stay in this very tensor."""
        within = (offsets >= 0) & (offsets <= self.elements * self.itemsize - width)
        if self.owned is not None:
            for end in (0, width - 1):
                within &= self.owned[np.where(within, offsets + end, 0) // self.itemsize]
        return within

    def touched(self) -> tuple[np.ndarray, np.ndarray]:
        """Return this argument's own cells, non-zero where it read, and where it wrote."""
        maps = self.memory.touched.get(self.region, (self.memory.reader, self.memory.writer))
        return self.own_cells(maps[0]), self.own_cells(maps[1])

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
        if self.tensor.dim() == 0:
            return self.name
        if self.tensor.dim() == 1 or not 0 <= element < self.elements:
            return f"{self.name}[{element}]"
        order = sorted(range(self.tensor.dim()), key=lambda d: -self.tensor.stride(d))
        index = [0] * self.tensor.dim()
        for dim in order:
            if self.tensor.stride(dim) > 0 and self.tensor.shape[dim] > 1:
                index[dim], element = divmod(element, self.tensor.stride(dim))
        return f"{self.name}[{', '.join(map(str, index))}]"


def _dims(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    return zip(tensor.shape, tensor.stride(), strict=True)
