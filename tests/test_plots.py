"""The charts show the numbers they were given, legibly, in colours that everyone can tell apart."""

from __future__ import annotations

import base64
import io
import itertools
import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from course_utils import plots
from course_utils.plots import labels

GPU = SimpleNamespace(
    name="Test GPU", bandwidth=4e12, peak={"fp32": 64e12, "tf32": 400e12, "bf16": 800e12}
)


def lesson_02_points() -> list[plots.Point]:
    """Intensities as counted for lesson 02; the speeds are shares of the roof, made up."""
    small = {"add": 1 / 12, "gelu": 1 / 8, "sum": 1 / 4, "softmax": 5 / 8, "layernorm": 7 / 8}
    points = [plots.Point("copy", 0, bytes_per_s=3.6e12)]
    for label, intensity in small.items():
        points.append(plots.Point(label, intensity, 0.85 * intensity * 4e12, colour="eager"))
    for size, share in ((512, 0.06), (1024, 0.3), (2048, 0.6), (4096, 0.68), (8192, 0.7)):
        point = plots.Point(f"matmul {size}", size / 3, share * 800e12, colour="library")
        points.append(point)
    points.append(plots.Point("attention", 31, 80e12, colour="eager"))
    points.append(plots.Point("attention, one pass", 480, colour="ours", kind="predicted"))
    return points


def charts() -> dict[str, matplotlib.figure.Figure]:
    """One or more of every chart, as crowded as the lessons make them."""
    ceilings = plots.Ceilings(3.8e12, {"fp32": 51e12, "bf16": 560e12})
    xs = [2**e for e in range(10, 29, 2)]
    rates = {
        "eager": (xs, [min(3600, x / 3e4) for x in xs]),
        "compiled": (xs, [min(3750, x / 1e4) for x in xs]),
        "ours": (xs, [None, *(min(3740, x / 2e4) for x in xs[1:])]),
    }
    return {
        "trips": plots.trips_chart([(f"op {i}", 4, 4) for i in range(5)], 4),
        "trips, long": plots.trips_chart(
            [("_scaled_dot_product_attention", 12, 4), ("sum", 4, 1e-3), ("view", 0, 0)],
            4,
            title="T",
        ),
        "trips, many": plots.trips_chart([(f"op {i}", 4, 4) for i in range(16)], 4),
        "roofline": plots.roofline(GPU, "bf16", lesson_02_points(), ceilings),
        "roofline, two": plots.roofline(GPU, ["fp32", "bf16"], lesson_02_points(), ceilings),
        "roofline, bare": plots.roofline(GPU),
        "sweep": plots.sweep_chart(rates, "n", "GB/s", ceilings={"copy": 3800}, title="T"),
        "sweep, log": plots.sweep_chart(rates, "n", "GB/s", log_y=True),
    }


CHARTS = ["trips", "trips, long", "trips, many", "roofline", "roofline, two", "roofline, bare"]
CHARTS += ["sweep", "sweep, log"]


@pytest.fixture(scope="module")
def drawn():
    figures = charts()
    for figure in figures.values():
        figure.canvas.draw()
    assert list(figures) == CHARTS
    return figures


def texts(figure) -> list:
    return [
        text
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_text().strip() and text.get_visible()
    ]


def words(figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


def extent(artist):
    return artist.get_window_extent(artist.figure.canvas.get_renderer())


# --- numbers in words ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (4.8e12, "B/s", "4.80 TB/s"),
        (66.9e12, "FLOP/s", "66.9 TFLOP/s"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (999.96e12, "FLOP/s", "1.00 PFLOP/s"),
        (2.53e-3, "s", "2.53 ms"),
        (4.4e-6, "s", "4.40 µs"),
        (6.8e-9, "s", "6.80 ns"),
        (0, "B", "0 B"),
        (10737418240, "B", "10.7 GB"),
    ],
)
def test_quantities_have_three_digits_and_a_prefix(value, unit, expected):
    assert plots.quantity(value, unit) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0625, "0.0625"), (13.94, "13.9"), (206.1, "206"), (4500, "4,500")]
)
def test_significant_has_no_exponent(value, expected):
    assert plots.significant(value) == expected


