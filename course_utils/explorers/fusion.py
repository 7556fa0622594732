"""The fusion explorer (lesson 03): fuse the first k of n ops, and see what it saves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import ipywidgets as widgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from course_utils import gpus, plots, runtime
from course_utils.examples import UNARY_STEPS
from course_utils.explorers.base import Explorer
from course_utils.explorers.chosen_gpu import Recorded, gpu_dropdown, recorded_time
from course_utils.meter import Meter

MOST_OPS = 16
SIZE = 2**28  # elements of x, the size that was recorded
DTYPE = torch.float32
# The fused kernel is counted on so few elements: in the interpreter a large tensor takes long, and
# bytes per element do not depend on how many there are.
COUNTED_SIZE = 4096
# A recorded time that is so many times what the bytes take is not the memory's doing.
_FAR_ABOVE = 1.3


class Part(NamedTuple):
    """One launch: its name, the bytes it reads and writes, the FLOPs of the ops in it."""

    name: str
    read: float
    written: float
    flops: int


def _step_name(step: int) -> str:
    return UNARY_STEPS[step % len(UNARY_STEPS)][0]


@functools.cache
def count_op(step: int) -> Part:
    """Count one op of the chain as its own launch, on a ``meta`` tensor of the full size."""
    x = torch.empty(SIZE, dtype=DTYPE, device="meta")
    with Meter() as meter:
        UNARY_STEPS[step % len(UNARY_STEPS)][1](x)
    traffic = meter.traffic
    name, launch = _step_name(step), meter.launches[0].name
    name = name if name == launch else f"{name} ({launch})"
    return Part(name, traffic.bytes_read, traffic.bytes_written, traffic.flops)


@functools.cache
def count_fused(ops: int) -> Part:
    """Run the first ``ops`` ops as one Triton kernel under the meter, on a small tensor.

    Bytes are scaled to the full size. FLOPs are those of the ops by the course's convention, one
    per op and element: fusing moves less, it does not compute less.
    """
    machine = runtime.machine()  # decides how Triton runs, before it is imported
    from course_utils.explorers.fused_pass import fused_pass

    x = torch.linspace(-3, 3, COUNTED_SIZE, dtype=DTYPE, device=machine.device)
    with Meter() as meter:
        fused_pass(x, ops)
    scale = SIZE / COUNTED_SIZE
    traffic = meter.traffic
    flops = sum(count_op(step).flops for step in range(ops))
    return Part(
        f"{ops} ops, fused", traffic.bytes_read * scale, traffic.bytes_written * scale, flops
    )


def count(ops: int, fused: int) -> list[Part]:
    """Return the launches of a chain of ``ops`` ops of which the first ``fused`` are one kernel."""
    # One op alone is no fusion: PyTorch launches it like the others.
    head = [count_fused(fused)] if fused > 1 else [count_op(0)]
    return head + [count_op(step) for step in range(fused, ops)]


def _bytes(parts: list[Part]) -> float:
    return sum(part.read + part.written for part in parts)


def _intensity(parts: list[Part]) -> float:
    return sum(part.flops for part in parts) / _bytes(parts)


def recorded(ops: int, fused: int, gpu: str) -> Recorded | None:
    """Return the recorded time: of the eager chain, or of the wholly fused one, else None."""
    if 1 < fused < ops:
        return None
    case = "eager" if fused == 1 else "compiled"
    return recorded_time(gpu, "fusion", case, ops=ops, n=SIZE, dtype="float32")


def draw(*, ops: int, fused: int, gpu: str) -> Figure:
    """Draw the trips of each launch, and beside them the time for any number of fused ops; pure.

    A chain of ``ops`` ops of which the first ``fused`` are one kernel; ``gpu`` is a key of the GPU
    table.
    """
    parts = count(ops, fused)
    # The height depends on the ops alone: the page stands still while the other slider moves.
    head, row = 0.8, 0.34 if ops <= 10 else 0.26
    height = max(head + row * (ops + 1) + 0.05, 3.8)
    figure = plots.new_figure(height=height)
    with plots.style():
        foot = height - head - row * (len(parts) + 1)
        axes = plots.add_axes(figure, left=1.2, right=2.6, top=head, bottom=foot)
        rows = [(part.name, part.read, part.written) for part in parts]
        plots.trips_axes(axes, rows, SIZE * DTYPE.itemsize)
        intensity = plots.significant(_intensity(parts))
        plots.set_title(axes, f"{_launches(parts)}, {intensity} FLOP/byte", 36)
        side = plots.add_axes(figure, left=5.4, right=0.15, top=head, bottom=height - 2.75)
        _times(side, ops, fused, gpu)
        plots.set_title(side, f"on one {gpus.gpu(gpu).name}", 36)
    return figure


def _launches(parts: list[Part]) -> str:
    return f"{len(parts)} launch" if len(parts) == 1 else f"{len(parts)} launches"


def _times(axes: Axes, ops: int, fused: int, gpu: str) -> None:
    """Draw predicted times for every number of fused ops, and the recorded ones at both ends."""
    bandwidth = gpus.gpu(gpu).bandwidth
    ks = list(range(1, ops + 1))
    predicted = [_bytes(count(ops, k)) / bandwidth * 1e3 for k in ks]
    hollow = {"marker": "o", "markersize": 5, "color": plots.INK, "markerfacecolor": plots.PAPER}
    marks = [([], [], "predicted", hollow)]
    for k, role in ((1, "eager"), (ops, "compiled")):
        time = recorded(ops, k, gpu) if ops > 1 or role == "eager" else None
        if time is not None:
            filled = {"marker": plots.MARKERS[role], "color": plots.COLOURS[role], "markersize": 7}
            marks.append(([k], [time.seconds * 1e3], f"recorded, {role}", filled))
    axes.set_xlim(0.4, max(ops, 2) + 0.6)
    axes.set_ylim(0, 1.15 * max([predicted[0], *(y for _, ys, _, _ in marks for y in ys)]))
    step = 1 if ops <= 6 else 2 if ops <= 10 else 3
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(*axes.get_ylim())
    heights = {y: f"{y:g}" for y in ticks if y <= axes.get_ylim()[1]}
    plots.light_ticks(axes, {k: str(k) for k in ks[::step]}, heights)
    above = offset_copy(axes.transAxes, axes.figure, y=6, units="points")
    axes.text(0, 1, "milliseconds", transform=above, fontsize=9)
    axes.set_xlabel("ops in the fused kernel", size=9)
    axes.plot(ks, predicted, linestyle=(0, (4, 2.5)), linewidth=1, **hollow)
    ring = {"marker": "o", "markersize": 10.5, "color": plots.INK, "markerfacecolor": "none"}
    axes.plot([fused], [predicted[fused - 1]], **ring)
    for xs, ys, name, look in marks:
        axes.plot(xs, ys, linestyle="none", label=name, zorder=4, **look)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, 1 - 2.4 / 1.95),
        borderaxespad=0,
        handletextpad=0.2,
        labelspacing=0.3,
    )


def describe(*, ops: int, fused: int, gpu: str) -> str:
    """Say in words what ``draw`` shows."""
    parts = count(ops, fused)
    card = gpus.gpu(gpu)
    total = _bytes(parts)
    done = f"The first {fused} of {ops} ops fused"
    if ops == 1:
        done = "1 op"
    elif fused == 1:
        done = f"{ops} ops, none fused"
    elif fused == ops:
        done = f"All {ops} ops fused"
    words = (
        f"{done}: {_launches(parts)}, "
        f"{total / (SIZE * DTYPE.itemsize):.2f} trips over x, "
        f"{plots.significant(_intensity(parts))} FLOP/byte. Predicted for one {card.name}: "
        f"{plots.quantity(total / card.bandwidth, 's')} at its datasheet bandwidth."
    )
    time = recorded(ops, fused, gpu)
    if time is not None:
        words += f" {plots.quantity(time.seconds, 's')} {time.label}"
        single = recorded_time(gpu, "fusion", "compiled", ops=1, n=SIZE, dtype="float32")
        # One op moves the same bytes: what it takes beyond the datasheet's is the memory's doing.
        bytes_take = max(total / card.bandwidth, single.seconds if single else 0.0)
        if fused > 1 and time.seconds > _FAR_ABOVE * bytes_take:
            words += (
                ", more than the bytes take: a GELU costs many more instructions than the one FLOP "
                "it is counted as, and with this many the kernel has become compute-bound"
            )
        words += "."
    return words


def no_more_than_there_are(controls: Mapping[str, Any]) -> None:
    """Let at most all ops be fused."""
    controls["fused"].max = controls["ops"].value


def fusion_explorer() -> Explorer:
    """Make the explorer of lesson 03, with three of five ops fused."""
    controls = {
        "ops": widgets.IntSlider(value=5, min=1, max=MOST_OPS, description="ops in the chain"),
        "fused": widgets.IntSlider(value=3, min=1, max=5, description="fuse the first"),
        "gpu": gpu_dropdown(),
    }
    for name in ("ops", "fused"):
        controls[name].layout.width = "325px"
    return Explorer(
        draw,
        controls,
        caption=(
            "Each op that joins the fused kernel saves one write and one read of x, which has "
            f"{plots.power_of_two(SIZE)} float32 elements; the meter counted the fused kernel on "
            f"{COUNTED_SIZE} of them, which gives the same number of trips."
        ),
        describe=describe,
        rules=[no_more_than_there_are],
    )
