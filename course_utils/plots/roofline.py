"""The roofline chart: how fast a kernel of some intensity could be, and how fast it was.

The model: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, blended_transform_factory, offset_copy

from course_utils import models
from course_utils.plots.labels import place_labels, spread
from course_utils.plots.style import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    add_axes,
    light_ticks,
    new_figure,
    quantity,
    set_title,
    significant,
    style,
)


@dataclass(frozen=True)
class Point:
    """A kernel on the roofline.

    ``intensity`` in FLOP/byte, counted. ``flops_per_s`` is what was reached; None puts the point on
    the roof, where it is a prediction. ``kind`` is "measured" (filled marker) or "predicted"
    (hollow). ``colour`` is a key of ``COLOURS`` or any matplotlib colour.

    A kernel without FLOPs (a copy) has intensity 0, which a logarithmic axis cannot show. It is
    drawn as an arrow at the left edge; ``bytes_per_s`` then says how far below the roof it is.
    """

    label: str
    intensity: float
    flops_per_s: float | None = None
    kind: str = "measured"
    colour: str | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn, with the reason."""
        if self.kind not in ("measured", "predicted"):
            raise ValueError(
                f"Point {self.label!r}: kind must be 'measured' or 'predicted', got {self.kind!r}."
            )
        if not self.intensity >= 0:
            raise ValueError(
                f"Point {self.label!r}: intensity must be at least 0 FLOP/byte, "
                f"got {self.intensity}."
            )
        if self.flops_per_s is not None and self.intensity > 0 and not self.flops_per_s > 0:
            raise ValueError(
                f"Point {self.label!r}: flops_per_s must be more than 0, got {self.flops_per_s}; "
                "leave it out to put the point on the roof."
            )

    @classmethod
    def from_row(cls, row: Any, label: str | None = None, colour: str | None = None) -> Point:
        """Make a measured point from a record's row (counted bytes and FLOPs, milliseconds)."""
        seconds = row.milliseconds / 1e3
        flops = row.flops or 0
        return cls(
            label or row.case,
            flops / row.bytes,
            flops / seconds if flops else None,
            "measured",
            colour,
            row.bytes / seconds,
        )


@dataclass(frozen=True)
class Ceilings:
    """Measured ceilings: ``bandwidth`` in bytes/s, ``peak`` in FLOP/s by dtype name."""

    bandwidth: float | None = None
    peak: Mapping[str, float] | None = None


@dataclass(frozen=True)
class RooflineLayout:
    """What ``roofline_axes`` drew, for those who draw on or look closer: texts and final limits."""

    point_labels: list[Any]
    roof_labels: list[Any]
    key: Any
    ridge: float
    ridge_label: Any
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]


_DASHES = (0, (4, 2.5))


