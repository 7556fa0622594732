"""The trips chart: what each launch reads and writes, in passes over x."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from course_utils.plots.style import (
    COLOURS,
    GRID,
    MUTED,
    PAPER,
    add_axes,
    new_figure,
    set_title,
    style,
)


def _row(item: Any) -> tuple[str, float, float]:
    """Return (name, bytes read, bytes written) of a meter's launch or of such a tuple."""
    if hasattr(item, "traffic"):
        return item.name, item.traffic.bytes_read, item.traffic.bytes_written
    try:
        name, read, written = item
    except (TypeError, ValueError):
        raise TypeError(
            f"trips_chart got {item!r}; it takes the meter's launches or rows "
            "(name, bytes read, bytes written)."
        ) from None
    return str(name), read, written


def _tensor_bytes(x: Any) -> float:
    """Return the size in bytes of a tensor, or the number given."""
    size = getattr(x, "nbytes", x)
    if isinstance(size, bool) or not isinstance(size, int | float) or size <= 0:
        raise ValueError(
            f"tensor_bytes must be a tensor or its size in bytes, more than 0; got {x!r}."
        )
    return size


def _trips(value: float) -> str:
    return "0" if value == 0 else "<0.01" if value < 0.005 else f"{value:.2f}"


def trips_axes(axes: Axes, launches: Iterable[Any], tensor_bytes: Any) -> None:
    """Draw one pair of bars per launch, read and written, and the total; see ``trips_chart``.

    Names stand left of the axes, the scale above them: leave room for both.
    """
    size = _tensor_bytes(tensor_bytes)
    rows = [(name, read / size, written / size) for name, read, written in map(_row, launches)]
    count = len(rows)
    axes.spines[["left", "bottom"]].set_visible(False)
    # Ticks are plain texts here: matplotlib's own are several times slower to draw.
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    longest = max((max(read, written) for _, read, written in rows), default=0) or 1
    axes.set_ylim(max(count, 1) + 0.5, -0.5)
    figure = axes.figure
    right = offset_copy(axes.transData, figure, x=5, units="points")
    left = offset_copy(axes.transData, figure, x=-5, units="points")
    middle = {"va": "center_baseline", "fontsize": 9}
    if not rows:
        axes.text(0, 0.5, "no launch: nothing moved", transform=right, **middle)
        return
    words = [f"{_trips(r)} + {_trips(w)}" for _, r, w in rows]
    words[0] = f"{_trips(rows[0][1])} read + {_trips(rows[0][2])} written"
    ends = [max(r, w) for _, r, w in rows]
    limit = _limit(axes, ends, words)
    axes.set_xlim(0, limit)

    step = max(1, math.ceil(longest / 8))
    above = offset_copy(axes.transData, figure, y=3, units="points")
    ticks = range(0, math.floor(longest) + 1, step)
    axes.vlines(ticks, -0.5, count - 0.5, color=GRID, linewidth=0.8, zorder=0)
    for tick in ticks:
        axes.text(tick, -0.5, str(tick), transform=above, ha="center", fontsize=9)
    higher = offset_copy(axes.transData, figure, y=17, units="points")
    head = "trips over x   (bytes moved / bytes of x)"
    axes.text(0, -0.5, head, transform=higher, fontsize=9)

    edge = COLOURS["hbm"]
    read, written = [r for _, r, _ in rows], [w for _, _, w in rows]
    _bars(axes, [place - 0.17 for place in range(count)], read, edge)
    # Hollow and hatched: written differs from read in grey print too.
    _bars(axes, [place + 0.17 for place in range(count)], written, PAPER, hatch="/////")
    for place, (name, r, w) in enumerate(rows):
        axes.text(0, place, name, transform=left, ha="right", **middle)
        # In a long list figures are not repeated from one row to the next.
        if place < 2 or count <= 8 or (r, w) != rows[place - 1][1:]:
            axes.text(ends[place], place, words[place], transform=right, **middle)
    axes.hlines(count - 0.5, 0, limit, color=MUTED, linewidth=0.8)
    reads, writes = sum(read), sum(written)
    total = f"{reads + writes:.2f} trips  =  {reads:.2f} read + {writes:.2f} written"
    bold = {**middle, "fontsize": 9.5, "weight": "bold"}
    axes.text(0, count, total, transform=right, **bold)
    axes.text(0, count, "total", transform=left, ha="right", **bold)


def _bars(
    axes: Axes, places: list[float], lengths: list[float], face: str, hatch: str | None = None
) -> None:
    """Draw bars of equal height as one collection, which is quicker than as many patches."""
    corners = [
        [(0, y - 0.15), (length, y - 0.15), (length, y + 0.15), (0, y + 0.15)]
        for y, length in zip(places, lengths, strict=True)
    ]
    edge = COLOURS["hbm"]
    # The hatch's colour is a setting of its own since matplotlib 3.11.
    with matplotlib.rc_context({"hatch.color": edge}):
        look = {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 1}
        axes.add_collection(PolyCollection(corners, zorder=2, **look), autolim=False)


def _limit(axes: Axes, ends: list[float], words: list[str]) -> float:
    """Return the right limit at which every bar has room for its words behind it."""
    renderer = axes.figure.canvas.get_renderer()
    pad = 8 * axes.figure.dpi / 72
    limit = 0.0
    widths: dict[str, float] = {}
    for end, text in zip(ends, words, strict=True):
        if text not in widths:
            artist = axes.text(0, 0, text, fontsize=9)
            widths[text] = artist.get_window_extent(renderer).width + pad
            artist.remove()
        # Never less than a fifth for the bars, however long the words.
        limit = max(limit, end / max(1 - widths[text] / axes.bbox.width, 0.2))
    return limit or 1.0


def trips_chart(
    launches: Iterable[Any],
    tensor_bytes: Any,
    *,
    title: str | None = None,
    height: float | None = None,
) -> Figure:
    """Return the trips chart: for each launch what it read and what it wrote, in trips over x.

    ``launches`` are a meter's launches, or rows (name, bytes read, bytes written), in the order
    they ran. ``tensor_bytes`` is x (a tensor) or its size in bytes. A program without launches
    gives a chart that says so. Raises ``ValueError`` for a size that is not positive, ``TypeError``
    for a row it cannot read.
    """
    launches = list(launches)
    rows = max(len(launches), 1) + 1
    if height is None:
        height = 0.38 * rows + (0.85 if title else 0.6)
    figure = new_figure(height=height)
    longest = max((len(str(_row(item)[0])) for item in launches), default=4)
    with style():
        left = min(0.25 + 0.085 * longest, 3.2)
        axes = add_axes(figure, left=left, right=0.1, top=0.8 if title else 0.5, bottom=0.05)
        trips_axes(axes, launches, tensor_bytes)
        if title:
            set_title(axes, title, 36)
    return figure
