"""The strip below an explorer's chart: the predicted time, and the recorded one if there is one."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory, offset_copy

from course_utils import gpus, plots
from course_utils.explorers.chosen_gpu import Recorded, record_of

PANEL_HEIGHT = 0.9
"""Inches that the panel takes below its heading, tick labels included."""

# The same axis for every setting, so that two settings can be compared by eye; seconds.
_SHORTEST, _LONGEST = 1e-6, 1.0
_TICKS = {1e-6: "1 µs", 1e-5: "", 1e-4: "100 µs", 1e-3: "", 1e-2: "10 ms", 1e-1: "", 1.0: "1 s"}
_SHARE = 0.42  # of the width for the axis; the words stand right of it


def time_panel(axes: Axes, nbytes: float, gpu: gpus.GPU, recorded: Recorded | None) -> None:
    """Mark two times on one fixed logarithmic axis, and write them beside it.

    Predicted, bytes / datasheet bandwidth, is hollow; recorded is filled. What is shorter than the
    axis points out at its left edge. Names stand left of the axes, a heading above and tick labels
    below: leave room for them.
    """
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xscale("log")
    axes.set_xlim(_SHORTEST, (_LONGEST / _SHORTEST) ** (1 / _SHARE) * _SHORTEST)
    axes.set_ylim(1.5, -0.5)
    plots.light_ticks(axes, _TICKS, {})
    left = offset_copy(axes.transData, axes.figure, x=-10, units="points")
    above = offset_copy(axes.transData, axes.figure, y=4, units="points")
    words = blended_transform_factory(axes.transAxes, axes.transData)
    look = {"va": "center_baseline", "fontsize": 9}
    heading = f"time on one {gpu.name}   (logarithmic)"
    axes.text(_SHORTEST, -0.5, heading, transform=above, fontsize=9)
    axes.text(_SHORTEST, 0, "predicted", transform=left, ha="right", **look)
    axes.text(_SHORTEST, 1, "recorded", transform=left, ha="right", **look)
    axes.hlines([0, 1], _SHORTEST, _LONGEST, color=plots.GRID, linewidth=0.8, zorder=1)

    def write(row: int, text: str, colour: str = plots.INK) -> None:
        axes.text(_SHARE + 0.035, row, text, transform=words, color=colour, **look)

    predicted = nbytes / gpu.bandwidth
    if predicted:
        _mark(axes, predicted, 0, plots.INK, plots.PAPER)
        moved, rate = plots.quantity(nbytes, "B"), plots.quantity(gpu.bandwidth, "B/s")
        write(0, f"{plots.quantity(predicted, 's')}  =  {moved} / {rate} (datasheet)")
    else:
        write(0, "nothing moves", plots.MUTED)
    if recorded:
        colour = plots.COLOURS["eager"]
        _mark(axes, recorded.seconds, 1, colour, colour)
        ratio = recorded.seconds / predicted if predicted else 0.0
        # A large ratio is not the bandwidth's doing, so its digits say nothing.
        times = f", {ratio:.2f} times as long" if 0 < ratio < 10 else ""
        write(1, f"{plots.quantity(recorded.seconds, 's')} on {recorded.gpu}{times}")
    elif record_of(gpu.key) is None:
        write(1, "no record of this GPU", plots.MUTED)
    else:
        write(1, "not recorded", plots.MUTED)


def _mark(axes: Axes, seconds: float, row: int, edge: str, face: str) -> None:
    """Draw a time's marker, at an edge of the axis as an arrow that points beyond it."""
    place, marker = min(max(seconds, _SHORTEST), _LONGEST), "o"
    if place != seconds:
        marker = "<" if seconds < _SHORTEST else ">"
    look = {"markeredgecolor": edge, "markerfacecolor": face, "markeredgewidth": 1.5}
    axes.plot([place], [row], marker=marker, markersize=7, clip_on=False, zorder=3, **look)