def roofline_axes(
    axes: Axes,
    gpu: Any,
    dtypes: Sequence[str],
    points: Sequence[Point] = (),
    measured: Ceilings | None = None,
    *,
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float, float] | None = None,
    avoid: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
) -> RooflineLayout:
    """Draw a roofline into axes whose position is final; see ``roofline``. The first dtype leads.

    Needs ``ROOF_MARGIN`` inches free to the right of the axes and 0.3 above them. Limits (FLOP/byte
    and FLOP/s) that are left out follow from the GPU and the points. ``avoid`` are the (xs, ys) of
    further lines that the caller draws; the points' labels keep clear of them too.
    """
    for dtype in dtypes:
        if dtype not in gpu.peak:
            raise ValueError(
                f"{gpu.name} has no {dtype} peak in the table; it has {', '.join(gpu.peak)}."
            )
    measured = measured or Ceilings()
    bandwidth, peaks = gpu.bandwidth, {dtype: gpu.peak[dtype] for dtype in dtypes}
    leading = peaks[dtypes[0]]
    ridge = models.ridge(leading, bandwidth)
    placed = [(p.intensity, _reached(p, leading, bandwidth)) for p in points if p.intensity > 0]
    if x_limits is None:
        ridges = [models.ridge(peak, bandwidth) for peak in peaks.values()]
        xs = [x for x, _ in placed]
        x_limits = (min([1 / 8, min(ridges) / 8, *xs]) / 2, max([max(ridges) * 4, *xs]) * 4)
    if y_limits is None:
        # Room at the foot for the key and the ridge's label.
        foot = min([x_limits[0] * bandwidth, *(y for _, y in placed)]) / 4
        y_limits = (foot, max([*peaks.values(), *(y for _, y in placed)]) * 2)
    _logarithmic(axes, x_limits, y_limits)
    axes.set_xlabel("intensity   (FLOP / byte)")
    axes.set_ylabel("performance   (TFLOP/s)")
    _regions(axes, x_limits, ridge)

    tracks = _roofs(axes, peaks, bandwidth, measured, x_limits)
    axes.plot([ridge] * 2, [y_limits[0], leading], color=MUTED, linewidth=1, linestyle=":")
    axes.plot([ridge], [leading], marker="o", markersize=4, color=INK, zorder=4)
    column = axes.transData.transform([(ridge, y_limits[0]), (ridge, leading)])
    tracks.append(np.linspace(column[0], column[1], 120))
    for xs, ys in avoid:
        corners = axes.transData.transform(np.column_stack([xs, ys]))
        parts = itertools.pairwise(corners)
        tracks.append(np.concatenate([np.linspace(start, stop, 120) for start, stop in parts]))

    labels = []
    looks = set()
    filled_any = hollow_any = False
    for point in points:
        x, y, marker = point.intensity, None, MARKERS.get(point.colour or "", "o")
        filled = point.kind == "measured" and point.flops_per_s is not None
        if x == 0:
            # The height at which a kernel of this bandwidth meets the left edge.
            x, marker = x_limits[0] * 1.12, "<"
            y = x * min(point.bytes_per_s or bandwidth, bandwidth)
            filled = point.kind == "measured" and point.bytes_per_s is not None
        else:
            y = _reached(point, leading, bandwidth)
            filled_any, hollow_any = filled_any or filled, hollow_any or not filled
        colour = COLOURS.get(point.colour or "", point.colour or COLOURS["hbm"])
        if x > 0:
            looks.add((colour, marker))
        axes.plot(
            [x],
            [y],
            marker=marker,
            markersize=7,
            markeredgewidth=1.5,
            markeredgecolor=colour,
            markerfacecolor=colour if filled else PAPER,
            linestyle="none",
            zorder=5,
        )
        labels.append((point.label, x, y))

    roles = [role for role in MARKERS if any(p.colour == role for p in points)]
    dashed = bool(measured.bandwidth) or any(d in (measured.peak or {}) for d in dtypes)
    # One look that all points share stands in the key as it is; else the key shows the kind alone.
    shared = looks.pop() if len(looks) == 1 else (INK, "o")
    key = _roofline_key(axes, dashed, filled_any, hollow_any, roles, shared)
    renderer = axes.figure.canvas.get_renderer()
    boxes = [key.get_window_extent(renderer)]
    ridge_label = _ridge_label(axes, ridge, y_limits[0], boxes[0])
    boxes.append(ridge_label.get_window_extent(renderer))
    markers = axes.transData.transform([label[1:] for label in labels]) if labels else []
    slope_label, track = _slope_label(axes, bandwidth, max(peaks.values()), measured, markers)
    tracks.append(track)
    roof_labels = [slope_label, *_roof_labels(axes, peaks, measured)]
    point_labels = place_labels(axes, labels, boxes=boxes, lines=tracks)
    return RooflineLayout(point_labels, roof_labels, key, ridge, ridge_label, x_limits, y_limits)


#: Inches right of a roofline's axes for the ceilings' labels.
ROOF_MARGIN = 1.45


def _reached(point: Point, peak: float, bandwidth: float) -> float:
    """Return the point's FLOP/s, or the roof above it when it has none of its own."""
    if point.flops_per_s is not None:
        return point.flops_per_s
    return models.attainable(point.intensity, peak, bandwidth)


def _fraction(value: float) -> str:
    return f"1/{round(1 / value)}" if value < 1 else f"{value:g}"


def _teraflops(value: float) -> str:
    value /= 1e12
    return f"{value:g}" if value < 1e4 else f"{value:,g}"


