"""The rows explorer (lesson 06): rows divided among programs, and what each division costs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from course_utils import gpus, models, plots, records, runtime
from course_utils.explorers.base import Explorer, offer
from course_utils.explorers.chosen_gpu import gpu_dropdown, measured_ceilings, record_of

if TYPE_CHECKING:
    from course_utils.kernels.reductions import Plan

ELEMENTS = 2**28
"""Elements of the matrix, which has as many whole rows as they make; the size that was recorded."""
WIDTHS = (256, 512, 1000, *(2**power for power in range(10, 16)), 50_257, 2**16, 2**17)
ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
DESIGNS = ("plan_for", "one row", "several rows", "read again", "loop")
ROWS = (2, 4, 8, 16)
KEPT = tuple(2**power for power in range(7, 17))
STEPS = tuple(2**power for power in range(7, 15))
WARPS = (1, 2, 4, 8, 16, 32)
MOST_IN_A_TILE = 2**20  # elements; Triton refuses larger tiles
# What the shelf's softmax needs beside its tile: addresses, maximum, sum, masks. A test compares
# what follows from it with what the compiler says.
_OTHER_REGISTERS = 24
_OTHERS = "#9a9a9a"  # recorded designs that were not chosen


class Division(NamedTuple):
    """What a plan makes of a matrix on one GPU."""

    rows: int
    traffic: models.RowTraffic
    lanes: int  # of a row: of all its tiles together
    held: int  # numbers that a program has in registers at a time, as float32
    numbers: int  # of them in each thread
    registers: int  # that a thread would need, about
    room: int  # registers that a thread can have
    resident: int  # programs that one SM holds at once
    resident_warps: int

    @property
    def spills(self) -> bool:
        """Whether the compiler is expected to move numbers out to memory and back."""
        return self.registers > self.room


@functools.cache
def _shelf() -> Any:
    """Return the shelf's reductions; how Triton runs is decided before it is imported."""
    runtime.machine()
    from course_utils.kernels import reductions

    return reductions


def _tile(columns: int) -> int:
    """Return the width of the tile that holds a whole row."""
    return 2 ** (columns - 1).bit_length()


def plan(
    *, columns: int, dtype: str, design: str, rows: int, kept: int, step: int, warps: int
) -> Plan:
    """Return the shelf's ``Plan`` for these choices; "plan_for" leaves them to the shelf."""
    if design == "plan_for":
        return _planned(columns, dtype)
    return _shelf().Plan(rows, kept, warps, again=design == "read again", tile=step)


