"""The strip below an explorer's chart: the predicted time, and the recorded one if there is one."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from course_utils import gpus, plots
from course_utils.explorers.chosen_gpu import Recorded


def time_bars(axes: Axes, nbytes: float, gpu: gpus.GPU, recorded: Recorded | None) -> None:
    """Draw two bars: predicted, bytes / datasheet bandwidth (hollow), and recorded (filled).

    Names stand left of the axes and a heading above: leave room for both.
    """
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    predicted = nbytes / gpu.bandwidth
    longest = max(predicted, recorded.seconds if recorded else 0.0) or 1.0
    # The words stand in the bars' own row, so the bars take only a part of the width.
    axes.set_xlim(0, longest * 2.05)
    axes.set_ylim(1.5, -0.5)
    right = offset_copy(axes.transData, axes.figure, x=5, units="points")
    left = offset_copy(axes.transData, axes.figure, x=-5, units="points")
    above = offset_copy(axes.transData, axes.figure, y=4, units="points")
    look = {"va": "center_baseline", "fontsize": 9}
    axes.text(0, -0.5, f"time on one {gpu.name}", transform=above, fontsize=9)
    axes.text(0, 0, "predicted", transform=left, ha="right", **look)
    axes.text(0, 1, "recorded", transform=left, ha="right", **look)
    if predicted:
        dashes = {"edgecolor": plots.INK, "linestyle": (0, (3, 2)), "linewidth": 1}
        axes.barh([0], [predicted], 0.55, color=plots.PAPER, **dashes)
        moved, rate = plots.quantity(nbytes, "B"), plots.quantity(gpu.bandwidth, "B/s")
        words = f"{plots.quantity(predicted, 's')}  =  {moved} / {rate} (datasheet)"
        axes.text(predicted, 0, words, transform=right, **look)
    else:
        axes.text(0, 0, "nothing moves", transform=right, color=plots.MUTED, **look)
    if recorded:
        axes.barh([1], [recorded.seconds], 0.55, color=plots.COLOURS["eager"])
        words = f"{plots.quantity(recorded.seconds, 's')}   on {recorded.gpu}"
        axes.text(recorded.seconds, 1, words, transform=right, **look)
    else:
        axes.text(0, 1, "not on this GPU", transform=right, color=plots.MUTED, **look)