# --- colours ------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", 2009: full protanopia, deuteranopia, tritanopia, on linear RGB.
SEEN_BY = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "no green cones": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6728, 0.0471], [-0.0118, 0.0429, 0.9689]]
    ),
    "no blue cones": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}
GROUPS = {
    "memories": ("hbm", "l2", "shared", "registers"),
    "implementations": ("eager", "compiled", "ours", "library"),
}


def linear(colour: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB, D65."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(to_xyz @ rgb.clip(0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN_BY)
@pytest.mark.parametrize("group", GROUPS)
def test_colours_stay_apart_for_every_kind_of_colour_vision(group, eyes):
    seen = {name: lab(SEEN_BY[eyes] @ linear(plots.COLOURS[name])) for name in GROUPS[group]}
    for one, other in itertools.combinations(seen, 2):
        # 2.3 is a just noticeable difference; ten times that is told apart at a glance.
        assert np.linalg.norm(seen[one] - seen[other]) > 20, (one, other)


@pytest.mark.parametrize("name", ["hbm", *GROUPS["implementations"]])
def test_line_colours_stand_out_from_paper(name):
    luminance = np.array([0.2126, 0.7152, 0.0722]) @ linear(plots.COLOURS[name])
    assert 1.05 / (luminance + 0.05) >= 3  # WCAG 2.1, graphical objects


def test_colour_is_never_the_only_carrier():
    roles, memories = GROUPS["implementations"], GROUPS["memories"]
    assert set(plots.COLOURS) == {*roles, *memories}
    assert len({plots.MARKERS[role] for role in roles}) == len(roles)
    assert len({plots.HATCHES[name] for name in memories}) == len(memories)
    assert len({plots.HATCHES[name] for name in roles}) == len(roles)


# --- every chart --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHARTS)
def test_no_text_is_small_or_cut_off(drawn, name):
    figure = drawn[name]
    assert figure.get_size_inches()[0] == plots.WIDTH
    for text in texts(figure):
        assert text.get_fontsize() >= 9, text
        box = extent(text)
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text


@pytest.mark.parametrize("name", CHARTS)
def test_no_text_covers_another(drawn, name):
    for one, other in itertools.combinations(texts(drawn[name]), 2):
        if one.get_rotation() or other.get_rotation():
            continue  # its upright box is larger than it is; the slope's label has its own test
        first, second = extent(one), extent(other)
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width <= 0.5 or height <= 0.5, (one, other)


def test_drawing_changes_no_setting_and_needs_no_pyplot():
    before = dict(matplotlib.rcParams)
    plots.png(plots.roofline(GPU, points=[plots.Point("p", 1)]))
    assert dict(matplotlib.rcParams) == before
    script = (
        "import sys; from course_utils import plots; "
        "plots.png(plots.trips_chart([('a', 4, 4)], 4)); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    root = str(plots.__path__[0]).rsplit("course_utils", 1)[0]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True, timeout=60)


# --- trips --------------------------------------------------------------------------------------


def launch(name: str, read: int, written: int) -> SimpleNamespace:
    traffic = SimpleNamespace(bytes_read=read, bytes_written=written)
    return SimpleNamespace(name=name, traffic=traffic)


def bars(figure) -> list:
    """The two collections of bars: read, written."""
    found = figure.axes[0].collections
    return [c for c in found if isinstance(c, matplotlib.collections.PolyCollection)]


def lengths(collection) -> list[float]:
    return [path.vertices[:, 0].max() for path in collection.get_paths()]


def test_trips_chart_has_a_pair_of_bars_per_launch_and_the_total():
    launches = [launch("mul", 400, 400), launch("add", 800, 400)]
    figure = plots.trips_chart(launches, SimpleNamespace(nbytes=400))
    read, written = bars(figure)
    assert lengths(read) == [1, 2] and lengths(written) == [1, 1]
    shown = words(figure)
    assert "1.00 read + 1.00 written" in shown and "2.00 + 1.00" in shown
    assert {"mul", "add", "total"} <= set(shown)
    assert "5.00 trips  =  3.00 read + 2.00 written" in shown
    assert not read.get_hatch() and written.get_hatch()
    assert to_hex(read.get_facecolor()[0]) == plots.COLOURS["hbm"].lower()
    assert to_hex(written.get_facecolor()[0]) == plots.PAPER


def test_a_long_list_repeats_no_figures_but_shows_every_change():
    rows = [(f"op {i}", 8 if i == 10 else 4, 4) for i in range(16)]
    shown = words(plots.trips_chart(rows, 4))
    assert shown.count("1.00 + 1.00") == 2  # below the first row, and after the odd one
    assert shown.count("2.00 + 1.00") == 1
    assert "33.00 trips  =  17.00 read + 16.00 written" in shown


def test_trips_chart_takes_rows_and_marks_what_is_almost_nothing():
    shown = words(plots.trips_chart([("copy", 4, 4), ("sum", 4, 1e-3)], 4))
    assert "1.00 + <0.01" in shown
    assert "3.00 trips  =  2.00 read + 1.00 written" in shown


def test_trips_chart_of_nothing_says_so():
    assert words(plots.trips_chart([], 4)) == ["no launch: nothing moved"]


def test_trips_chart_counts_what_the_meter_counts():
    torch = pytest.importorskip("torch")
    from course_utils import Meter, examples

    x = torch.empty(1000, device="meta")
    with Meter() as meter:
        examples.residual_block(x)
    figure = plots.trips_chart(meter.launches, x)
    assert "11.00 trips  =  6.00 read + 5.00 written" in words(figure)


@pytest.mark.parametrize("size", [0, -4, True, "x", None])
def test_trips_chart_refuses_a_size_that_is_none(size):
    with pytest.raises(ValueError, match="tensor_bytes must be a tensor or its size in bytes"):
        plots.trips_chart([("a", 4, 4)], size)


def test_trips_chart_refuses_what_is_no_row():
    with pytest.raises(TypeError, match=r"launches or rows \(name, bytes read, bytes written\)"):
        plots.trips_chart([("a", 4)], 4)


# --- roofline -----------------------------------------------------------------------------------


def layout_of(dtypes, points=(), measured=None, gpu=GPU):
    figure = plots.new_figure(height=4.7)
    with plots.style():
        axes = plots.add_axes(figure, left=0.75, right=plots.ROOF_MARGIN, top=0.65, bottom=0.6)
        layout = plots.roofline_axes(axes, gpu, dtypes, points, measured)
    return figure, layout


def marker_of(axes, x: float):
    """The line artist of the one marker drawn at this x that is not the ridge's dot."""
    found = [
        line
        for line in axes.lines
        if len(line.get_xdata()) == 1
        and line.get_xdata()[0] == pytest.approx(x)
        and line.get_markersize() == 7
    ]
    assert len(found) == 1
    return found[0]


def test_the_ridge_is_where_the_roofs_meet():
    figure, layout = layout_of(["fp32"])
    assert layout.ridge == 16
    assert layout.ridge_label.get_text() == "ridge 16.0 FLOP/byte"
    assert {"bandwidth-bound", "compute-bound"} <= set(words(figure))
    corner = [line for line in figure.axes[0].lines if line.get_markersize() == 4]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in corner] == [(16, 64e12)]


@pytest.mark.parametrize(("dtypes", "ridge"), [(["fp32", "bf16"], 16), (["bf16", "fp32"], 200)])
def test_of_several_dtypes_the_first_has_the_ridge(dtypes, ridge):
    assert layout_of(dtypes)[1].ridge == ridge


def test_the_regions_meet_at_the_ridge():
    figure, layout = layout_of(["bf16"])
    axes = figure.axes[0]
    middle = {t.get_text(): t.get_position()[0] for t in texts(figure) if "bound" in t.get_text()}
    assert middle["bandwidth-bound"] < layout.ridge < middle["compute-bound"]
    strips = [c.get_paths()[0].vertices[:, 0] for c in axes.collections[-2:] if c.get_paths()]
    edges = sorted({float(x) for strip in strips for x in strip})
    low, high = layout.x_limits
    assert edges == pytest.approx([low, layout.ridge, high])


def test_datasheet_ceilings_are_solid_and_measured_ones_dashed():
    figure, _ = layout_of(["bf16"], measured=plots.Ceilings(3.5e12, {"bf16": 600e12}))
    axes = figure.axes[0]
    level = {}
    for line in axes.lines:
        ys = line.get_ydata()
        if len(ys) == 2 and ys[0] == ys[1] and line.get_linewidth() > 1:
            level[float(ys[0])] = line.is_dashed()
    assert level == {800e12: False, 600e12: True}
    shown = words(figure)
    assert "memory  4.00 TB/s, measured 3.50 TB/s" in shown
    assert "bf16  800 TFLOP/s" in shown and "measured  600" in shown
    assert "measured ceiling" in shown


def test_a_measured_point_is_filled_and_a_predicted_one_hollow_on_the_roof():
    points = [
        plots.Point("a", 1, 2e12),
        plots.Point("b", 4),
        plots.Point("c", 64, kind="predicted"),
    ]
    figure, _ = layout_of(["fp32"], points)
    axes = figure.axes[0]
    a, b, c = (marker_of(axes, x) for x in (1, 4, 64))
    assert to_hex(a.get_markerfacecolor()) == plots.COLOURS["hbm"].lower()
    assert a.get_ydata()[0] == 2e12
    for hollow, height in ((b, 16e12), (c, 64e12)):
        assert to_hex(hollow.get_markerfacecolor()) == plots.PAPER
        assert hollow.get_ydata()[0] == height
    assert {"measured", "predicted", "datasheet"} <= set(words(figure))


def test_roles_have_their_marker_and_stand_in_the_key():
    points = [plots.Point("a", 1, 2e12, colour="eager"), plots.Point("b", 4, 8e12, colour="ours")]
    figure, _ = layout_of(["fp32"], points)
    for x, role in ((1, "eager"), (4, "ours")):
        marker = marker_of(figure.axes[0], x)
        assert marker.get_marker() == plots.MARKERS[role]
        assert to_hex(marker.get_markerfacecolor()) == plots.COLOURS[role].lower()
        assert role in words(figure)


def key_marks(layout):
    """Marker and colour of the key's entries, by name."""
    handles = layout.key.legend_handles
    names = [text.get_text() for text in layout.key.get_texts()]
    return {
        name: (handle.get_marker(), to_hex(handle.get_markeredgecolor()))
        for name, handle in zip(names, handles, strict=True)
    }


def test_the_key_shows_the_look_that_all_points_share():
    one, other = plots.Point("a", 1, 2e12), plots.Point("b", 4, 8e12)
    blue = ("o", plots.COLOURS["hbm"].lower())
    assert key_marks(layout_of(["fp32"], [one, other])[1])["measured"] == blue
    both = key_marks(layout_of(["fp32"], [one, plots.Point("c", 64)])[1])
    assert both["measured"] == both["predicted"] == blue
    mine = plots.Point("b", 4, None, "predicted", "ours")
    look = (plots.MARKERS["ours"], plots.COLOURS["ours"].lower())
    assert key_marks(layout_of(["fp32"], [mine])[1])["predicted"] == look
    mixed = key_marks(layout_of(["fp32"], [one, plots.Point("b", 4, 8e12, colour="#123456")])[1])
    assert mixed["measured"] == ("o", plots.INK)


def test_a_kernel_without_flops_is_an_arrow_as_far_below_the_roof_as_its_bandwidth():
    figure, layout = layout_of(["fp32"], [plots.Point("copy", 0, bytes_per_s=3e12)])
    arrow = marker_of(figure.axes[0], layout.x_limits[0] * 1.12)
    assert arrow.get_marker() == "<"
    roof = arrow.get_xdata()[0] * GPU.bandwidth
    assert arrow.get_ydata()[0] / roof == pytest.approx(3 / 4)


@pytest.mark.parametrize("dtypes", [["bf16"], ["fp32"], ["fp32", "bf16"], ["tf32"]])
@pytest.mark.parametrize("measured", [None, plots.Ceilings(3.8e12, {"bf16": 560e12})])
def test_labels_cover_neither_labels_nor_markers_nor_the_key(dtypes, measured):
    points = lesson_02_points()
    figure, layout = layout_of(dtypes, points, measured)
    figure.canvas.draw()
    assert [text.get_text() for text in layout.point_labels] == [point.label for point in points]
    boxes = [extent(text) for text in layout.point_labels]
    taken = [extent(layout.key), extent(layout.ridge_label), *map(extent, layout.roof_labels[1:])]
    for one, other in [*itertools.combinations(boxes, 2), *itertools.product(boxes, taken)]:
        assert not one.overlaps(other)
    axes = figure.axes[0]
    centres = [
        axes.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
        for line in axes.lines
        if line.get_markersize() == 7 and len(line.get_xdata()) == 1
    ]
    assert len(centres) == len(points)
    for x, y in centres:
        assert not any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for box in boxes)
    for box in boxes:
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1


