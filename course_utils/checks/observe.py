"""Run an answer on one case under the meter, and write down all that can be seen of it."""

from __future__ import annotations

import functools
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils import Meter
from course_utils.checks.accuracy import as_results
from course_utils.checks.draw import Case
from course_utils.checks.variants import called_without_grid
from course_utils.meter import triton_tiles
from course_utils.meter.ledger import Store
from course_utils.meter.traffic import Finding, Launch
from course_utils.meter.triton_tiles import Call

_FRESH = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
FILLS = ("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "fill_", "zero_",
         "new_zeros", "new_full", "new_ones")  # fmt: skip
"""Ops of PyTorch's that compute nothing: they prepare memory for a kernel."""


@dataclass(frozen=True)
class Raised:
    """An exception that an answer raised.

    Attributes:
        kind: its class, such as "TypeError".
        message: its text.
        line: the reader's line that it came from, with its number within the function.
        advice: what to do about it, where that is known.
    """

    kind: str
    message: str
    line: str | None = None
    advice: str = ""

    def __str__(self) -> str:
        first = self.message.strip().splitlines()
        return f"{self.kind}: {first[0]}" if first else self.kind


@dataclass
class Observation:
    """What one call of an answer did.

    Attributes:
        case: what it was called with, as it was before the call.
        result: what it returned.
        raised: what it raised instead.
        launches: every kernel and op that moved bytes, in order.
        calls: every launch of a Triton kernel.
        unstored: how many elements of the result no kernel stored.
        changed: positions of the arguments that it changed.
        shared: position of the argument whose memory its result shares.
    """

    case: Case
    result: Any = None
    raised: Raised | None = None
    launches: list[Launch] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    unstored: int = 0
    changed: tuple[int, ...] = ()
    shared: int | None = None

    @property
    def findings(self) -> list[Finding]:
        """Everything that was wrong in memory."""
        return [finding for launch in self.launches for finding in launch.findings]

    @property
    def nbytes(self) -> int:
        """Requested bytes, of kernels and ops together."""
        return sum(launch.traffic.bytes for launch in self.launches)

    @property
    def read(self) -> int:
        """Requested bytes of loads."""
        return sum(launch.traffic.bytes_read for launch in self.launches)

    @property
    def kernels(self) -> list[Launch]:
        """The launches of Triton kernels."""
        return [launch for launch in self.launches if launch.kind == "triton"]

    @property
    def computing_ops(self) -> list[Launch]:
        """PyTorch's ops that did more than prepare memory."""
        return [
            launch
            for launch in self.launches
            if launch.kind != "triton" and launch.name not in FILLS
        ]

    @property
    def refused(self) -> bool:
        """Whether the answer refused its arguments, as it may where the case allows it."""
        return (
            self.case.refusable
            and self.raised is not None
            and self.raised.kind in ("ValueError", "TypeError", "NotImplementedError")
        )


def observe(answer: Callable[..., Any], case: Case) -> Observation:
    """Call an answer with copies of a case's arguments.

    Memory that it allocates begins as NaN, and masked lanes that are loaded without ``other`` hold
    infinities: nothing is promised of either, so a right answer needs neither.
    """
    arguments = [copy_of(value) for value in case.arguments]
    seen = Observation(case)
    meter = Meter()
    stored = _Stored()
    try:
        # The filling mode outside, so that the meter does not count what it fills.
        with (
            np.errstate(all="ignore"),
            _FreshIsNaN(),
            triton_tiles.watch(seen.calls.append, stored.note, poison=True),
            meter,
        ):
            seen.result = answer(*arguments, **case.keywords)
    except (Exception, SystemExit) as error:
        seen.raised = describe(error)
        seen.raised = replace(seen.raised, advice=_advice(answer, seen.raised))
    seen.launches = meter.launches
    seen.unstored = sum(stored.missing(r) for r in as_results(seen.result) if torch.is_tensor(r))
    pairs = list(zip(arguments, case.arguments, strict=True))
    seen.changed = tuple(i for i, (a, b) in enumerate(pairs) if not _equal(a, b))
    seen.shared = next(
        (
            i
            for i, a in enumerate(arguments)
            if torch.is_tensor(a)
            and any(torch.is_tensor(r) and _overlap(a, r) for r in as_results(seen.result))
        ),
        None,
    )
    return seen


@triton.jit
def _smallest_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


