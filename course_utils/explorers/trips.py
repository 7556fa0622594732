"""The trips explorer (lesson 01): tick ops, and see their launches, trips and predicted time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure

from course_utils import gpus, plots
from course_utils.examples import UNARY_STEPS
from course_utils.explorers.base import Explorer
from course_utils.explorers.chosen_gpu import (
    Recorded,
    gpu_dropdown,
    launch_cost,
    recorded_time,
)
from course_utils.explorers.timing_panel import PANEL_HEIGHT, time_panel
from course_utils.meter import Launch, Meter

COLUMNS = 256  # x is a matrix of n / COLUMNS rows, so that a row bias and a transpose make sense
DTYPES = ("float32", "bfloat16", "float16")
SIZES = tuple(2**exponent for exponent in range(10, 31))

_IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scale": lambda h: h.mul_(1.5),
    "bias": lambda h: h.add_(0.25),
    # PyTorch has no public in-place GELU; writing the result over its input is the same.
    "gelu": lambda h: torch.ops.aten.gelu.out(h, out=h),
    "gain": lambda h: h.mul_(0.5),
    "shift": lambda h: h.add_(1.0),
}
UNARY = tuple(name for name, _ in UNARY_STEPS)
OPS = (*UNARY, "row bias", "residual", "transpose", "contiguous")
"""The ops one can tick, in the order in which they run."""


class Counted(NamedTuple):
    """What the meter counted: a (op, launch) pair per launch, and the ops that launched nothing."""

    launches: tuple[tuple[str, Launch], ...]
    free: tuple[str, ...]
    tensor_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes read and written by all launches."""
        return sum(launch.traffic.bytes for _, launch in self.launches)