def test_a_label_is_nearest_to_its_own_marker_or_tied_to_it():
    figure, layout = layout_of(["bf16"], lesson_02_points())
    axes = figure.axes[0]
    spots = [
        axes.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
        for line in axes.lines
        if line.get_markersize() == 7 and len(line.get_xdata()) == 1
    ]
    ties = [line for line in axes.lines if line.get_linewidth() == 0.6]
    tied = [axes.transData.transform(line.get_xydata()[1]) for line in ties]
    for index, text in enumerate(layout.point_labels):
        box = extent(text)
        near = [
            np.hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1))
            for x, y in spots
        ]
        has_tie = any(np.allclose(end, spots[index]) for end in tied)
        assert has_tie or near[index] <= min(near) + 2, text


def placed(labels, **arguments):
    """The boxes of labels placed on a square of 300 pixels without anything else on it."""
    figure = plots.new_figure(3, 3)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 300)
    axes.set_ylim(0, 300)
    return [extent(text) for text in plots.place_labels(axes, labels, **arguments)]


def test_labels_keep_out_of_boxes_and_off_lines():
    free = placed([("label", 150, 150)])[0]
    box = matplotlib.transforms.Bbox.from_extents(free.extents)
    assert not placed([("label", 150, 150)], boxes=[box])[0].overlaps(box)
    x = (free.x0 + free.x1) / 2
    line = np.column_stack([np.full(300, x), np.arange(300)])
    beside = placed([("label", 150, 150)], lines=[line])[0]
    assert not beside.x0 < x < beside.x1