def _smallest(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    _smallest_kernel[(1,)](x, out)
    return out


@functools.cache
def warm_up() -> None:
    """Observe something once: PyTorch imports a lot for that, which later forks have already."""
    observe(_smallest, Case("one number", (torch.zeros(1),)))


def who_stored(
    answer: Callable[..., Any], case: Case, output: int, index: tuple[int, ...]
) -> Store | None:
    """Run a case once more, and return the last store that reached an element of the result.

    In what is returned ``elements`` and ``lanes`` are that of the one lane.
    """
    stores: list[Store] = []
    try:
        with (
            np.errstate(all="ignore"),
            _FreshIsNaN(),
            triton_tiles.watch(on_store=stores.append, poison=True),
            Meter(),
        ):
            result = answer(*[copy_of(value) for value in case.arguments], **case.keywords)
    except Exception:
        return None
    tensor = as_results(result)[output]
    strides = zip(index, tensor.stride(), strict=True)
    address = tensor.data_ptr() + tensor.element_size() * sum(i * s for i, s in strides)
    for store in reversed(stores):
        offset = address - store.tensor.data_ptr()
        here = store.elements == offset // store.tensor.element_size()
        if here.any():
            lane = int(here.argmax())
            return Store(
                store.tensor, store.elements[lane], store.lanes[lane], store.program, store.line
            )
    return None


def copy_of(value: Any, device: str = "cpu") -> Any:
    """Copy a tensor with its strides and its place in memory; return anything else as it is."""
    if not torch.is_tensor(value):
        return value
    whole = torch.empty(0, dtype=value.dtype, device=device)
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=value.dtype).set_(
        storage, 0, (storage.nbytes() // value.element_size(),), (1,)
    )
    whole = flat.clone() if device == "cpu" else flat.to(device)
    return whole.as_strided(value.shape, value.stride(), value.storage_offset())


def describe(error: BaseException) -> Raised:
    """Put an exception into words, with the line of the reader's that it came from."""
    cause = error
    # The interpreter wraps what a kernel raises.
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    line = _readers_line(cause.__traceback__) or _readers_line(error.__traceback__)
    return Raised(type(cause).__name__, str(cause), line)


def _advice(answer: Callable[..., Any], raised: Raised) -> str:
    name = called_without_grid(answer)
    if name is not None:
        return (
            f"{name} is called like a function, but a kernel is launched over a grid: "
            f"`{name}[(programs,)](...)`"
        )
    if "cuda" in raised.message.lower():
        return (
            "It is counted on the CPU, on every machine: make new tensors on the device of its "
            "inputs, as `torch.empty_like(x)` does"
        )
    return ""


def _readers_line(trace: TracebackType | None) -> str | None:
    """Return the innermost line that is not of a package's."""
    inside = ("/triton/", "/torch/", "/course_utils/", "/numpy/", "/lib/python")
    for frame in reversed(traceback.extract_tb(trace)):
        # A task's own functions belong to the package, but are read here as a reader's.
        own = "/checks/library/" in frame.filename
        if own or not any(folder in frame.filename for folder in inside):
            text = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"{frame.name}: {text}" if text else None
    return None


class _Stored:
    """Which elements kernels stored, of all memory that they stored to."""

    def __init__(self) -> None:
        self._maps: dict[tuple[int, int], np.ndarray] = {}
        self._kept: list[torch.Tensor] = []  # so that no address is given out twice

    def note(self, store: Store) -> None:
        """Add the elements of one tile."""
        tensor = store.tensor
        first, size = self._place(tensor)
        if (first, size) not in self._maps:
            cells = tensor.untyped_storage().nbytes() // size
            self._maps[first, size] = np.zeros(cells, bool)
            self._kept.append(tensor)
        self._maps[first, size][store.elements + (tensor.data_ptr() - first) // size] = True

    def missing(self, result: torch.Tensor) -> int:
        """Count the elements of a tensor that no kernel stored."""
        first, size = self._place(result)
        cells = self._maps.get((first, size))
        if cells is None or result.device.type != "cpu":
            return result.numel()
        places = torch.arange(len(cells)).as_strided(
            result.shape, result.stride(), result.storage_offset()
        )
        return int((~cells[places.numpy()]).sum())

    @staticmethod
    def _place(tensor: torch.Tensor) -> tuple[int, int]:
        return tensor.untyped_storage().data_ptr(), tensor.element_size()


class _FreshIsNaN(TorchDispatchMode):
    """Fill memory that is allocated and not initialised with NaN, so that what is left shows."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _FRESH and torch.is_tensor(result):
            if result.device.type == "meta":
                return result
            if result.is_floating_point():
                result.fill_(float("nan"))
            elif result.dtype != torch.bool:
                result.fill_(torch.iinfo(result.dtype).max)
        return result


def _equal(one: Any, other: Any) -> bool:
    if not torch.is_tensor(one):
        return True
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
