"""What the instructions of a compiled kernel say: widths of memory accesses, matrix instructions.

PTX is the virtual assembly that Triton writes; SASS is the machine code that NVIDIA's ptxas makes
of it, shown by cuobjdump. The names of the instructions are from NVIDIA, PTX ISA, and from NVIDIA,
CUDA Binary Utilities, Instruction Set Reference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Instructions:
    """Counts of instructions in a kernel's text (not of their executions).

    Attributes:
        loads: from global memory, by bits per thread: {128: 2} are two loads of 16 bytes each.
            Copies from global to shared memory (cp.async, LDGSTS) are among them.
        stores: to global memory, in the same way.
        matrix: matrix instructions by name.
        bulk_copies: copies by the tensor memory accelerator, which have no width per thread.
    """

    loads: Mapping[int, int]
    stores: Mapping[int, int]
    matrix: Mapping[str, int]
    bulk_copies: int = 0

    @property
    def matrix_unit(self) -> str | None:
        """The generation of matrix instructions: "mma", "wgmma", "tcgen05", or None."""
        for name in self.matrix:
            if name.startswith(("tcgen05", "UTC")):
                return "tcgen05"
            if name.startswith("wgmma") or re.match(r"[A-Z]GMMA", name):
                return "wgmma"
        return "mma" if self.matrix else None


_PTX_MEMORY = re.compile(r"\b(ld|st)(?:\.[\w:]+?)*?\.global((?:\.[\w:]+)*)")
_PTX_ASYNC = re.compile(
    r"\bcp\.async\.c[ag]\.shared(?:::\w+)?\.global\S* *\[[^\]]*\], *\[[^\]]*\], *(\w+)"
)
_PTX_BULK = re.compile(r"\bcp\.async\.bulk\.(?:tensor\.\w+\.)?(?:shared|global)")
_PTX_MATRIX = re.compile(r"\b(?:mma\.sync|mma\.sp|wgmma\.mma_async|tcgen05\.mma)\b[\w.:]*")


def read_ptx(ptx: str) -> Instructions:
    """Count the instructions in PTX."""
    counts: dict[str, Counter[int]] = {"ld": Counter(), "st": Counter()}
    matrix: Counter[str] = Counter()
    bulk = 0
    for line in _code(ptx):
        for match in _PTX_MEMORY.finditer(line):
            counts[match[1]][_ptx_bits(match[2])] += 1
        for match in _PTX_ASYNC.finditer(line):
            counts["ld"][8 * int(match[1], 0)] += 1
        matrix.update(match[0] for match in _PTX_MATRIX.finditer(line))
        bulk += len(_PTX_BULK.findall(line))
    return Instructions(_sorted(counts["ld"]), _sorted(counts["st"]), dict(matrix), bulk)


def _ptx_bits(suffixes: str) -> int:
    count, bits = 1, 32
    for suffix in suffixes.split("."):
        vector = re.fullmatch(r"v(\d)", suffix)
        element = re.fullmatch(r"[busf](\d+)", suffix)
        count = int(vector[1]) if vector else count
        bits = int(element[1]) if element else bits
    return count * bits


def _code(ptx: str) -> Iterator[str]:
    """Give the lines of PTX without comments and debugging sections."""
    for line in ptx.split(".section\t.debug")[0].splitlines():
        yield line.split("//")[0]


_SASS_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x[0-9a-f]+ \*/")
_SASS_MEMORY = re.compile(r"\b(LDGSTS|LDG|STG)\b((?:\.\w+)*)")
_SASS_BULK = re.compile(r"\b(?:UTMALDG|UTMASTG|UBLKCP)\b")
_SASS_MATRIX = re.compile(r"\b(?:[A-Z]?[HIDQOB]MMA|[A-Z]GMMA|UTC[A-Z]MMA)\b[\w.]*")


def read_sass(sass: str) -> Instructions:
    """Count the instructions in SASS."""
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    matrix: Counter[str] = Counter()
    bulk = 0
    for line in sass.splitlines():
        for match in _SASS_MEMORY.finditer(line):
            counter = stores if match[1] == "STG" else loads
            counter[_sass_bits(match[2])] += 1
        matrix.update(match[0] for match in _SASS_MATRIX.finditer(line))
        bulk += len(_SASS_BULK.findall(line))
    return Instructions(_sorted(loads), _sorted(stores), dict(matrix), bulk)


def _sass_bits(modifiers: str) -> int:
    """Return an access's width: 32 bits, unless a modifier says otherwise."""
    for modifier in modifiers.split("."):
        if modifier in ("64", "128", "256"):
            return int(modifier)
        narrow = re.fullmatch(r"[US](8|16)", modifier)
        if narrow:
            return int(narrow[1])
    return 32


def tidy_sass(listing: str) -> str:
    """Return the instructions of a cuobjdump listing, one a line, with their addresses.

    Encodings are left out, and the padding behind the last instruction.
    """
    lines = []
    for line in listing.splitlines():
        match = _SASS_LINE.match(line)
        if match:
            lines.append(f"{match[1]}  {match[2]}")
    while lines and lines[-1].split()[1:] == ["NOP"]:
        lines.pop()
    return "\n".join(lines)


_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


def read_ptxas(log: str) -> tuple[int, int, int, int]:
    """Return registers per thread, bytes of stack, of spill stores and of spill loads.

    Raises:
        ValueError: the log of ptxas is not as expected.
    """
    # Functions that are not inlined come first, the kernel last.
    registers, spills = _REGISTERS.findall(log), _SPILLS.findall(log)
    if not registers or not spills:
        raise ValueError(f"ptxas gave no figures. Its log is: {log.strip() or '(empty)'}")
    stack, stores, loads = (sum(int(row[i]) for row in spills) for i in range(3))
    return int(registers[-1]), stack, stores, loads


def _sorted(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items(), reverse=True))