@pytest.mark.parametrize(("line_at", "tied"), [(None, 0), (2, 0), (9, 1), (60, 0)])
def test_a_label_across_a_line_from_its_point_is_tied_to_it(line_at, tied):
    """The line stands ``line_at`` points right of the point; only from 12 points on is room."""
    figure = plots.new_figure(3, 3)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 300)
    axes.set_ylim(0, 300)
    x, _ = axes.transData.transform((150, 150))
    point = figure.dpi / 72
    lines = []
    if line_at is not None:
        lines = [np.column_stack([np.full(600, x + line_at * point), np.linspace(0, 300, 600)])]
    wall = matplotlib.transforms.Bbox.from_extents(0, 0, x + 10 * point, 900)
    (text,) = plots.place_labels(axes, [("label", 150, 150)], boxes=[wall], lines=lines)
    assert extent(text).x0 == pytest.approx(x + 12 * point)
    assert len(axes.lines) == tied


def test_a_label_goes_where_no_other_marker_is_nearer():
    spots = [(100, 150), (116, 156), (132, 162), (148, 168)]
    boxes = placed([(f"label {i}", x, y) for i, (x, y) in enumerate(spots)])
    for own, box in enumerate(boxes):
        far = [np.hypot(*(np.clip(s, box.min, box.max) - s)) for s in np.array(spots)]
        assert far[own] < min(far[:own] + far[own + 1 :])


