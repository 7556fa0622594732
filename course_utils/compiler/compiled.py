"""What the compiler made of a kernel, and whether a GPU can run it."""

from __future__ import annotations

import functools
import html
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_utils import gpus, models
from course_utils.compiler import assembly, cache
from course_utils.compiler.errors import CompileError, in_words
from course_utils.compiler.ttgir import Access, read_accesses

TENSOR_MEMORY_COLUMNS = 512  # NVIDIA, PTX ISA, Tensor Memory: columns of 128 lanes of 32 bits


@dataclass(frozen=True)
class Fit:
    """Whether a kernel can run on a GPU: true or false, with the reasons why not."""

    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return "\n".join(self.reasons) or "fits"

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Compiled:
    """A kernel compiled for a GPU.

    Attributes:
        kernel: its name.
        gpu: the GPU that it was compiled for.
        signature: the type of each parameter as the compiler saw it; "constexpr" also for a number
            that is 1, which Triton takes for a constant.
        constants: its constexpr parameters that are numbers or texts, such as tile sizes.
        num_warps: warps of a program (all of them, where some have roles of their own).
        num_stages: of software pipelining, as asked for.
        num_ctas: programs that work together as a cluster.
        registers: 32-bit registers of each thread.
        stack: bytes of local memory of each thread, for spilled registers and for arrays.
        spill_stores: bytes that a thread writes to local memory because registers ran out; the sum
            over the instructions, each counted once.
        spill_loads: bytes that it reads back.
        shared_memory: bytes of a program.
        tensor_memory: columns of tensor memory of a program (compute capability 10.0).
        ttgir: Triton's intermediate code, with the layouts of all tiles.
        ptx: virtual assembly.
        cubin: the binary.
        triton: the version that compiled it.
        seconds: that the compiler took.
    """

    kernel: str
    gpu: gpus.GPU
    signature: Mapping[str, str] = field(hash=False)
    constants: Mapping[str, Any] = field(hash=False)
    num_warps: int
    num_stages: int
    num_ctas: int
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared_memory: int
    tensor_memory: int
    ttgir: str
    ptx: str
    cubin: bytes
    triton: str
    seconds: float = field(compare=False)

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return self.num_warps * self.gpu.warp_size

    @property
    def spills(self) -> int:
        """Bytes that each thread moves to local memory and back because registers ran out."""
        return self.spill_stores + self.spill_loads

    @functools.cached_property
    def instructions(self) -> assembly.Instructions:
        """Loads, stores and matrix instructions, counted in the PTX."""
        return assembly.read_ptx(self.ptx)

    @functools.cached_property
    def sass_instructions(self) -> assembly.Instructions:
        """Loads, stores and matrix instructions, counted in the machine code."""
        return assembly.read_sass(self.sass)

    @property
    def load_bits(self) -> Mapping[int, int]:
        """Global loads by bits per thread and instruction: {128: 2} are two of 16 bytes each."""
        return self.instructions.loads

    @property
    def store_bits(self) -> Mapping[int, int]:
        """Global stores by bits per thread and instruction."""
        return self.instructions.stores

    @property
    def matrix_instructions(self) -> Mapping[str, int]:
        """Matrix instructions in the PTX by name; empty if tl.dot became ordinary arithmetic."""
        return self.instructions.matrix

    @property
    def matrix_unit(self) -> str | None:
        """ "mma" (from 8.0), "wgmma" (9.0), "tcgen05" (10.0), or None."""
        return self.instructions.matrix_unit

    @functools.cached_property
    def sass(self) -> str:
        """The machine code, an instruction a line; made when first asked for (half a second)."""
        name = cache.key("sass", self.cubin, self.triton)
        text = cache.load(name)
        if text is None:
            text = assembly.tidy_sass(_disassemble(self.cubin))
            cache.store(name, text)
        return text

    @functools.cached_property
    def accesses(self) -> tuple[Access, ...]:
        """The loads and stores of tiles, with the thread mapping of each."""
        return tuple(read_accesses(self.ttgir))

    def access(self, kind: str, argument: str | None = None) -> Access:
        """Return the first access of a kind ("load", "store", ...), of a parameter if named.

        Raises:
            ValueError: there is none; the message lists those that there are.
        """
        for access in self.accesses:
            if access.kind == kind and argument in (None, access.argument):
                return access
        there = ", ".join(f"{a.kind} {a.argument}" for a in self.accesses) or "none of a tile"
        wanted = kind if argument is None else f"{kind} {argument}"
        raise ValueError(f"{self.kernel} has no {wanted}. Its accesses are: {there}.")

    def occupancy(self, gpu: gpus.GPU | str | None = None) -> models.Occupancy:
        """Return how many programs an SM holds at once; on another GPU if one is given.

        Raises:
            ValueError: as `gpus.gpu` and `models.occupancy`.
        """
        return models.occupancy(self._gpu(gpu), self.threads, self.registers, self.shared_memory)

    def fits(self, gpu: gpus.GPU | str | None = None) -> Fit:
        """Say whether the kernel runs on a GPU (the one compiled for, or another), or why not.

        Raises:
            ValueError: as `gpus.gpu`.
        """
        gpu = self._gpu(gpu)
        reasons = []
        if gpu.compute_capability != self.gpu.compute_capability:
            reasons.append(
                f"{self.kernel} was compiled for compute capability {_dotted(self.gpu)}, but the "
                f"{gpu.name} has {_dotted(gpu)}: compile it for that GPU."
            )
            if gpu.vendor != "NVIDIA":
                return Fit(tuple(reasons))
        if self.shared_memory > gpu.shared_memory_per_block:
            reasons.append(
                f"{self.kernel} needs {self.shared_memory:,} bytes of shared memory for a program, "
                f"but the {gpu.name} has {gpu.shared_memory_per_block:,} at most: take smaller "
                f"tiles{' or fewer num_stages' * (self.num_stages > 1)}."
            )
        if self.tensor_memory > TENSOR_MEMORY_COLUMNS:
            reasons.append(
                f"{self.kernel} needs {self.tensor_memory} columns of tensor memory, but there are "
                f"{TENSOR_MEMORY_COLUMNS}: take a smaller output tile."
            )
        if self.threads > models.MAX_THREADS_PER_BLOCK:
            reasons.append(
                f"{self.kernel} has {self.threads} threads ({self.num_warps} warps) in a program, "
                f"but at most {models.MAX_THREADS_PER_BLOCK} (32 warps) are possible: lower "
                "num_warps."
            )
        elif "registers" in (found := self.occupancy(gpu)).limited_by and not found.blocks_per_sm:
            reasons.append(
                f"{self.kernel} needs {self.registers} registers for each of {self.threads} "
                f"threads, more than the {gpu.registers_per_sm:,} of an SM: take smaller tiles or "
                "set maxnreg."
            )
        return Fit(tuple(reasons))

    def _gpu(self, gpu: gpus.GPU | str | None) -> gpus.GPU:
        if gpu is None:
            return self.gpu
        return gpus.gpu(gpu) if isinstance(gpu, str) else gpu

    def _rows(self) -> list[tuple[str, str]]:
        fit = self.fits()
        rows = [
            ("program", f"{self.num_warps} warps, {self.threads} threads"),
            ("registers per thread", str(self.registers)),
            ("spilled per thread", f"{self.spills} bytes"),
            ("shared memory", f"{self.shared_memory:,} bytes"),
            ("global loads", _widths(self.instructions.loads)),
            ("global stores", _widths(self.instructions.stores)),
            ("matrix instructions", _matrix(self.instructions)),
            ("occupancy", str(self.occupancy()) if fit else "does not fit"),
        ]
        if self.instructions.bulk_copies:
            rows.insert(6, ("tensor copies", str(self.instructions.bulk_copies)))
        if self.tensor_memory:
            rows.insert(4, ("tensor memory", f"{self.tensor_memory} columns"))
        return rows + [("", reason) for reason in fit.reasons]

    def _title(self) -> str:
        return f"{_name(self)} for {self.gpu.name} (compute capability {_dotted(self.gpu)})"

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join([self._title(), *(f"  {name:<{width}}  {text}" for name, text in rows)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in self._rows()
        )
        return f"<table><caption>{html.escape(self._title())}</caption>{cells}</table>"


class Compilations(list[Compiled | CompileError]):
    """Several compilations in the order asked for, shown as one table.

    A kernel that does not compile is in its place as the error, not raised.
    """

    @property
    def errors(self) -> list[CompileError]:
        """Those that failed."""
        return [item for item in self if isinstance(item, CompileError)]

    def _rows(self) -> list[tuple[str, ...]]:
        return [_HEAD, *map(_row, self)]

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def line(cells: Iterable[str], tag: str) -> str:
            return "".join(
                f'<{tag} style="text-align:{"right" if column in _NUMBERS else "left"}">'
                f"{html.escape(cell)}</{tag}>"
                for column, cell in enumerate(cells)
            )

        head, *rows = self._rows()
        body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
        return f"<table><thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


_HEAD = (
    *("kernel", "GPU", "warps", "registers", "spilled", "shared", "loads", "stores"),
    *("matrix", "occupancy", "limited by"),
)
_NUMBERS = range(2, 6)  # columns


def _row(item: Compiled | CompileError) -> tuple[str, ...]:
    if isinstance(item, CompileError):
        return _name(item), item.gpu, *[""] * (len(_HEAD) - 3), f"does not compile: {item.message}"
    fit = item.fits()
    occupancy = item.occupancy() if fit else None
    return (
        _name(item),
        item.gpu.name,
        str(item.num_warps),
        str(item.registers),
        f"{item.spills} B",
        f"{item.shared_memory:,} B",
        _widths(item.instructions.loads, short=True),
        _widths(item.instructions.stores, short=True),
        item.matrix_unit or "-",
        f"{occupancy.fraction:.0%}" if occupancy else "-",
        in_words(occupancy.limited_by) if occupancy else f"does not fit: {fit}",
    )


def _name(item: Compiled | CompileError) -> str:
    """Return the kernel's name with its tile sizes: "gelu_kernel(BLOCK=1024)"."""
    sizes = ", ".join(f"{name}={value!r}" for name, value in item.constants.items())
    return f"{item.kernel}({sizes})" if sizes else item.kernel


def _widths(counts: Mapping[int, int], short: bool = False) -> str:
    if not counts:
        return "-" if short else "none"
    if short:
        return ", ".join(f"{count} × {bits} b" for bits, count in counts.items())
    return ", ".join(f"{count} of {bits} bits" for bits, count in counts.items())


def _matrix(instructions: assembly.Instructions) -> str:
    if not instructions.matrix:
        return "none"
    return ", ".join(f"{count} {name}" for name, count in instructions.matrix.items())


def _dotted(gpu: gpus.GPU) -> str:
    if gpu.compute_capability is None:
        return "none"
    return ".".join(map(str, gpu.compute_capability))


def _disassemble(cubin: bytes) -> str:
    """Return cuobjdump's listing of a binary."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="writing-fast-kernels-") as folder:
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(cubin)
        command: list[Any] = [knobs.nvidia.cuobjdump.path, "-sass", path]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=120
        ).stdout
