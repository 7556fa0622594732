"""Where to write the names of points, so that none covers another, a marker or a line.

Every label has a few dozen places around its point. A place costs its distance, the lines it
crosses, and far more what it covers; a local search from several orders picks a cheap set.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from course_utils.plots.style import MUTED

# Degrees; right and below first, because in a roofline chart the roof is above.
_DIRECTIONS = np.radians(
    (0, -45, -90, 180, -135, 90, 135, 45, -20, -65, -115, -160, 20, 160, 70, 110)
)
_DISTANCES = np.array((7.0, 12.0, 19.0, 28.0, 40.0, 55.0, 75.0))  # points
_TIED_FROM = 16.0  # points; a label farther away than this gets a line to its point
_BESIDE = 7.0  # points; what lies nearer to a point does not part a label from it
_COVERS, _OUTSIDE, _TIE_CROSSED, _LINE_CROSSED, _AMBIGUOUS = 1e3, 1e5, 20.0, 6.0, 3.0


def place_labels(
    axes: Axes,
    labels: Sequence[tuple[str, float, float]],
    *,
    boxes: Iterable[Bbox] = (),
    lines: Iterable[np.ndarray] = (),
    size: float = 9,
) -> list[Any]:
    """Write texts beside their points; returns the text artists.

    ``labels`` are (text, x, y) in data coordinates. ``boxes`` (pixels) stay free; ``lines`` (arrays
    of pixel positions, shape (n, 2)) are crossed only if nothing else is left. A label that had to
    move away, or stands across one of the lines from its point, is tied to its point by a thin
    line. The axes' limits and position must be final.
    """
    if not labels:
        return []
    renderer = axes.figure.canvas.get_renderer()
    pixels = axes.figure.dpi / 72
    spots = axes.transData.transform([label[1:] for label in labels])
    texts = [axes.text(0, 0, label[0], size=size, transform=None, zorder=6) for label in labels]
    extents = [text.get_window_extent(renderer) for text in texts]
    sizes = np.array([(extent.width, extent.height) for extent in extents])
    places = _places(spots, sizes, pixels)
    ties = _ties(places, spots)
    track = np.concatenate([np.empty((0, 2)), *lines])
    costs = _own_costs(axes, places, ties, spots, boxes, track, pixels)
    choice = _search(places, ties, costs, pixels)

    to_data = axes.transData.inverted()
    for index, text in enumerate(texts):
        box = places[index, choice[index]]
        text.set_transform(axes.transData)
        text.set_verticalalignment("bottom")
        text.set_position(to_data.transform(box[:2]))
        near = ties[index, choice[index], 0]
        far = np.hypot(*(near - spots[index])) > _TIED_FROM * pixels
        if far or _parted(near, spots[index], track, pixels):
            ends = to_data.transform([near, spots[index]])
            axes.plot(*ends.T, color=MUTED, linewidth=0.6, zorder=2.5)
    return texts


def _places(spots: np.ndarray, sizes: np.ndarray, pixels: float) -> np.ndarray:
    """Return every label's places as boxes (x0, y0, x1, y1), shape (labels, places, 4)."""
    directions = np.column_stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)])
    # The box touches, from outside, a circle of this radius around its point.
    steps = (_DISTANCES[:, None, None] * directions).reshape(-1, 2) * pixels
    directions = np.tile(directions, (len(_DISTANCES), 1))
    corner = spots[:, None] + steps + (directions / 2 - 0.5) * sizes[:, None]
    return np.concatenate([corner, corner + sizes[:, None]], axis=2)


def _ties(places: np.ndarray, spots: np.ndarray) -> np.ndarray:
    """Return points on the way from each place to its spot, shape (labels, places, 12, 2)."""
    near = spots[:, None].clip(places[..., :2], places[..., 2:])
    share = np.linspace(0, 1, 12)[:, None]
    return near[:, :, None] * (1 - share) + spots[:, None, None] * share


def _parted(near: np.ndarray, spot: np.ndarray, track: np.ndarray, pixels: float) -> bool:
    """Tell whether a line passes between a label's nearest corner and its point's marker."""
    length = float(np.hypot(*(near - spot)))
    # A point that lies on a line, or just beside it, is not parted from its label by it.
    way = np.arange(_BESIDE * pixels, length, 1.0)
    if not len(way) or not len(track):
        return False
    steps = spot + way[:, None] / length * (near - spot)
    gaps = np.hypot(*(steps[:, None] - track[None]).transpose(2, 0, 1))
    return bool(gaps.min() < 1.5 * pixels)


def _overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the areas that boxes (..., 4) share with others (..., 4), by broadcasting."""
    low = np.maximum(boxes[..., :2], others[..., :2])
    high = np.minimum(boxes[..., 2:], others[..., 2:])
    return (high - low).clip(0).prod(axis=-1)


def _hits(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return how many points (..., n, 2) lie in boxes (..., 4), by broadcasting."""
    low, high = boxes[..., None, :2], boxes[..., None, 2:]
    return ((points > low) & (points < high)).all(axis=-1).sum(axis=-1)


