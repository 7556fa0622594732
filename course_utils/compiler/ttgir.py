"""The loads and stores of a compiled kernel, with their layouts, read from Triton's TTGIR.

TTGIR is the intermediate code in which every tile's type carries its layout (its encoding), such
as ``tensor<1024xf32, #ttg.blocked<{sizePerThread = [4], ...}>>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_utils.compiler.layouts import Layout, blocked, nvidia_mma, sliced

VECTOR_BYTES = 16  # the most that one instruction loads for a thread; newest GPUs can do 32
SECTOR_BYTES = 32  # what a GPU's memory moves at least; NVIDIA, CUDA C++ Programming Guide


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