def _logarithmic(axes: Axes, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> None:
    """Set both axes and their grid: powers of four in x, powers of ten in y."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(x_limits)
    axes.set_ylim(y_limits)
    xs, ys = _powers(4.0, x_limits), _powers(10.0, y_limits)
    light_ticks(axes, {x: _fraction(x) for x in xs}, {y: _teraflops(y) for y in ys})


def _powers(base: float, limits: tuple[float, float]) -> list[float]:
    """Return the powers of ``base`` within the limits."""
    first, last = (math.log(limit, base) for limit in limits)
    return [base**e for e in range(math.ceil(first), math.floor(last) + 1)]


def _regions(axes: Axes, x_limits: tuple[float, float], ridge: float) -> None:
    """Name the two regions in a strip above the axes, parted at the ridge."""
    strip = blended_transform_factory(axes.transData, axes.transAxes)
    point = axes.figure.dpi / 72 / axes.bbox.height
    low, high = 1 + 3 * point, 1 + 20 * point
    parts = (
        (x_limits[0], ridge, "bandwidth-bound", "#e1ecf5"),
        (ridge, x_limits[1], "compute-bound", "#ebebeb"),
    )
    for start, stop, name, shade in parts:
        look = {"color": shade, "linewidth": 0, "transform": strip, "clip_on": False}
        axes.fill_between([start, stop], low, high, **look)
        place = (math.sqrt(start * stop), (low + high) / 2)
        axes.text(*place, name, transform=strip, ha="center", va="center_baseline", size=9)


def _roofs(
    axes: Axes,
    peaks: Mapping[str, float],
    bandwidth: float,
    measured: Ceilings,
    x_limits: tuple[float, float],
) -> list[np.ndarray]:
    """Draw the ceilings, solid from the datasheet, dashed where measured; return their pixels."""
    solid = {"color": INK, "linewidth": 1.8, "zorder": 3}
    dashed = {"color": INK, "linewidth": 1.1, "linestyle": _DASHES, "zorder": 3}
    grid = np.geomspace(*x_limits, 240)
    tracks = []

    def slope(rate: float, top: float, look: dict[str, Any]) -> None:
        xs = [x_limits[0], top / rate]
        axes.plot(xs, [x * rate for x in xs], **look)
        sampled = np.geomspace(*xs, 240)
        tracks.append(axes.transData.transform(np.column_stack([sampled, sampled * rate])))

    def flat(peak: float, start: float, look: dict[str, Any]) -> None:
        axes.plot([start, x_limits[1]], [peak, peak], **look)
        sampled = grid[grid >= start]
        level = np.full_like(sampled, peak)
        tracks.append(axes.transData.transform(np.column_stack([sampled, level])))

    slope(bandwidth, max(peaks.values()), solid)
    for peak in peaks.values():
        flat(peak, peak / bandwidth, solid)
    known = {d: p for d, p in (measured.peak or {}).items() if d in peaks}
    rate = measured.bandwidth or bandwidth
    if measured.bandwidth:
        slope(rate, max(known.values(), default=max(peaks.values())), dashed)
    for peak in known.values():
        flat(peak, peak / rate, dashed)
    return tracks


def _roof_labels(axes: Axes, peaks: Mapping[str, float], measured: Ceilings) -> list[Any]:
    """Write the flat ceilings' names into the right margin, moved apart where they are close."""
    pixels = axes.figure.dpi / 72
    entries = []
    for dtype, peak in peaks.items():
        entries.append((f"{dtype}  {significant(peak / 1e12)} TFLOP/s", peak, INK))
        if dtype in (measured.peak or {}):
            reached = measured.peak[dtype]
            entries.append((f"measured  {significant(reached / 1e12)}", reached, MUTED))
    heights = axes.transData.transform([(1, y) for _, y, _ in entries])[:, 1]
    box = axes.bbox
    moved = spread(heights, 12.5 * pixels, box.y0, box.y1 + 4 * pixels)
    to_data = axes.transData.inverted()
    texts = []
    for (words, _, colour), own, height in zip(entries, heights, moved, strict=True):
        start = box.x1 + 11 * pixels
        ends = to_data.transform([(box.x1 + 1.5 * pixels, own), (start - 2 * pixels, height)])
        axes.plot(*ends.T, color=MUTED, linewidth=0.6, clip_on=False)
        place = to_data.transform((start, height))
        look = {"va": "center_baseline", "size": 9, "color": colour, "clip_on": False}
        texts.append(axes.text(*place, words, **look))
    return texts


def _slope_label(
    axes: Axes, bandwidth: float, top: float, measured: Ceilings, markers: Sequence[Any]
) -> tuple[Any, np.ndarray]:
    """Write the bandwidth along the slope, clear of markers; return the text and its pixels."""
    pixels = axes.figure.dpi / 72
    words = f"memory  {quantity(bandwidth, 'B/s')}"
    if measured.bandwidth:
        words += f", measured {quantity(measured.bandwidth, 'B/s')}"
    low = axes.get_xlim()[0]
    ends = axes.transData.transform([(low, low * bandwidth), (top / bandwidth, top)])
    length = float(np.hypot(*(ends[1] - ends[0])))
    along = (ends[1] - ends[0]) / length
    normal = np.array([-along[1], along[0]])
    look = {"rotation_mode": "anchor", "ha": "center", "va": "bottom", "size": 9, "zorder": 4}
    text = axes.text(0, 0, words, transform=None, **look)
    half = text.get_window_extent(axes.figure.canvas.get_renderer()).width / 2

    def crowd(middle: float) -> float:
        """Return how badly markers near the slope lie under the text, plus a pull to the middle."""
        offsets = [np.asarray(m) - ends[0] for m in markers]
        near = [o @ along for o in offsets if abs(o @ normal) < 16 * pixels]
        inside = sum(max(0.0, half + 8 * pixels - abs(o - middle)) for o in near)
        return 10 * inside + abs(middle - length / 2)

    room = min(half + 6 * pixels, length / 2)
    middle = min(np.linspace(room, length - room, 41), key=crowd)
    place = ends[0] + along * middle + normal * 4 * pixels
    text.set_transform(axes.transData)
    text.set_position(axes.transData.inverted().transform(place))
    text.set_rotation(math.degrees(math.atan2(along[1], along[0])))
    steps = np.linspace(-half, half, 80)[:, None]
    rows = [place + normal * k * pixels + along * steps for k in (2, 5, 8)]
    return text, np.concatenate(rows)


def _ridge_label(axes: Axes, ridge: float, foot: float, key: Bbox) -> Any:
    """Write the ridge at the foot of its line, right of it unless the key or the edge is there."""
    words = f"ridge {significant(ridge)} FLOP/byte"
    renderer = axes.figure.canvas.get_renderer()
    text = None
    for x, side in ((5, "left"), (-5, "right")):
        if text is not None:
            text.remove()
        beside = offset_copy(axes.transData, axes.figure, x=x, y=6, units="points")
        text = axes.text(ridge, foot, words, transform=beside, ha=side, size=9, zorder=3)
        text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.0})
        box = text.get_window_extent(renderer)
        if not box.overlaps(key) and box.x1 < axes.bbox.x1:
            break
    return text