def _own_costs(
    axes: Axes,
    places: np.ndarray,
    ties: np.ndarray,
    spots: np.ndarray,
    boxes: Iterable[Bbox],
    track: np.ndarray,
    pixels: float,
) -> np.ndarray:
    """Return what each place costs whatever the other labels do, shape (labels, places)."""
    order = np.tile(np.arange(len(_DIRECTIONS)), len(_DISTANCES))
    base = (np.repeat(_DISTANCES, len(_DIRECTIONS)) + 0.4 * order) * pixels
    costs = np.broadcast_to(base, places.shape[:2]).copy()
    padded = places + np.array([-1.5, -1.5, 1.5, 1.5]) * pixels
    for box in boxes:
        costs += _COVERS * _overlap(padded, np.array(box.extents))
    for index, (x, y) in enumerate(spots):
        half = 4 * pixels
        marker = np.array([x - half, y - half, x + half, y + half])
        costs += _COVERS * _overlap(padded, marker)
        others = np.arange(len(spots)) != index
        costs[others] += _TIE_CROSSED * pixels * _hits(ties[others], marker)
        # A reader gives a label to the nearest marker, so that had better be its own.
        near = np.hypot(*(spots[others, None] - ties[others, :, 0]).transpose(2, 0, 1))
        closest = np.array([x, y]).clip(places[others, :, :2], places[others, :, 2:])
        far = np.hypot(*(closest - [x, y]).transpose(2, 0, 1))
        costs[others] += _AMBIGUOUS * (near + 4 * pixels - far).clip(0)
    frame = np.array(axes.bbox.extents) + np.array([2, 2, -2, -2]) * pixels
    outside = (frame[:2] - places[..., :2]).clip(0) + (places[..., 2:] - frame[2:]).clip(0)
    costs += _OUTSIDE * outside.sum(axis=-1)
    # Label by label: all at once would take memory for (labels x places x pixels of line).
    for index in range(len(spots)):
        costs[index] += _LINE_CROSSED * pixels * _hits(track, padded[index])
    return costs


def _search(places: np.ndarray, ties: np.ndarray, costs: np.ndarray, pixels: float) -> list[int]:
    """Return one place per label so that the sum of all costs is small."""
    padded = places + np.array([-1.5, -1.5, 1.5, 1.5]) * pixels

    @functools.cache
    def together(index: int, other: int, chosen: int) -> np.ndarray:
        """Return what each place of ``index`` adds when ``other`` sits at ``chosen``."""
        box = places[other, chosen]
        if (reach[index, 2:] < reach[other, :2]).any() or (
            reach[other, 2:] < reach[index, :2]
        ).any():
            return nothing
        crossed = _hits(ties[index], box) + _hits(ties[other, chosen], padded[index])
        return _COVERS * _overlap(padded[index], box) + _TIE_CROSSED * pixels * crossed

    # Most pairs are too far apart ever to meet.
    low, high = ties.min(axis=(1, 2)), ties.max(axis=(1, 2))
    low = np.minimum(low, padded[..., :2].min(axis=1))
    reach = np.concatenate([low, np.maximum(high, padded[..., 2:].max(axis=1))], axis=1)
    nothing = np.zeros(places.shape[1])
    count = len(places)
    best, best_cost = None, math.inf
    # Which label is placed first matters, so try some orders.
    middle = places[:, 0, :2]
    orders = [range(count), reversed(range(count)), np.argsort(middle[:, 0] * 1e-3 - middle[:, 1])]
    for order in (list(order) for order in orders):
        choice: dict[int, int] = {}
        for _ in range(6):
            before = dict(choice)
            for index in order:
                total = costs[index].copy()
                for other, chosen in choice.items():
                    if other != index:
                        total += together(index, other, chosen)
                choice[index] = int(total.argmin())
            if choice == before:
                break
        cost = sum(costs[i, c] for i, c in choice.items())
        pairs = itertools.permutations(range(count), 2)
        cost += sum(together(i, j, choice[j])[choice[i]] for i, j in pairs) / 2
        if cost < best_cost:
            best, best_cost = [choice[i] for i in range(count)], cost
    return best


def in_order(heights: Sequence[float], gap: float) -> list[float]:
    """Deal heights anew where neighbours are closer than ``gap``: from the top, in the order given.

    So the names of lines that end together stand in the order of the lines.
    """
    dealt = list(heights)
    downwards = sorted(range(len(dealt)), key=lambda index: -heights[index])
    run: list[int] = []
    for index, lower in itertools.zip_longest(downwards, downwards[1:]):
        run.append(index)
        if lower is None or heights[index] - heights[lower] >= gap:
            for place, height in zip(sorted(run), [heights[i] for i in run], strict=True):
                dealt[place] = height
            run = []
    return dealt


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move label heights apart by at least ``gap`` and keep them between low and high.

    Of equal heights the first stays uppermost.
    """
    order = sorted(range(len(heights)), key=lambda index: (heights[index], -index))
    moved = np.array(heights, dtype=float)
    for _ in range(200):
        done = True
        for lower, upper in itertools.pairwise(order):
            lack = gap - (moved[upper] - moved[lower])
            if lack > 1e-6:
                moved[lower] -= lack / 2
                moved[upper] += lack / 2
                done = False
        moved = moved.clip(low, high)
        if done:
            break
    return moved.tolist()
