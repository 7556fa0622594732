"""What a launch did to memory, as plain data.

Nothing here knows torch or Triton: the counting files fill these records, reports and charts read
them. The words are used with one meaning throughout the course:

- *requested bytes*: every byte that unmasked lanes of loads and stores name;
- *compulsory bytes*: each distinct address once;
- *reuse*: requested / compulsory. What reaches HBM lies between the two; caches decide where;
- *trip*: one full pass over a tensor, so trips(x) = requested bytes / bytes of x;
- *intensity*: FLOPs / requested bytes.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.meter.warps import Warps


def nbytes_of(reference: Any) -> int:
    """Return the size of ``reference`` in bytes.

    Args:
        reference: a tensor or array (anything with ``nbytes``), or a number of bytes.

    Raises:
        TypeError: if it is neither.
        ValueError: if it is empty: there is no pass over nothing.
    """
    # A number before its bytes: a numpy integer has `nbytes` too.
    is_number = isinstance(reference, numbers.Real) and not isinstance(reference, bool)
    size = reference if is_number else getattr(reference, "nbytes", None)
    if not isinstance(size, numbers.Real):
        raise TypeError(
            f"trips() wants a tensor, an array or a number of bytes, "
            f"got {type(reference).__name__}. Example: meter.trips(x)"
        )
    if not size > 0:
        raise ValueError("trips() of an empty tensor is undefined: it has no bytes to pass over")
    return int(size)


@dataclass(frozen=True)
class Traffic:
    """Bytes, FLOPs and lanes; add two with ``+``.

    Attributes:
        bytes_read: requested bytes of loads.
        bytes_written: requested bytes of stores.
        compulsory_read: distinct bytes read.
        compulsory_written: distinct bytes written.
        flops: floating-point operations, by the course's convention: 2·M·N·K for a product of
            M×K by K×N, one per element for an element-wise op (transcendentals too), one per input
            element for a reduction.
        masked_lanes_read: lanes of loads that a mask switched off.
        masked_lanes_written: lanes of stores that a mask switched off.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    compulsory_read: int = 0
    compulsory_written: int = 0
    flops: int = 0
    masked_lanes_read: int = 0
    masked_lanes_written: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        if not isinstance(other, Traffic):
            return NotImplemented
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Traffic)))

    @classmethod
    def total(cls, parts: Iterable[Traffic]) -> Traffic:
        """Sum any number of records; nothing sums to zero traffic."""
        result = cls()
        for part in parts:
            result = result + part
        return result

    @property
    def bytes(self) -> int:
        """Requested bytes, read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def compulsory_bytes(self) -> int:
        """Distinct bytes, read and written."""
        return self.compulsory_read + self.compulsory_written

    @property
    def intensity(self) -> float:
        """FLOPs per requested byte; 0 when nothing was computed, infinite when nothing moved."""
        if self.bytes == 0:
            return math.inf if self.flops else 0.0
        return self.flops / self.bytes

    @property
    def reuse(self) -> float:
        """Requested / compulsory bytes: how often each distinct byte was asked for."""
        return self.bytes / self.compulsory_bytes if self.compulsory_bytes else 1.0

    def trips(self, reference: Any) -> float:
        """Requested bytes in units of one pass over ``reference`` (a tensor or bytes).

        Raises:
            TypeError: if ``reference`` has no size.
            ValueError: if ``reference`` is empty.
        """
        return self.bytes / nbytes_of(reference)


@dataclass(frozen=True)
class ArgumentTraffic(Traffic):
    """The traffic of one argument of one launch.

    Attributes:
        nbytes: size of the argument's tensor (broadcast dimensions counted once).
        elements_unwritten: for an argument that was stored to, how many of its own elements no
            store reached.
    """

    nbytes: int = 0
    elements_unwritten: int = 0


@dataclass(frozen=True)
class Finding:
    """Something a GPU would not report: a wrong address, or two programs meeting at one.

    Attributes:
        kind: "outside" (a lane left its argument's tensor), "two writers" (two programs stored to
            one address), "race" (one program read what another one wrote), "unwritten" (elements
            of an output that no store reached). Of a CUDA kernel also "barrier" (one at which not
            the whole block stands) and "uninitialised" (a read of shared memory that nothing was
            stored to); there "two writers" and "race" are of threads with no barrier between them.
        message: the whole story in one sentence.
        kernel: the kernel's name.
        argument: the argument's name; empty for an address that belongs to none.
        line: line number within the source of the kernel, or of the helper that the message names,
            counted from its ``def`` as 1; None where no line is to blame.
        source: that line's text.
        program: program id (x, y, z) of the first occurrence; of a CUDA kernel the block's index.
        lane: index within the tile of the first occurrence; of a CUDA kernel the thread's index.
        distance: for "outside", elements past the end (positive) or before the start (negative);
            0 when it fell into a gap between the elements of a strided tensor, None when it was
            near no tensor.
        count: how many lanes (or elements) this happened to.
        other_line: of a CUDA kernel: the line of the other thread, as `line`; None without one.
        other_source: that line's text.
    """

    kind: str
    message: str
    kernel: str
    argument: str
    line: int | None = None
    source: str = ""
    program: tuple[int, int, int] | None = None
    lane: tuple[int, ...] | None = None
    distance: int | None = None
    count: int = 1
    other_line: int | None = None
    other_source: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Launch:
    """One op or kernel.

    Attributes:
        name: the op's or kernel's name, such as "gelu".
        kind: "torch", "triton", "numba" or "compiled" (a kernel that torch.compile generated).
        traffic: its whole traffic.
        arguments: the same by argument.
        grid: the number of programs, or blocks, along x, y, z; None for torch ops.
        findings: what went wrong inside.
        notes: what the count leaves out, in words.
        warps: what the warps of a CUDA kernel did; None for anything else.
    """

    name: str
    kind: str
    traffic: Traffic
    arguments: dict[str, ArgumentTraffic] = field(default_factory=dict)
    grid: tuple[int, int, int] | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    warps: Warps | None = None

    def trips(self, reference: Any) -> float:
        """Requested bytes of this launch in passes over ``reference``."""
        return self.traffic.trips(reference)