def test_no_labels_are_no_problem():
    assert placed([]) == []


def test_the_slope_label_lies_along_the_slope_and_above_it():
    figure, layout = layout_of(["bf16"])
    axes = figure.axes[0]
    label = layout.roof_labels[0]
    x, y = label.get_position()
    assert y > x * GPU.bandwidth
    low, high = axes.transData.transform([(1, GPU.bandwidth), (4, 4 * GPU.bandwidth)])
    slope = np.degrees(np.arctan2(*(high - low)[::-1]))
    assert label.get_rotation() == pytest.approx(slope, abs=0.1)


def test_a_dtype_without_hardware_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"Test GPU has no fp8 peak .* it has fp32, tf32, bf16"):
        plots.roofline(GPU, "fp8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "guessed"}, "must be 'measured' or 'predicted'"),
        ({"intensity": -1}, "intensity must be at least 0"),
        ({"intensity": float("nan")}, "intensity must be at least 0"),
        ({"flops_per_s": 0}, "flops_per_s must be more than 0"),
    ],
)
def test_points_that_cannot_be_drawn_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.Point(**{"label": "p", "intensity": 1, **arguments})


def test_a_point_of_a_record_row_has_its_rates():
    row = SimpleNamespace(case="gelu", bytes=8000, flops=1000, milliseconds=2.0)
    point = plots.Point.from_row(row, colour="eager")
    assert (point.label, point.intensity, point.flops_per_s) == ("gelu", 0.125, 500_000)
    copy = plots.Point.from_row(
        SimpleNamespace(case="copy", bytes=8000, flops=None, milliseconds=2.0)
    )
    assert (copy.intensity, copy.flops_per_s, copy.bytes_per_s) == (0, None, 4e6)


