"""The thread mapping of a tile: which warp and which thread own each element, and why so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from course_utils.plots.style import (
    INK,
    MUTED,
    add_axes,
    new_figure,
    set_title,
    style,
)

if TYPE_CHECKING:
    from course_utils.compiler.layouts import Layout
    from course_utils.compiler.ttgir import Access

# Pale, so that numbers can be read on them; a warp's number stands in its area as well.
_WARPS = (
    *("#cfe2f3", "#fbe0bf", "#d2ebd8", "#e8d3e8"),
    *("#f5eeb8", "#f4cfc8", "#dcdcdc", "#c9ecec"),
)
_ODD = "#ffffff"  # the second of two neighbouring threads
_ROWS = 16  # that a long tile of one axis is wrapped into
_SECTOR = 32  # bytes
# Of tiles larger than that the first rows and columns are shown.
_TILE_ROWS = 16
_DETAIL_ROWS = 8
_DETAIL_COLUMNS = 512


def _owning_warps(layout: Layout) -> np.ndarray:
    """Return the warp of each element of the tile; of several the first, as `Layout.owner` does."""
    inside = np.zeros((1, len(layout.shape)), dtype=int)  # what one warp holds
    for offset in (*layout.registers, *layout.lanes):
        inside = np.concatenate([inside, inside ^ offset])
    warps = np.empty(layout.shape, dtype=int)
    for warp in reversed(range(layout.num_warps)):
        warps[tuple((inside ^ layout.element(warp, 0, 0)).T)] = warp
    return warps


def _wrapped(tile: np.ndarray) -> np.ndarray:
    """Return a tile's first rows; one of a single axis in pieces, one of three axes by its last."""
    columns = tile.shape[-1]
    if tile.ndim == 1:
        columns = min(columns, max(128, columns // _ROWS))
    return tile.reshape(-1, columns)[:_TILE_ROWS]


def _rectangles(values: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """Cover an array by rectangles of equal value: (value, row, column, rows, columns)."""
    open_runs: dict[tuple[int, int, int], int] = {}
    done = []
    for row, line in enumerate([*values, None]):
        runs = set() if line is None else set(_runs(line))
        for run in [run for run in open_runs if run not in runs]:
            value, begin, length = run
            first = open_runs.pop(run)
            done.append((value, first, begin, row - first, length))
        for run in runs:
            open_runs.setdefault(run, row)
    return sorted(done, key=lambda item: item[1:3])


def _runs(line: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    """Give (value, begin, length) of the runs of equal values."""
    begin = 0
    for value, group in itertools.groupby(line):
        length = len(list(group))
        yield int(value), begin, length
        begin += length


def _fill(axes: Axes, boxes: Sequence[tuple[float, float, float, float]], **look: Any) -> None:
    """Draw boxes (left, top, width, height) as one collection."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    # Not clipped: half of a line on the edge would be missing.
    axes.add_collection(PolyCollection(corners, clip_on=False, **look), autolim=False)


def _bare(axes: Axes, rows: int, columns: float) -> None:
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines[:].set_visible(False)


def tile_axes(axes: Axes, access: Access) -> None:
    """Draw a tile with one area for each warp's elements; row and column numbers stand outside.

    A thicker line is around what warp 0 touches with its first instruction.
    """
    layout = access.layout
    warps = _wrapped(_owning_warps(layout))
    rows, columns = warps.shape
    _bare(axes, rows, columns)
    boxes = _rectangles(warps)
    _fill(
        axes,
        [(column, row, width, height) for _, row, column, height, width in boxes],
        facecolors=[_WARPS[warp % len(_WARPS)] for warp, *_ in boxes],
        edgecolors=INK,
        linewidths=0.6,
    )
    touched = np.zeros(layout.shape, dtype=int)
    for index in itertools.chain.from_iterable(access.instruction()):
        touched[index] = 1
    outlines = [
        (column, row, width, height)
        for inside, row, column, height, width in _rectangles(_wrapped(touched))
        if inside
    ]
    _fill(axes, outlines, facecolors="none", edgecolors=INK, linewidths=2.2)
    pixels = axes.figure.dpi / 72
    across, down = axes.bbox.width / columns, axes.bbox.height / rows
    for warp, row, column, height, width in boxes:
        middle = (column + width / 2, row + height / 2)
        for words, letters in ((f"warp {warp}", 6), (str(warp), 1.5)):
            if width * across > 7 * letters * pixels and height * down > 9 * pixels:
                axes.text(*middle, words, ha="center", va="center_baseline", size=9)
                break
    left = offset_copy(axes.transData, axes.figure, x=-5, units="points")
    above = offset_copy(axes.transData, axes.figure, y=4, units="points")
    wrapped = len(layout.shape) == 1
    step = 1
    while step * down < 13 * pixels:
        step *= 2
    for row in range(0, rows, step):
        name = str(row * columns if wrapped else row)
        axes.text(0, row + 0.5, name, transform=left, ha="right", va="center_baseline", size=9)
    if not wrapped:
        for column in range(0, columns, max(1, columns // 8)):
            axes.text(column + 0.5, 0, str(column), transform=above, ha="center", size=9)


def instruction_axes(axes: Axes, access: Access) -> None:
    """Draw the elements that warp 0 touches with its first instruction, with the lanes' numbers.

    Columns are addresses: along the layout's fastest axis. Boxes of thicker lines are the 32-byte
    sectors that memory has to move.
    """
    axis = access.layout.fastest
    cells: dict[tuple[tuple[int, ...], int], int] = {}
    for lane, indices in enumerate(access.instruction()):
        for index in indices:
            cells.setdefault((index[:axis] + index[axis + 1 :], index[axis]), lane)
    sectors = {access.sector(index) for indices in access.instruction() for index in indices}
    per_sector = max(_SECTOR * 8 // access.bits, 1)
    first = min(sector for _, sector in sectors) * per_sector
    last = max(sector for _, sector in sectors) * per_sector + per_sector
    columns = min(last - first, _DETAIL_COLUMNS)
    names = sorted({row for row, _ in sectors})[:_DETAIL_ROWS]
    _bare(axes, len(names), columns)

    boxes, labels = [], []
    for place, row in enumerate(names):
        line = [cells.get((row, first + column), -1) for column in range(columns)]
        for lane, begin, length in _runs(line):
            if lane >= 0:
                boxes.append((begin, place, length, 1))
                labels.append(lane)
    # Neighbours differ in shade; the number says which thread.
    shades = [_ODD if lane % 2 else _WARPS[0] for lane in labels]
    _fill(axes, boxes, facecolors=shades, edgecolors=MUTED, linewidths=0.5)
    pixels = axes.figure.dpi / 72
    across = axes.bbox.width / columns
    centred = {"va": "center_baseline", "size": 9}
    for (begin, place, length, _), lane in zip(boxes, labels, strict=True):
        if length * across > 12 * pixels or lane % 4 == 0:
            axes.text(begin + length / 2, place + 0.5, str(lane), ha="center", **centred)
    outlines = [
        (sector * per_sector - first, names.index(row), per_sector, 1)
        for row, sector in sorted(sectors)
        if row in names and sector * per_sector - first < columns
    ]
    _fill(axes, outlines, facecolors="none", edgecolors=INK, linewidths=1.3)

    below = offset_copy(axes.transData, axes.figure, y=-12, units="points")
    for column in range(0, columns + 1, max(per_sector, columns // 8)):
        address = (first + column) * access.bits // 8
        axes.text(column, len(names), str(address), transform=below, ha="center", size=9)
    left = offset_copy(axes.transData, axes.figure, x=-5, units="points")
    if names[0]:
        for place, row in enumerate(names):
            words = ", ".join(map(str, row))
            axes.text(0, place + 0.5, words, transform=left, ha="right", **centred)


def layout_chart(access: Access, *, title: str | None = None) -> Figure:
    """Return the thread mapping of a load or store, as the compiler chose it.

    Above the whole tile: which warp owns which elements. Below what one warp touches with one
    instruction: the threads' numbers (lanes) on their elements, addresses in bytes, and the
    32-byte sectors that memory moves. Where neighbouring threads have neighbouring addresses, few
    sectors are touched and all their bytes are used.

    Args:
        access: of a compiled kernel, such as ``compiled.access("load", "x_ptr")``.
        title: above all; by default what the access is.

    Raises:
        ValueError: the access has no layout that is known (``access.layout`` is None).
    """
    vector = access.vector  # raises before anything is drawn
    layout = access.layout
    several = len(layout.shape) > 1
    used = {index for lane in access.instruction() for index in lane}
    rows = len({access.sector(index)[0] for index in used})
    lines = len(_wrapped(_owning_warps(layout)))
    above, between, below = (0.58 if several else 0.38), 0.42, 0.5
    tile_height = min(max(0.2 * lines, 0.4), 2.2)
    detail_height = max(0.26 * min(rows, _DETAIL_ROWS), 0.3)
    height = above + tile_height + between + detail_height + below
    figure = new_figure(height=height)
    with style():
        margins = {"left": 0.6, "right": 0.25}
        tile = add_axes(figure, **margins, top=above, bottom=height - above - tile_height)
        tile_axes(tile, access)
        set_title(tile, title or _heading(access), 20 if several else 7)
        detail = add_axes(figure, **margins, top=height - below - detail_height, bottom=below)
        instruction_axes(detail, access)
        share = 100 * len(used) * access.bits / 8 / (access.sectors() * _SECTOR)
        sentence = (
            f"outlined above, one instruction of warp 0: 32 threads × "
            f"{vector * access.bits // 8} bytes, {access.sectors()} sectors, {share:.3g} % used"
        )
        set_title(detail, sentence, 7)
        along = f" along axis {layout.fastest}" if several else ""
        cut = f", first {_DETAIL_ROWS} of {rows} rows" if rows > _DETAIL_ROWS else ""
        boxes = f"boxes: sectors of {_SECTOR} bytes; numbers: threads"
        detail.set_xlabel(f"address in bytes{along}{cut}; {boxes}")
        detail.xaxis.set_label_coords(0.5, -17 * figure.dpi / 72 / detail.bbox.height)
    return figure


def _heading(access: Access) -> str:
    shape, warps = access.layout.shape, access.layout.num_warps
    rows = "; on the left each row's first element" if len(shape) == 1 else ""
    cut = f", first {_TILE_ROWS} rows" if math.prod(shape[:-1]) > _TILE_ROWS else ""
    return (
        f"{access.kind} {access.argument or 'by address'}: {' × '.join(map(str, shape))} elements "
        f"of {access.bits} bits, {warps} warp{'s' * (warps != 1)}{cut}{rows}"
    )
