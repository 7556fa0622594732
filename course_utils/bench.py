"""One timing function: on a GPU it times, elsewhere it shows what was recorded on one.

How a time is taken, and why:

- by CUDA events on the stream, because a host clock would time the enqueueing;
- after a warm-up, so that compilation and low clocks stay out of it;
- with the L2 cache overwritten before every repetition, outside the timed interval: repeating an op
  on the same tensors would otherwise measure the cache;
- while the GPU overwrites that buffer, Python enqueues the function, so the interval holds the
  device's own time and not the host's (unless the function itself waits for the device);
- many times, and the median is reported, with the 20th and 80th percentile beside it.

Nothing here ever times the interpreter: a time without a GPU comes from a record, with its label.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from course_utils import records

BUDGET_MS = 150.0
WARM_UP_MS = 40.0
FEWEST_REPEATS = 5
MOST_REPEATS = 500
LAUNCHES = 500
"""Launches per batch of :func:`per_launch`: fewer than the 1024 that a stream can queue, so that
enqueueing never waits for the device."""


class TooShortError(ValueError):
    """A time so close to the launch overhead that a rate made of it would mislead."""


@dataclass(frozen=True)
class Timing:
    """A time and where it is from.

    Attributes:
        milliseconds: median.
        low: 20th percentile, ms.
        high: 80th percentile, ms.
        repeats: how many times the function ran.
        source: "timed on <GPU>" or "recorded on <GPU>, <versions>, <date>".
        launch_overhead: what one launch costs on that machine, ms; None if unknown.
    """

    milliseconds: float
    low: float
    high: float
    repeats: int
    source: str
    launch_overhead: float | None = None

    @property
    def short(self) -> bool:
        """Whether the time is below ten launch overheads, so that no rate is made of it."""
        return records.is_short(self.milliseconds, self.launch_overhead)

    def gb_per_s(self, nbytes: float) -> float:
        """Return the rate in GB/s (1e9 bytes per second) of ``nbytes`` moved in this time.

        Raises:
            TooShortError: if the time is below ten launch overheads.
        """
        self._refuse_if_short("GB/s")
        return records.gb_per_s(nbytes, self.milliseconds)

    def tflop_per_s(self, flops: float) -> float:
        """Return the rate in TFLOP/s (1e12 FLOP per second) of ``flops`` done in this time.

        Raises:
            TooShortError: if the time is below ten launch overheads.
        """
        self._refuse_if_short("TFLOP/s")
        return records.tflop_per_s(flops, self.milliseconds)

    def _refuse_if_short(self, unit: str) -> None:
        if self.short:
            assert self.launch_overhead is not None
            raise TooShortError(
                f"{format_time(self.milliseconds)} is no rate in {unit}: one launch costs "
                f"{format_time(self.launch_overhead)} here, and below "
                f"{records.SHORTEST_RATED:.0f} launches that is what was timed. "
                "Use a larger size"
            )

    def __repr__(self) -> str:
        """Return the time, its spread and its source in one line."""
        return (
            f"{format_time(self.milliseconds)} "
            f"({format_time(self.low)} to {format_time(self.high)}, {self.source})"
        )


@dataclass(frozen=True)
class NoTiming:
    """The absence of a time, with its reason. False in a condition.

    Attributes:
        reason: why there is none, in words for the reader.
    """

    reason: str

    @property
    def source(self) -> str:
        """The reason, where a timing would say where it is from."""
        return self.reason

    def __bool__(self) -> bool:
        """Return False, so that ``if timing:`` asks whether there is a time."""
        return False

    def __repr__(self) -> str:
        """Return the reason in one line."""
        return f"no time: {self.reason}"

    def __getattr__(self, name: str) -> Any:
        """Explain why what a timing would have is missing."""
        if name.startswith("_") or name == "reason":  # what copying and IPython look for
            raise AttributeError(name)
        # A lesson that forgets to ask `if timing:` should read why, not "has no attribute".
        raise AttributeError(f"there is no {name!r}, because there is no time: {self.reason}")


def time(
    function: Callable[[], object],
    *,
    record: tuple[str, str] | None = None,
    **parameters: int | float | str | bool,
) -> Timing | NoTiming:
    """Time ``function()`` on this machine's GPU; without one, return the recorded time.

    Args:
        function: takes nothing; what it returns is dropped. Its inputs are the caller's business:
            on the GPU, fresh, and never zeros.
        record: benchmark and case, such as ``("chain", "eager")``, whose recorded time stands in
            where there is no GPU.
        **parameters: the parameters of that row, such as ``n=2**28, dtype="float32"``.

    Returns:
        A :class:`Timing`; in interpreter mode the recorded one, or a :class:`NoTiming` that says
        why there is none. The function does not run there.

    Raises:
        TypeError: if ``function`` cannot be called, or ``record`` is no pair of texts.
        RuntimeError: if called inside ``with Meter()``, where kernels run in slow motion.
    """
    if not callable(function):
        raise TypeError(
            f"bench.time() wants a function without arguments, got {type(function).__name__}. "
            "Example: bench.time(lambda: chain(x))"
        )
    _check_pair(record)
    if _machine().mode != "gpu":
        return _recorded(record, parameters)
    return measure(function)


def sweep(
    function_of_value: Callable[[Any], Callable[[], object]],
    values: Iterable[Any],
    *,
    record: tuple[str, str] | None = None,
    parameter: str = "n",
    **parameters: int | float | str | bool,
) -> list[Timing | NoTiming]:
    """Time one function per value.

    Args:
        function_of_value: makes the inputs for a value and returns the function to time. Never
            called without a GPU: the inputs may be gigabytes.
        values: the values, such as sizes.
        record: benchmark and case whose recorded times stand in where there is no GPU.
        parameter: what the values are called in the record.
        **parameters: the record's other parameters.

    Returns:
        One :class:`Timing` or :class:`NoTiming` per value, in order. A value whose tensors do not
        fit into the GPU's memory gives a :class:`NoTiming`.

    Raises:
        TypeError: if ``function_of_value`` cannot be called, or ``record`` is no pair of texts.
    """
    if not callable(function_of_value):
        raise TypeError(
            "bench.sweep() wants a function that takes a value and returns the function to time, "
            f"got {type(function_of_value).__name__}"
        )
    _check_pair(record)
    if _machine().mode != "gpu":
        return [_recorded(record, {**parameters, parameter: value}) for value in values]
    results: list[Timing | NoTiming] = []
    for value in values:
        device = _device()
        try:
            results.append(measure(function_of_value(value)))
        except device.out_of_memory:
            device.release_memory()
            results.append(NoTiming(f"{parameter}={value!r} does not fit into this GPU's memory"))
    return results


def measure(
    function: Callable[[], object], budget_ms: float = BUDGET_MS, rated: bool = True
) -> Timing:
    """Time ``function()`` on the GPU, whatever the mode; see the module's text for how.

    Args:
        function: takes nothing.
        budget_ms: about how long all repetitions together may take. At least
            ``FEWEST_REPEATS`` are made, at most ``MOST_REPEATS``.
        rated: whether to note the launch overhead, below ten of which no rate is given.

    Raises:
        RuntimeError: if called inside ``with Meter()``.
    """
    _refuse_inside_meter()
    device = _device()
    samples = _samples(function, device, budget_ms)
    overhead = launch_overhead() if rated else None
    return summary(samples, f"timed on {device.name}", overhead)


def per_launch(launch: Callable[[], object], launches: int = LAUNCHES, batches: int = 11) -> Timing:
    """Time what one call costs when many are enqueued back to back, on the GPU's own clock.

    This is the steady cost of a launch, the slower of host and device: what a chain of tiny ops
    pays per op.

    Args:
        launch: enqueues one small kernel.
        launches: calls per batch.
        batches: batches; the median of their means is reported.
    """
    device = _device()
    samples = []
    for _ in range(batches + 1):  # the first batch warms up
        device.synchronize()
        start, end = device.event(), device.event()
        start.record()
        for _ in range(launches):
            launch()
        end.record()
        device.synchronize()
        samples.append(start.elapsed_time(end) / launches)
    return summary(samples[1:], f"timed on {device.name}")


@functools.cache
def launch_overhead() -> float:
    """Return what launching one tiny torch op costs on this GPU machine, ms; measured once."""
    return per_launch(_device().tiny_op()).milliseconds


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the given percentile, interpolated linearly between neighbours.

    Raises:
        ValueError: if there are no samples.
    """
    if not samples:
        raise ValueError("no samples, so no percentile")
    ordered = sorted(samples)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def format_time(milliseconds: float) -> str:
    """Return a time in the unit that reads best: "2.530 ms", "4.20 µs", "1.20 s"."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    if milliseconds >= 0.1:
        return f"{milliseconds:.3f} ms"
    return f"{milliseconds * 1000:.2f} µs"


class _Cuda:
    """The little of torch.cuda that timing needs; tests put a clockwork in its place."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        properties = torch.cuda.get_device_properties()
        self.name = properties.name
        self.out_of_memory = torch.OutOfMemoryError
        # Four times the L2 replaces all of it whatever the replacement policy, and on large GPUs
        # takes long enough (tens of microseconds) to enqueue the function meanwhile.
        cache = getattr(properties, "L2_cache_size", 0)
        nbytes = max(4 * cache, 32 * 2**20)
        self._buffer = torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def flush(self) -> None:
        self._buffer.zero_()

    def release_memory(self) -> None:
        self._torch.cuda.empty_cache()

    def tiny_op(self) -> Callable[[], object]:
        x = self._torch.randn(8, device="cuda")
        return lambda: x + 1.0