def _roofline_key(
    axes: Axes,
    dashed: bool,
    filled: bool,
    hollow: bool,
    roles: Sequence[str],
    shared: tuple[str, str],
) -> Any:
    """Write the key of line and marker kinds at the lower right: only the kinds that occur.

    ``shared`` is the colour and the marker of the entries that name no role.
    """
    colour, marker = shared
    entries = [("datasheet", {"linestyle": "-", "linewidth": 1.8})]
    if dashed:
        entries.append(("measured ceiling", {"linestyle": _DASHES, "linewidth": 1.1}))
    look = {"linestyle": "none", "markersize": 6}
    for role in roles:
        entries.append((role, {**look, "color": COLOURS[role], "marker": MARKERS[role]}))
    if filled and (hollow or not roles):
        entries.append(("measured", {**look, "marker": marker, "color": colour}))
    if hollow:
        hollowed = {"color": colour, "markerfacecolor": PAPER}
        entries.append(("predicted", {**look, "marker": marker, **hollowed}))
    handles = [Line2D([], [], label=name, **{"color": INK, **how}) for name, how in entries]
    return axes.legend(
        handles=handles,
        loc="lower right",
        handlelength=1.8,
        labelspacing=0.35,
        borderaxespad=0.3,
        borderpad=0.2,
    )


def roofline(
    gpu: Any,
    dtype: str | Sequence[str] = "fp32",
    points: Sequence[Point] = (),
    measured: Ceilings | None = None,
    *,
    title: str | None = None,
    height: float = 4.7,
) -> Figure:
    """Return the roofline of a GPU (``gpus.GPU``) with kernels on it, both axes logarithmic.

    Datasheet ceilings are solid, measured ones dashed; the ridge and the two regions are those of
    the first ``dtype``. Intensities in FLOP/byte, performance in TFLOP/s. Raises ``ValueError`` for
    a dtype that the GPU's table entry lacks.
    """
    dtypes = (dtype,) if isinstance(dtype, str) else tuple(dtype)
    figure = new_figure(height=height)
    with style():
        axes = add_axes(figure, left=0.75, right=ROOF_MARGIN, top=0.65, bottom=0.6)
        roofline_axes(axes, gpu, dtypes, points, measured)
        set_title(axes, title or f"Roofline of one {gpu.name}", 27)
    return figure
