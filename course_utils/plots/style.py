"""The look that every chart of the course shares: colours with fixed meanings, type, sizes.

A colour has one meaning in the whole course (``COLOURS``) and is never the only carrier of it:
hatches, markers, hollow or filled shapes and direct labels say the same. The hues are Okabe and
Ito's ("Color Universal Design", 2008), which stay apart for the common kinds of colour blindness;
their purple is darker here and their yellow lighter, so that thin lines stand out from white paper
and all pairs keep a distance that a test asserts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

INK = "#222222"
MUTED = "#5c6166"
GRID = "#e4e4e4"
PAPER = "#ffffff"

#: What each colour means, everywhere in the course. Memories run from cold (far, slow) to warm
#: (near, fast); the four ways of running a computation are the line colours.
COLOURS: Mapping[str, str] = {
    "hbm": "#0072B2",
    "l2": "#56B4E9",
    "shared": "#E69F00",
    "registers": "#F6EE7E",
    "eager": "#D55E00",
    "compiled": "#009E73",
    "ours": "#A03CA0",
    "library": INK,
}
#: The second carrier of the same meanings on lines and points ...
MARKERS: Mapping[str, str] = {"eager": "o", "compiled": "s", "ours": "D", "library": "^"}
#: ... and on filled areas.
HATCHES: Mapping[str, str] = {
    "hbm": "",
    "l2": "///",
    "shared": "...",
    "registers": "xxx",
    "eager": "",
    "compiled": "///",
    "ours": "\\\\\\",
    "library": "...",
}

WIDTH = 7.5  # inches: 720 CSS pixels, the text column of a notebook

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STYLE = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.unicode_minus": True,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture on every machine
    "font.size": 9.5,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "hatch.linewidth": 0.9,
    "hatch.color": INK,
    "path.simplify": True,
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the course's matplotlib settings within a ``with`` block, and nothing outside it."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float = WIDTH, height: float = 4.0) -> Figure:
    """Return an empty figure of ``width`` x ``height`` inches that no global list keeps alive."""
    with style():
        figure = Figure(figsize=(width, height), facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def add_axes(
    figure: Figure,
    *,
    left: float = 0.0,
    right: float = 0.0,
    top: float = 0.0,
    bottom: float = 0.0,
) -> Axes:
    """Add axes that leave the given margins, in inches, to the figure's edges.

    Margins are fixed by hand because labels are placed in pixels, which an automatic layout would
    move afterwards; it is also several times faster, which the explorers need.
    """
    width, height = figure.get_size_inches()
    box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height)
    return figure.add_axes(box)


def set_title(axes: Axes, words: str, pad: float) -> None:
    """Write a title ``pad`` points above the axes.

    A given ``y`` stops matplotlib from measuring everything above the axes to find the place.
    """
    axes.set_title(words, pad=pad, y=1.0)


def light_ticks(axes: Axes, x: Mapping[float, str], y: Mapping[float, str]) -> None:
    """Write tick labels (position -> words) and a grid, as plain texts and lines.

    matplotlib's own ticks are a handful of objects each and take several times as long to draw,
    which an explorer feels. Scales and limits must be final; axis labels keep their place below.
    """
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(NullLocator())
        axis.set_minor_locator(NullLocator())
    across, along = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    line = {"color": GRID, "linewidth": 0.8, "zorder": 0.5}
    axes.vlines(list(x), 0, 1, transform=across, **line)
    axes.hlines(list(y), 0, 1, transform=along, **line)
    below = offset_copy(across, axes.figure, y=-5, units="points")
    beside = offset_copy(along, axes.figure, x=-5, units="points")
    for place, words in x.items():
        axes.text(place, 0, words, transform=below, ha="center", va="top", size=9)
    for place, words in y.items():
        axes.text(0, place, words, transform=beside, ha="right", va="center_baseline", size=9)
    pixels = axes.figure.dpi / 72
    widest = max((len(words) for words in y.values()), default=0)
    axes.xaxis.set_label_coords(0.5, -20 * pixels / axes.bbox.height)
    axes.yaxis.set_label_coords(-(10 + 5.5 * widest) * pixels / axes.bbox.width, 0.5)


def quantity(value: float, unit: str) -> str:
    """Return a number in a handy multiple of its unit: 4.8e12 "B/s" becomes "4.80 TB/s".

    Decimal prefixes, three significant digits; ``unit`` is a base unit ("B", "B/s", "FLOP/s", "s").
    """
    if not math.isfinite(value):
        return f"{value} {unit}"
    exponent = 0
    if value:
        # Round first, so that 999.96 becomes "1.00 k" and not "1000".
        exponent = math.floor(math.log10(float(f"{abs(value):.2e}")) / 3)
    exponent = max(-3, min(exponent, 5))
    prefix = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}[exponent]
    return f"{significant(value / 1000.0**exponent)} {prefix}{unit}"


def power_of_two(value: float) -> str:
    """Return a power of two as plain text with raised digits: 1024 becomes "2¹⁰"."""
    return "2" + str(round(math.log2(value))).translate(_RAISED)


def significant(value: float) -> str:
    """Return a number with three significant digits and no exponent: 4.80, 66.9, 989, 0.0625."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(float(f"{abs(value):.2e}")))
    return f"{value:,.{max(digits, 0)}f}"