# --- sweep --------------------------------------------------------------------------------------


def test_a_sweep_has_its_own_marker_and_colour_per_line_and_leaves_gaps():
    xs = [256, 512, 1024, 2048]
    lines = {
        "eager": (xs, [1, 2, 3, 4]),
        "ours": (xs, [2, None, 4, 5]),
        "other": (xs, [1, 1, 1, 1]),
    }
    figure = plots.sweep_chart(lines, "columns", "GB/s")
    drawn = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4]
    assert [line.get_marker() for line in drawn[:2]] == ["o", "D"]
    assert len({line.get_marker() for line in drawn}) == 3
    assert to_hex(drawn[0].get_color()) == plots.COLOURS["eager"].lower()
    assert np.isnan(drawn[1].get_ydata()[1]) and drawn[1].get_ydata()[2] == 4
    assert {"eager", "ours", "other", "columns", "GB/s"} <= set(words(figure))


def test_a_sweeps_ticks_are_powers_of_two():
    figure = plots.sweep_chart({"a": ([256, 65536], [1, 2])}, "x", "y")
    figure.canvas.draw()
    shown = words(figure)
    assert "256" in shown and "65536" in shown
    figure = plots.sweep_chart({"a": ([2**10, 2**28], [1, 2])}, "x", "y")
    figure.canvas.draw()
    assert "2¹⁰" in words(figure) and "2²⁸" in words(figure)


def test_a_line_that_a_later_one_covers_can_still_be_seen():
    xs, ys = [64, 128, 256], [1, 2, 4]
    figure = plots.sweep_chart({"ours": (xs, ys), "one": (xs, ys), "four": (xs, ys)}, "x", "y")
    ours, one, four = (line for line in figure.axes[0].lines if len(line.get_xdata()) == 3)
    assert one.get_linewidth() > four.get_linewidth() == ours.get_linewidth()
    assert one.get_markersize() > four.get_markersize() == ours.get_markersize()