def _device() -> Any:
    return _Cuda()


def _samples(function: Callable[[], object], device: Any, budget_ms: float) -> list[float]:
    """Return the milliseconds of each repetition."""
    function()  # compiles, allocates
    device.synchronize()
    once, _ = _host_times(function, device, 1)
    calls = max(1, min(20, int(budget_ms / 5 / max(once, 1e-3))))
    whole, host = _host_times(function, device, calls)
    flush, _ = _host_times(device.flush, device, 4)
    for _ in range(min(MOST_REPEATS, int(WARM_UP_MS / max(whole, 1e-3)))):
        function()
    # Overwrite the cache as often as it takes to outlast the host's work on one repetition.
    passes = max(1, min(8, math.ceil(1.5 * host / max(flush, 1e-3))))
    repeats = int(budget_ms / (whole + passes * flush))
    repeats = max(FEWEST_REPEATS, min(MOST_REPEATS, repeats))
    pairs = [(device.event(), device.event()) for _ in range(repeats)]
    for start, end in pairs:
        for _ in range(passes):
            device.flush()
        start.record()
        function()
        end.record()
    device.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


def _host_times(function: Callable[[], object], device: Any, calls: int) -> tuple[float, float]:
    """Return ms per call until the device is done, and until the host is done enqueueing."""
    device.synchronize()
    begin = perf_counter()
    for _ in range(calls):
        function()
    enqueued = perf_counter()
    device.synchronize()
    done = perf_counter()
    return (done - begin) * 1e3 / calls, (enqueued - begin) * 1e3 / calls


