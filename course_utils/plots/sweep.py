"""The sweep chart: how a figure changes over sizes that double."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from course_utils.plots.labels import in_order, spread
from course_utils.plots.style import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    add_axes,
    new_figure,
    power_of_two,
    set_title,
    style,
)


@dataclass(frozen=True)
class Series:
    """One line of a sweep: ``y`` (None where there is no value) over ``x``.

    ``role`` is a key of ``COLOURS`` ("eager", "compiled", "ours", "library") and fixes colour and
    marker; ``kind`` "predicted" draws hollow markers on a dashed line.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    role: str | None = None
    kind: str = "measured"

    def __post_init__(self) -> None:
        """Refuse lines of unequal length."""
        if len(self.x) != len(self.y) or not len(self.x):
            raise ValueError(
                f"Series {self.label!r}: x and y must have the same length, at least 1; "
                f"got {len(self.x)} and {len(self.y)}."
            )


# For lines without a fixed role, in this order; shapes differ from the roles' shapes.
_SPARE = (("#0072B2", "v"), ("#8a6d00", "P"), (MUTED, "X"), ("#56B4E9", "*"))


def sweep_axes(
    axes: Axes,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    ceilings: Mapping[str, float] | None = None,
    log_x: bool = True,
    log_y: bool = False,
) -> list[Any]:
    """Draw lines over sizes into axes whose position is final; returns the label texts."""
    figure = axes.figure
    pixels = figure.dpi / 72
    _lay_out_x(axes, sorted({x for s in series for x in s.x}), log_x)
    if log_y:
        axes.set_yscale("log")
    roles = [line.role if line.role is not None else line.label for line in series]
    spare = iter(_SPARE * 3)
    below = sum(role not in COLOURS for role in roles)
    # A ceiling is named before a line that ends beside it, lines in the order given.
    ends = [(words, axes.get_xlim()[1], y, {}) for words, y in (ceilings or {}).items()]
    for line, role in zip(series, roles, strict=True):
        colour, marker, wider = COLOURS.get(role), MARKERS.get(role, "o"), 0
        if colour is None:
            colour, marker = next(spare)
            below -= 1
            wider = below  # so that it can be seen on both sides of a later line that covers it
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        measured = line.kind == "measured"
        # None leaves a gap in the line: a missing size is not interpolated over.
        axes.plot(
            line.x,
            [math.nan if y is None else y for y in line.y],
            color=colour,
            marker=marker,
            markerfacecolor=colour if measured else PAPER,
            markeredgewidth=1.3,
            markersize=5.5 + 1.2 * wider,
            linewidth=1.8 + 0.9 * wider,
            linestyle="-" if measured else (0, (4, 2.5)),
            zorder=3,
            clip_on=False,
        )
        if known:
            face = colour if measured else PAPER
            ends.append((line.label, *known[-1], {"marker": marker, "color": colour, "mfc": face}))
    values = [y for s in series for y in s.y if y is not None] + list((ceilings or {}).values())
    if not values:
        raise ValueError("sweep_chart got no value at all; each series has only None.")
    if log_y:
        low, high = min(values) / 1.6, max(values) * 1.6
        axes.set_ylim(low, high)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        heights = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
        axes.yaxis.set_major_locator(FixedLocator([y for y in heights if low <= y <= high]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _=None: f"{v:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, max(values) * 1.12)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    for height in (ceilings or {}).values():
        axes.axhline(height, color=INK, linewidth=1.1, linestyle=(0, (1, 1.5)), zorder=2)
    # Direct labels in the right margin, moved apart where lines end close together.
    points = axes.transData.transform([(x, y) for _, x, y, _ in ends])
    box, gap = axes.bbox, 13 * pixels
    wanted = in_order(points[:, 1], gap)
    heights = spread(wanted, gap, box.y0 + 5 * pixels, box.y1 - 5 * pixels)
    texts = []
    to_data = axes.transData.inverted()
    for (words, _, _, look), (x, y), height in zip(ends, points, heights, strict=True):
        start = box.x1 + 14 * pixels
        # The line's own marker stands before its name, since colour alone never tells lines apart;
        # a ceiling has none, and is tied to its name where that had to move.
        place = to_data.transform((start, height))
        if look:
            axes.plot(*place[:, None], markersize=5.5, linestyle="none", clip_on=False, **look)
        elif abs(height - y) > 3 * pixels:
            tie = to_data.transform([(x + 4 * pixels, y), (start - 6 * pixels, height)])
            axes.plot(*tie.T, color=MUTED, linewidth=0.6, clip_on=False, zorder=1)
        shift = offset_copy(axes.transData, figure, x=8 if look else -3, units="points")
        how = {"transform": shift, "va": "center_baseline", "clip_on": False}
        texts.append(axes.text(*place, words, **how))
    return texts


def _lay_out_x(axes: Axes, xs: Sequence[float], log_x: bool) -> None:
    """Set the x axis: powers of two on a log2 axis, or plain numbers from zero on a linear one."""
    axes.xaxis.set_minor_locator(NullLocator())
    if not log_x:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
        axes.set_xlim(0, max(xs) * 1.04)
        return
    axes.set_xscale("log", base=2)
    exponents = (round(math.log2(min(xs))), round(math.log2(max(xs))))
    step = max(1, math.ceil((exponents[1] - exponents[0]) / 10))
    ticks = [2.0**e for e in range(exponents[0], exponents[1] + 1, step)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    short = max(xs) <= 65536
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _=None: f"{v:g}" if short else power_of_two(v))
    )
    axes.set_xlim(min(xs) / 2**0.3, max(xs) * 2**0.3)


def sweep_chart(
    series: Sequence[Series] | Mapping[str, tuple[Sequence[float], Sequence[float | None]]],
    x_label: str,
    y_label: str,
    *,
    ceilings: Mapping[str, float] | None = None,
    log_x: bool = True,
    log_y: bool = False,
    title: str | None = None,
    height: float = 3.8,
) -> Figure:
    """Return lines over sizes with markers and a label at each line's end.

    Sizes stand on a log2 axis; with ``log_x=False`` on a linear one that starts at zero, for
    counts of things.

    ``series`` is a list of ``Series`` or a mapping label -> (x, y); a label that is a key of
    ``COLOURS`` takes that colour. ``ceilings`` (label -> value) are dotted horizontal lines.
    Raises ``ValueError`` when there is nothing to draw.
    """
    if isinstance(series, Mapping):
        series = [Series(label, x, y) for label, (x, y) in series.items()]
    if not series:
        raise ValueError("sweep_chart got no series; give at least one line.")
    figure = new_figure(height=height)
    longest = max(len(word) for word in [*(s.label for s in series), *(ceilings or {})])
    with style():
        axes = add_axes(
            figure,
            left=0.8,
            right=min(0.45 + 0.085 * longest, 2.6),
            top=0.45 if title else 0.15,
            bottom=0.6,
        )
        sweep_axes(axes, series, x_label, y_label, ceilings=ceilings, log_x=log_x, log_y=log_y)
        if title:
            set_title(axes, title, 10)
    return figure
