"""The course's plots: one style, and the charts that every lesson uses.

Each chart function returns a matplotlib ``Figure`` and touches no global state, so a chart drawn
twice is the same picture. ``show`` puts a figure into a notebook together with its caption.
"""

from course_utils.plots.display import plain, png, png_bundle, show, show_caption
from course_utils.plots.labels import place_labels
from course_utils.plots.layout import instruction_axes, layout_chart, tile_axes
from course_utils.plots.roofline import (
    ROOF_MARGIN,
    Ceilings,
    Point,
    RooflineLayout,
    roofline,
    roofline_axes,
)
from course_utils.plots.style import (
    COLOURS,
    GRID,
    HATCHES,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    WIDTH,
    add_axes,
    light_ticks,
    new_figure,
    power_of_two,
    quantity,
    set_title,
    significant,
    style,
)
from course_utils.plots.sweep import Series, sweep_axes, sweep_chart
from course_utils.plots.trips import trips_axes, trips_chart

__all__ = [
    "COLOURS",
    "GRID",
    "HATCHES",
    "INK",
    "MARKERS",
    "MUTED",
    "PAPER",
    "ROOF_MARGIN",
    "WIDTH",
    "Ceilings",
    "Point",
    "RooflineLayout",
    "Series",
    "add_axes",
    "instruction_axes",
    "layout_chart",
    "light_ticks",
    "new_figure",
    "place_labels",
    "plain",
    "png",
    "png_bundle",
    "power_of_two",
    "quantity",
    "roofline",
    "roofline_axes",
    "set_title",
    "show",
    "show_caption",
    "significant",
    "style",
    "sweep_axes",
    "sweep_chart",
    "tile_axes",
    "trips_axes",
    "trips_chart",
]