@functools.lru_cache(maxsize=256)
def count(ops: tuple[str, ...], in_place: bool, dtype: str, size: int) -> Counted:
    """Run the ops on a ``meta`` tensor (counting needs no numbers); return what the meter saw."""
    x = torch.empty(size // COLUMNS, COLUMNS, dtype=getattr(torch, dtype), device="meta")
    h, launches, free = x, [], []
    for op in ops:
        # The residual needs x to the end, so the first op must then not overwrite it.
        overwrite = in_place and not (h is x and "residual" in ops)
        with Meter() as meter:
            h = _apply(op, h, x, overwrite)
        launches += [(op, launch) for launch in meter.launches]
        free += [] if meter.launches else [op]
    return Counted(tuple(launches), tuple(free), x.nbytes)


def _apply(op: str, h: torch.Tensor, x: torch.Tensor, in_place: bool) -> torch.Tensor:
    if op == "row bias":
        row = torch.empty(COLUMNS, dtype=h.dtype, device=h.device)
        return h.add_(row) if in_place else h + row
    if op == "residual":
        return h.add_(x) if in_place else x + h
    if op == "transpose":
        return h.t()
    if op == "contiguous":
        return h.contiguous()
    return (_IN_PLACE if in_place else dict(UNARY_STEPS))[op](h)


def _chosen(**ticked: bool) -> tuple[str, ...]:
    """Return the names of the ticked ops; keywords have an underscore where a name has a space."""
    return tuple(op for op in OPS if ticked[op.replace(" ", "_")])


def recorded(
    ops: tuple[str, ...], in_place: bool, dtype: str, size: int, gpu: str
) -> Recorded | None:
    """Return the recorded eager time of exactly these launches, or None if there is none."""
    free = count(ops, in_place, dtype, size).free
    launched = tuple(op for op in ops if op not in free)
    if in_place or not launched:
        return None
    vector: dict[str, int | str] = {"n": size, "dtype": dtype}
    found = None
    if launched == UNARY:
        found = recorded_time(gpu, "chain", "eager", **vector)
    elif launched == (*UNARY[:4], "residual"):
        found = recorded_time(gpu, "residual", "eager", **vector)
    elif launched == ("gelu",):
        found = recorded_time(gpu, "op", "gelu", **vector)
    # The fusion sweep begins with the chain's first op, its first two, ...
    if found is None and launched == UNARY[: len(launched)]:
        found = recorded_time(gpu, "fusion", "eager", ops=len(launched), **vector)
    return found


def draw(*, in_place: bool, dtype: str, size: int, gpu: str, **ticked: bool) -> Figure:
    """Draw the trips of each launch and the times below; pure.

    ``size`` in elements of x, ``gpu`` a key of the GPU table, ``ticked`` a flag per op of ``OPS``.
    """
    ops = _chosen(**ticked)
    counted = count(ops, in_place, dtype, size)
    rows = [
        (_label(op, launch.name), launch.traffic.bytes_read, launch.traffic.bytes_written)
        for op, launch in counted.launches
    ]
    chart = 0.34 * (max(len(rows), 1) + 1)
    head, times = 0.8, 0.4 + PANEL_HEIGHT
    figure = plots.new_figure(height=head + chart + times)
    with plots.style():
        axes = plots.add_axes(figure, left=1.6, right=0.1, top=head, bottom=times)
        plots.trips_axes(axes, rows, counted.tensor_bytes)
        plots.set_title(axes, _title(len(rows), in_place, size, dtype), 36)
        below = plots.add_axes(figure, left=1.6, right=0.1, top=head + chart + 0.35, bottom=0.3)
        time_panel(below, counted.bytes, gpus.gpu(gpu), recorded(ops, in_place, dtype, size, gpu))
    return figure


def _label(op: str, launch: str) -> str:
    """Return the op with the name of what it launches, once if both are the same."""
    return op if op == launch else f"{op} ({launch})"


def _title(launches: int, in_place: bool, size: int, dtype: str) -> str:
    plural = "launch" if launches == 1 else "launches"
    how = ", in place" if in_place else ""
    return f"{launches} {plural}{how}; x has {plots.power_of_two(size)} elements of {dtype}"


def describe(*, in_place: bool, dtype: str, size: int, gpu: str, **ticked: bool) -> str:
    """Say in words what ``draw`` shows."""
    ops = _chosen(**ticked)
    counted = count(ops, in_place, dtype, size)
    card = gpus.gpu(gpu)
    launches = len(counted.launches)
    plural = "launch moves" if launches == 1 else "launches move"
    predicted = counted.bytes / card.bandwidth
    parts = [
        f"{launches} {plural} {counted.bytes / counted.tensor_bytes:.2f} trips over x "
        f"({plots.quantity(counted.bytes, 'B')}), counted by the meter."
    ]
    if launches:
        parts.append(
            f"Predicted for one {card.name}: {plots.quantity(predicted, 's')} at its datasheet "
            "bandwidth."
        )
    if (known := recorded(ops, in_place, dtype, size, gpu)) is not None:
        parts.append(f"{plots.quantity(known.seconds, 's')} {known.label}.")
    if (launching := _launching(launches, predicted, gpu)) is not None:
        parts.append(launching)
    if in_place:
        parts.append("Working in place saves memory, not trips.")
    if counted.free:
        parts.append(f"Launches nothing and moves nothing: {', '.join(counted.free)}.")
    return " ".join(parts)


def _launching(launches: int, predicted: float, gpu: str) -> str | None:
    """Say what the launches cost by themselves where that counts beside the bytes' time."""
    cost = launch_cost(gpu)
    if cost is None or not launches or launches * cost.seconds <= predicted / 3:
        return None
    weight = "decides" if launches * cost.seconds > predicted else "counts too"
    return (
        f"So little work that launching {weight}: each queued launch takes some "
        f"{plots.quantity(cost.seconds, 's')} by itself ({cost.source})."
    )


def trips_explorer() -> Explorer:
    """Make the explorer of lesson 01, with the chain of five ops ticked."""
    controls: dict[str, widgets.Widget] = {}
    for op in OPS:
        box = widgets.Checkbox(value=op in UNARY, description=op, indent=False)
        box.layout.width = "112px"
        controls[op.replace(" ", "_")] = box
    controls["in_place"] = widgets.Checkbox(value=False, description="in place", indent=False)
    controls["in_place"].layout.width = "112px"
    controls["dtype"] = widgets.ToggleButtons(options=DTYPES, description="dtype")
    controls["dtype"].style.button_width = "76px"
    sizes = [(plots.power_of_two(size), size) for size in SIZES]
    controls["size"] = widgets.SelectionSlider(
        options=sizes, value=2**28, description="elements of x"
    )
    controls["size"].layout.width = "330px"
    controls["gpu"] = gpu_dropdown()
    return Explorer(
        draw,
        controls,
        caption=(
            "An op that computes or copies is one launch: it reads what it takes and writes what "
            "it makes, in place or not; an op that only makes a view launches nothing."
        ),
        describe=describe,
    )