def summary(samples: Sequence[float], source: str, overhead: float | None = None) -> Timing:
    """Return the median and spread of ``samples`` (ms) as a timing; ``overhead`` is in ms too."""
    return Timing(
        milliseconds=percentile(samples, 50),
        low=percentile(samples, 20),
        high=percentile(samples, 80),
        repeats=len(samples),
        source=source,
        launch_overhead=overhead,
    )


def _recorded(record: tuple[str, str] | None, parameters: dict[str, Any]) -> Timing | NoTiming:
    if record is None:
        return NoTiming("not timed, because there is no GPU here; on a GPU this cell times it")
    try:
        found = records.load()
        row = found.row(*record, **parameters)
    except records.RecordError as error:
        return NoTiming(f"there is no GPU here, and {error}")
    return Timing(
        row.milliseconds, row.low, row.high, row.repeats, found.label, row.launch_overhead
    )


def _check_pair(record: object) -> None:
    if record is None:
        return
    if (
        not isinstance(record, tuple)
        or len(record) != 2
        or not all(isinstance(part, str) for part in record)
    ):
        raise TypeError(
            f'record= wants a benchmark and a case, such as ("chain", "eager"), got {record!r}'
        )


def _machine() -> Any:
    from course_utils import runtime

    return runtime.machine()


def _refuse_inside_meter() -> None:
    """Refuse to time what a meter slows down: its Triton kernels are interpreted."""
    from course_utils.meter.torch_ops import active_counters

    if active_counters():
        raise RuntimeError(
            "bench.time() inside `with Meter()` would time the meter, not the kernel: "
            "leave the with block first"
        )