def division(columns: int, dtype: str, chosen: Plan, gpu: gpus.GPU) -> Division:
    """Return the figures of a plan. ``gpu`` is one of NVIDIA's."""
    rows, itemsize = ELEMENTS // columns, ITEMSIZES[dtype]
    traffic = models.row_traffic(
        rows,
        columns,
        itemsize,
        tile_rows=chosen.rows,
        tile_columns=chosen.columns,
        step=chosen.tile,
        again=chosen.again,
    )
    threads = chosen.warps * gpu.warp_size
    tiles = (chosen.rows * chosen.columns, chosen.tile if traffic.steps else 0)
    numbers = sum(-(-tile // threads) for tile in tiles)
    room = min(gpu.registers_per_sm // threads, gpu.max_registers_per_thread)
    room = min(room, chosen.registers or room)
    needed = numbers + _OTHER_REGISTERS
    occupancy = models.occupancy(gpu, threads, min(needed, room))
    return Division(
        rows,
        traffic,
        chosen.columns + traffic.steps * chosen.tile,
        sum(tiles),
        numbers,
        needed,
        room,
        occupancy.blocks_per_sm,
        occupancy.warps_per_sm,
    )


class Rates(NamedTuple):
    """Recorded bytes/s of softmax in one dtype on one GPU, over columns, and where they are from.

    ways: eager, compiled, ours. plans: other ones that were recorded, as (columns, rate). chosen:
    of the design that is shown, at its width; None if that was not recorded.
    """

    label: str
    gpu: str
    ways: Mapping[str, Mapping[int, float]]
    plans: tuple[tuple[int, float], ...]
    chosen: float | None


def recorded(columns: int, dtype: str, chosen: Plan, gpu: str) -> Rates | None:
    """Return what was recorded of softmax on this GPU; None where there is no record of it."""
    record = record_of(gpu)
    if record is None:
        return None
    softmax = [
        row
        for row in record.all_rows
        if row.benchmark == "reductions"
        and (row.parameters["op"], row.parameters["dtype"]) == ("softmax", dtype)
    ]
    designs = [
        row
        for row in record.all_rows
        if row.benchmark == "softmax_plans" and row.parameters["dtype"] == dtype
    ]
    if not softmax and not designs:
        return None
    ways: dict[str, dict[int, float]] = {}
    for row in softmax:
        ways.setdefault(row.case, {})[row.parameters["columns"]] = _rate(row)
    points = tuple((row.parameters["columns"], _rate(row)) for row in designs)
    same = [row for row in designs if row.parameters["columns"] == columns]
    found = [_rate(row) for row in same if _timed(row) == chosen]
    if chosen == _planned(columns, dtype):
        found.insert(0, ways.get("ours", {}).get(columns))
    mine = next((rate for rate in found if rate), None)
    return Rates(record.label, record.gpu, ways, points, mine)


def _rate(row: records.Row) -> float:
    return row.gb_per_s * 1e9


def _planned(columns: int, dtype: str) -> Plan:
    return _shelf().plan_for("softmax", columns, ITEMSIZES[dtype])


def _timed(row: records.Row) -> Plan:
    """Return the plan that a row of the benchmark "softmax_plans" timed."""
    names = ("rows_per_program", "kept", "warps", "step", "registers")
    rows, kept, warps, step, registers = (row.parameters[name] for name in names)
    return _shelf().Plan(rows, kept, warps, row.case == "again", step, registers or None)


def draw(*, gpu: str, **choice: Any) -> Figure:
    """Draw the matrix with its programs, the figures of the plan, and recorded rates; pure.

    ``choice`` is what ``plan`` takes; ``gpu`` is the key of an NVIDIA GPU of the table.
    """
    card, chosen = gpus.gpu(gpu), plan(**choice)
    columns, dtype = choice["columns"], choice["dtype"]
    found = division(columns, dtype, chosen, card)
    figure = plots.new_figure(height=5.5)
    with plots.style():
        top = plots.add_axes(figure, left=1.3, right=0.15, top=0.4, bottom=3.5)
        _matrix(top, columns, chosen, found)
        words = f"{_count(found.rows, 'row')} of {columns:,} {dtype}: {_programs(chosen, found)}"
        plots.set_title(top, words, 8)
        left = plots.add_axes(figure, left=0.15, right=3.4, top=2.8, bottom=0.1)
        _figures(left, columns, dtype, chosen, found, card)
        right = plots.add_axes(figure, left=4.75, right=0.2, top=3.15, bottom=0.95)
        _rates(right, columns, recorded(columns, dtype, chosen, gpu), dtype, card)
    return figure


def _matrix(axes: Axes, columns: int, chosen: Plan, found: Division) -> None:
    """Draw a band for each of some programs: its rows, and what lies beyond them."""
    axes.spines[:].set_visible(False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    last = found.traffic.programs - 1
    shown = [0, 1, None, last] if last > 2 else list(range(last + 1))
    axes.set_xlim(0, found.lanes)
    axes.set_ylim(len(shown), 0)
    left = offset_copy(axes.transData, axes.figure, x=-6, units="points")
    for place, program in enumerate(shown):
        middle = place + 0.44
        if program is None:
            axes.text(found.lanes / 2, middle, "· · ·", ha="center", va="center_baseline", size=14)
            continue
        owned = min(chosen.rows, found.rows - program * chosen.rows)
        _band(axes, place, owned, columns, chosen, found)
        words = f"program {program:,}"
        axes.text(0, middle, words, transform=left, ha="right", va="center_baseline", size=9)
    below = offset_copy(axes.transData, axes.figure, y=-1, units="points")
    look = {"transform": below, "va": "top", "size": 9}
    axes.text(0, len(shown), "column 0", ha="left", **look)
    axes.text(columns, len(shown), f"{columns:,}", ha="right", **look)
    _key(axes, columns, chosen, found)


_READ_ONCE = {"facecolor": plots.COLOURS["registers"], "edgecolor": plots.INK}
_READ_TWICE = {
    "facecolor": plots.COLOURS["l2"],
    "edgecolor": plots.INK,
    "hatch": plots.HATCHES["l2"],
}
_MASKED = {"facecolor": plots.PAPER, "edgecolor": plots.MUTED, "hatch": "xxxx"}


def _band(axes: Axes, place: int, owned: int, columns: int, chosen: Plan, found: Division) -> None:
    """Draw one program's tiles, ``owned`` of whose rows are in the matrix."""
    high = 0.88
    inside = high * owned / chosen.rows
    kept = min(chosen.columns, columns)
    kept = max(kept, round(0.006 * found.lanes))  # however few, they have to be seen

    def box(x: float, y: float, width: float, height: float, **look: Any) -> None:
        axes.add_patch(Rectangle((x, place + y), width, height, clip_on=False, **look))

    flat = {"linewidth": 0}
    box(0, 0, kept, inside, **(_READ_TWICE if chosen.again else _READ_ONCE), **flat)
    if kept < columns:
        box(kept, 0, columns - kept, inside, **_READ_TWICE, **flat)
    if columns < found.lanes:
        box(columns, 0, found.lanes - columns, inside, **_MASKED, **flat)
    if inside < high:
        box(0, inside, found.lanes, high - inside, **_MASKED, **flat)
    line = {"color": plots.INK, "linewidth": 0.35}
    heights = [place + high * row / chosen.rows for row in range(1, owned)]
    axes.hlines(heights, 0, columns, **line)
    # Steps too narrow to be told apart are not.
    if found.traffic.steps and axes.bbox.width * chosen.tile / found.lanes >= 4:
        edges = [chosen.columns + step * chosen.tile for step in range(found.traffic.steps)]
        axes.vlines(edges, place, place + high, **line)
    box(0, 0, found.lanes, high, facecolor="none", edgecolor=plots.INK, linewidth=1.1)


def _key(axes: Axes, columns: int, chosen: Plan, found: Division) -> None:
    """Say below the matrix what the areas mean."""
    handles = []
    if not chosen.again:
        kept = f"kept in registers: {min(chosen.columns, columns):,} columns"
        handles.append(Patch(**_READ_ONCE, label=kept))
    if chosen.again:
        handles.append(Patch(**_READ_TWICE, label=f"read twice: {columns:,} columns"))
    elif found.traffic.steps:
        steps = _count(found.traffic.steps, "step")
        rest = f"read twice: {columns - chosen.columns:,}, {steps} of {chosen.tile:,}"
        handles.append(Patch(**_READ_TWICE, label=rest))
    if found.traffic.masked_lanes_read:
        handles.append(Patch(**_MASKED, label="masked lanes"))
    inches = axes.bbox.height / axes.figure.dpi
    axes.legend(
        handles=handles,
        ncol=3,
        loc="upper left",
        bbox_to_anchor=(-1.2 / (axes.bbox.width / axes.figure.dpi), -0.27 / inches),
        borderaxespad=0,
        handlelength=1.6,
        columnspacing=1.4,
    )


def _figures(
    axes: Axes, columns: int, dtype: str, chosen: Plan, found: Division, card: gpus.GPU
) -> None:
    """Write the plan's figures, one a line."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    size = found.rows * columns * ITEMSIZES[dtype]
    traffic = found.traffic
    read, written = traffic.bytes_read / size, traffic.bytes_written / size
    under_way = min(found.resident * card.sms * chosen.rows, found.rows)
    nbytes = plots.quantity(under_way * columns * ITEMSIZES[dtype], "B")
    lines = [
        ("masked lanes", _masked(columns, chosen, found)),
        (
            "trips",
            f"{read + written:.2f} = {read:.2f} read + {written:.2f} written,\n"
            f"{traffic.compulsory_bytes / size:.2f} of distinct bytes",
        ),
        (
            "in registers",
            f"{_kib(found.held)} a program of {_count(chosen.warps, 'warp')},\n"
            f"{_count(found.numbers, 'number')} a thread",
        ),
        ("registers", _registers(found)),
        (
            "an SM holds",
            f"at most {_count(found.resident, 'program')}, "
            f"{found.resident_warps} of {card.max_warps_per_sm} warps",
        ),
        (
            "under way",
            f"{_count(under_way, 'row')}, {nbytes};\n"
            f"the L2 cache has {plots.quantity(card.l2_bytes, 'B')}",
        ),
    ]
    point = 1 / 72 / (axes.bbox.height / axes.figure.dpi)  # in parts of the axes
    y = 1 - 9 * point
    for name, words in lines:
        axes.text(0, y, name, size=9, color=plots.MUTED)
        for part in words.split("\n"):
            axes.text(0.27, y, part, size=9)
            y -= 13 * point
        y -= 7 * point


def _rates(axes: Axes, columns: int, rates: Rates | None, dtype: str, card: gpus.GPU) -> None:
    """Draw recorded rates over columns, and ring that of the design that is shown."""
    title = offset_copy(axes.transAxes, axes.figure, x=-28, y=22, units="points")
    under = offset_copy(axes.transAxes, axes.figure, x=-28, y=7, units="points")
    if rates is None:
        axes.set_axis_off()
        axes.text(0, 1, "no softmax was recorded", transform=title, size=10.5)
        axes.text(0, 1, f"of {dtype}, on the {card.name}", transform=under, size=9)
        return
    axes.text(0, 1, f"softmax recorded on {rates.gpu}, TB/s", transform=title, size=10.5)
    axes.text(0, 1, _this_one(rates), transform=under, size=9)
    ceiling = measured_ceilings(card.key)
    copy = ceiling.bandwidth if ceiling else None
    seen = [rate for line in rates.ways.values() for rate in line.values()]
    seen += [rate for _, rate in rates.plans] + ([copy] if copy else [])
    axes.set_xscale("log", base=2)
    axes.set_xlim(WIDTHS[0] / 1.4, WIDTHS[-1] * 1.4)
    axes.set_ylim(0, 1.12 * max(seen))
    axes.set_xlabel("columns", size=9)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(*axes.get_ylim())
    heights = {y: f"{y / 1e12:g}" for y in ticks if y <= axes.get_ylim()[1]}
    plots.light_ticks(axes, {width: f"{width}" for width in (256, 2**11, 2**14, 2**17)}, heights)
    for way, line in rates.ways.items():
        look = {"color": plots.COLOURS[way], "marker": plots.MARKERS[way], "markersize": 4.5}
        axes.plot(*zip(*sorted(line.items()), strict=True), label=way, clip_on=False, **look)
    if rates.plans:
        look = {"color": _OTHERS, "marker": "x", "markersize": 5, "linestyle": "none"}
        axes.plot(*zip(*rates.plans, strict=True), label="other designs", clip_on=False, **look)
    if rates.chosen:
        ring = {"marker": "o", "markersize": 12, "color": plots.INK, "markerfacecolor": "none"}
        axes.plot([columns], [rates.chosen], zorder=4, clip_on=False, **ring)
    if copy:
        axes.axhline(copy, color=plots.INK, linewidth=1.1, linestyle=(0, (1, 1.5)), zorder=2)
        upper = offset_copy(axes.get_yaxis_transform(), axes.figure, y=2, units="points")
        axes.text(0.99, copy, "copy", transform=upper, va="bottom", ha="right", size=9)
    inches = axes.bbox.height / axes.figure.dpi
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.5 / inches), "borderaxespad": 0}
    axes.legend(ncol=2, labelspacing=0.25, handlelength=1.5, columnspacing=1.4, **place)


def _this_one(rates: Rates) -> str:
    if rates.chosen is None:
        return "this design at this width: not recorded"
    return f"ringed: this design, {plots.quantity(rates.chosen, 'B/s')}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _kib(numbers: int) -> str:
    return f"{4 * numbers / 1024:g} KiB"


def _programs(chosen: Plan, found: Division) -> str:
    return f"{_count(found.traffic.programs, 'program')} of {_count(chosen.rows, 'row')} each"


def _masked(columns: int, chosen: Plan, found: Division) -> str:
    """Say how many lanes a mask switches off at the store, where each stands once."""
    masked = found.traffic.masked_lanes_written
    if not masked:
        return "none"
    share = 100 * masked / (masked + found.rows * columns)
    parts = []
    if columns < found.lanes:
        parts.append(f"{found.lanes - columns:,} of {found.lanes:,} in a row")
    if missing := found.traffic.programs * chosen.rows - found.rows:
        parts.append(f"{_count(missing, 'row')} of the last program")
    return ",\n".join(parts) + f" ({share:.2g} % of all lanes)"


def _registers(found: Division) -> str:
    words = f"about {found.registers:,} a thread; room for {found.room}"
    return f"{words}: it spills" if found.spills else words


def describe(*, gpu: str, **choice: Any) -> str:
    """Say in words what ``draw`` shows."""
    card, chosen = gpus.gpu(gpu), plan(**choice)
    columns, dtype = choice["columns"], choice["dtype"]
    found = division(columns, dtype, chosen, card)
    size = found.rows * columns * ITEMSIZES[dtype]
    trips = (found.traffic.bytes_read + found.traffic.bytes_written) / size
    how = "keeps its tile in registers"
    if chosen.again:
        how = "reads its tile twice"
    elif found.traffic.steps:
        how = (
            f"keeps {chosen.columns:,} columns in registers and reads the rest twice, in "
            f"{_count(found.traffic.steps, 'step')} of {chosen.tile:,}"
        )
    distinct = found.traffic.compulsory_bytes / size
    words = (
        f"{_count(found.rows, 'row')} of {columns:,} {dtype}: {_programs(chosen, found)}, with "
        f"{_count(chosen.warps, 'warp')}; a program {how}. {trips:.2f} trips are requested, "
        f"{distinct:.2f} are of distinct bytes. "
        f"Masked lanes: {_masked(columns, chosen, found)}. "
        f"Registers: {_registers(found)}. "
        f"One SM of the {card.name} holds at most {_count(found.resident, 'program')}."
    ).replace("\n", " ")
    rates = recorded(columns, dtype, chosen, gpu)
    if rates is None or rates.chosen is None:
        return f"{words} Nothing was recorded of this design at this width on the {card.name}."
    return f"{words} Distinct bytes moved at {plots.quantity(rates.chosen, 'B/s')}, {rates.label}."


def as_the_design_allows(controls: Mapping[str, Any]) -> None:
    """Offer only what the chosen design leaves to choose; what it fixes is shown as it is."""
    columns, design = controls["columns"].value, controls["design"].value
    whole = _tile(columns)
    rows, kept, steps, warps = (1,), (whole,), (0,), WARPS
    if design == "plan_for":
        planned = _planned(columns, controls["dtype"].value)
        rows, kept, steps, warps = (
            (planned.rows,),
            (planned.columns,),
            (planned.tile,),
            (planned.warps,),
        )
    elif design == "several rows":
        rows = tuple(rows for rows in ROWS if rows * whole <= MOST_IN_A_TILE)
    elif design == "loop":
        kept = tuple(kept for kept in KEPT if kept < columns)
        steps = tuple(step for step in STEPS if step < columns)
    offer(controls["rows"], rows, instead=(4,))
    offer(controls["kept"], _labelled(kept), instead=(32768, kept[-1]))
    offer(controls["step"], _labelled(steps), instead=(8192, steps[-1]))
    offer(controls["warps"], warps)


def _labelled(sizes: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(f"{size:,}" if size else "no loop", size) for size in sizes]


def rows_explorer() -> Explorer:
    """Make the explorer of lesson 06, with a loop over rows of 65,536 numbers."""
    controls = {
        "columns": widgets.SelectionSlider(
            options=_labelled(WIDTHS), value=2**16, description="columns"
        ),
        "dtype": widgets.ToggleButtons(options=list(ITEMSIZES), description="dtype"),
        "design": widgets.ToggleButtons(options=DESIGNS, value="loop", description="design"),
        "rows": widgets.Dropdown(options=[1], description="rows a program"),
        "kept": widgets.Dropdown(
            options=_labelled(KEPT), value=2**15, description="columns in registers"
        ),
        "step": widgets.Dropdown(
            options=_labelled(STEPS), value=2**13, description="columns a step"
        ),
        "warps": widgets.Dropdown(options=WARPS, value=32, description="num_warps"),
        "gpu": gpu_dropdown(),
    }
    # How other makers' GPUs hand out registers, the course has no formula for.
    names = [(name, key) for name, key in controls["gpu"].options if _is_nvidia(key)]
    offer(controls["gpu"], names)
    controls["columns"].layout.width = "330px"
    controls["dtype"].style.button_width = "76px"
    controls["design"].style.button_width = "108px"
    for name, width in {"rows": 160, "kept": 230, "step": 190, "warps": 140}.items():
        controls[name].layout.width = f"{width}px"
    return Explorer(
        draw,
        controls,
        caption=(
            "Rows of a softmax over 2²⁸ numbers, divided among programs: a tile holds several "
            "short rows or one long one, and of a row that is too long it keeps a part, while the "
            "rest is read twice; masked lanes are cross-hatched."
        ),
        describe=describe,
        rules=[as_the_design_allows],
    )


def _is_nvidia(key: str) -> bool:
    return gpus.gpu(key).vendor == "NVIDIA"