def test_lines_that_end_together_are_named_in_their_order_below_the_ceiling():
    xs = [1024, 2048, 4096]
    lines = {"a": (xs[:2], [3, 4.00]), "b": (xs, [3, 4, 4.01]), "c": (xs, [3, 4, 4.02])}
    lines["low"] = (xs, [1, 1, 1])
    figure = plots.sweep_chart(lines, "x", "TB/s", ceilings={"roof": 4.03})
    heights = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    assert sorted(heights, key=heights.get, reverse=True) == ["roof", "a", "b", "c", "low"]
    # Only the ceiling is tied to its name; no thin line runs across the plot.
    ties = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.6]
    assert len(ties) == 1 and min(ties[0].get_xdata()) >= 4096


def test_heights_that_are_far_apart_keep_their_lines():
    assert labels.in_order([1, 9, 5, 5.5], 2) == [1, 9, 5.5, 5]
    assert labels.in_order([3, 2, 1], 2) == [3, 2, 1]
    assert labels.in_order([1, 2, 3], 2) == [3, 2, 1]
    assert labels.in_order([], 2) == []
    assert labels.spread([5, 5], 2, 0, 10) == [6, 4]


def test_a_predicted_line_is_dashed_with_hollow_markers():
    figure = plots.sweep_chart([plots.Series("a", [1, 2], [1, 2], "ours", "predicted")], "x", "y")
    line = figure.axes[0].lines[0]
    assert line.is_dashed() and to_hex(line.get_markerfacecolor()) == plots.PAPER


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "got no series"),
        ({"a": ([1, 2], [None, None])}, "got no value at all"),
        ({"a": ([1, 2], [1])}, "same length"),
        ({"a": ([], [])}, "same length"),
    ],
)
def test_sweeps_of_nothing_are_refused(series, message):
    with pytest.raises(ValueError, match=message):
        plots.sweep_chart(series, "x", "y")


# --- show ---------------------------------------------------------------------------------------


@pytest.fixture
def published(monkeypatch):
    """What was displayed, as (data, metadata) of each output."""
    from IPython.core.displaypub import DisplayPublisher
    from IPython.testing.globalipapp import get_ipython

    seen = []
    if (shell := get_ipython()) is None:
        from IPython.testing.globalipapp import start_ipython

        shell = start_ipython()

    class Recorder(DisplayPublisher):
        def publish(self, data, metadata=None, **kwargs):
            seen.append((data, metadata or {}))

    monkeypatch.setattr(shell, "display_pub", Recorder())
    return seen


def test_show_displays_the_picture_with_alt_text_and_then_the_caption(published):
    plots.show(plots.trips_chart([("a", 4, 4)], 4), "One op makes *two* trips over `x`.")
    (data, metadata), (caption, _) = published
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert metadata["image/png"]["alt"] == "One op makes two trips over x."
    assert metadata["image/png"]["width"] == 720
    assert image.width == 1.5 * 720
    assert caption["text/markdown"] == "One op makes *two* trips over `x`."


def test_show_closes_a_pyplot_figure(published):
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()
    plots.show(plt.figure(), "A figure.")
    assert plt.get_fignums() == before


@pytest.mark.parametrize("caption", ["", "  ", "**"])
def test_show_wants_a_caption(caption):
    with pytest.raises(ValueError, match="empty caption"):
        plots.show(plots.new_figure(), caption)


def test_pictures_are_opaque_paper_and_the_same_every_time():
    def picture():
        return plots.png(plots.roofline(GPU, points=lesson_02_points()))

    first = picture()
    assert first == picture()
    image = np.asarray(Image.open(io.BytesIO(first)).convert("RGBA"))
    assert image[..., 3].min() == 255
    corners = image[[0, 0, -1, -1], [0, -1, 0, -1], :3]
    assert (corners == 255).all()


def test_a_sweep_over_counts_has_a_linear_axis_from_zero():
    line = plots.Series("eager", [1, 2, 3], [1.0, 2.0, 3.0])
    axes = plots.sweep_chart([line], "ops", "ms", log_x=False).axes[0]
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[0] == 0
    assert plots.sweep_chart([line], "ops", "ms").axes[0].get_xscale() == "log"
