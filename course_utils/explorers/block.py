"""The BLOCK explorer (lesson 04): who owns which elements, what is masked, how fast it was."""

from __future__ import annotations

from typing import NamedTuple

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from course_utils import gpus, plots
from course_utils.explorers.base import Explorer
from course_utils.explorers.chosen_gpu import gpu_dropdown, measured_ceilings, record_of

BLOCKS = tuple(2**exponent for exponent in range(6, 15))
WARPS = (1, 2, 4, 8, 16)
SIZES = (1000, 4097, 100_003, 2**20 + 1, 2**28)
RECORDED_SIZE = 2**28  # elements of x in the sweep that was recorded
_SLOTS = 5  # programs drawn at most
_OTHERS = "#bdbdbd"  # the lines that were not chosen


class Launch(NamedTuple):
    """What a choice of BLOCK and num_warps makes of n elements on one GPU."""

    programs: int
    masked: int  # lanes of the last program beyond the vector's end
    threads: int  # of one program
    resident: int  # programs that one SM can hold at once, as far as threads and slots allow
    limit: str  # what stops it from holding more
    waves: float
    occupancy: float  # share of an SM's threads that are taken, at most


def launch(n: int, block: int, warps: int, gpu: gpus.GPU) -> Launch:
    """Return the figures of one launch; ``n`` elements, ``block`` of them a program.

    How many programs fit onto an SM at most: as many as its threads, its slots for programs and its
    registers allow, where a program needs a register for each element of its float32 tile. What
    else it keeps in registers only the compiler knows, so fewer may fit.
    """
    programs = -(-n // block)
    threads = warps * gpu.warp_size
    room = {
        "threads": gpu.max_threads_per_sm // threads,
        "slots for programs": gpu.max_blocks_per_sm,
        "registers": gpu.registers_per_sm // max(block, threads),
    }
    limit = min(room, key=room.__getitem__)  # the first of equals
    resident = room[limit]
    return Launch(
        programs,
        programs * block - n,
        threads,
        resident,
        limit,
        programs / (resident * gpu.sms),
        resident * threads / gpu.max_threads_per_sm,
    )


def recorded_rates(gpu: str) -> dict[int, dict[int, float]]:
    """Return num_warps -> BLOCK -> bytes/s of the recorded sweep on this GPU; empty if none."""
    record = record_of(gpu)
    rates: dict[int, dict[int, float]] = {}
    for row in record.all_rows if record else ():
        if row.benchmark == "block_sweep" and row.parameters["dtype"] == "float32" and row.bytes:
            warps, block = row.parameters["num_warps"], row.parameters["block"]
            rates.setdefault(warps, {})[block] = row.bytes / row.milliseconds * 1e3
    return rates


def draw(*, block: int, warps: int, size: int, gpu: str) -> Figure:
    """Draw the programs over the vector, the launch's figures, and the recorded sweep; pure.

    ``size`` in elements of x, ``gpu`` a key of the GPU table.
    """
    card = gpus.gpu(gpu)
    found = launch(size, block, warps, card)
    figure = plots.new_figure(height=4.6)
    with plots.style():
        top = plots.add_axes(figure, left=0.15, right=0.15, top=0.75, bottom=2.95)
        _programs(top, size, block, found)
        words = f"BLOCK = {block:,}: {_count(found.programs, 'program')} for {_elements(size)}"
        plots.set_title(top, words, 32)
        left = plots.add_axes(figure, left=0.15, right=3.75, top=2.25, bottom=0.1)
        _figures(left, size, block, found, card)
        right = plots.add_axes(figure, left=4.55, right=0.2, top=2.55, bottom=0.62)
        _rates(right, block, warps, gpu)
    return figure


def _shown(programs: int) -> list[int | None]:
    """Return which programs are drawn, None for a gap: the first ones and the last ones."""
    if programs <= _SLOTS:
        return list(range(programs))
    return [0, 1, None, programs - 2, programs - 1]


def _programs(axes: Axes, size: int, block: int, found: Launch) -> None:
    """Draw one box per program, with the elements that it owns, and what its mask turns off."""
    axes.spines[:].set_visible(False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    axes.set_xlim(0, _SLOTS)
    axes.set_ylim(0, 1)
    above = offset_copy(axes.transData, axes.figure, y=5, units="points")
    below = offset_copy(axes.transData, axes.figure, y=-5, units="points")
    for slot, program in enumerate(_shown(found.programs)):
        middle = slot + 0.48
        if program is None:
            axes.text(middle, 0.5, "· · ·", ha="center", va="center_baseline", size=14)
            continue
        first = program * block
        owned = min(block, size - first)
        share = max(0.96 * owned / block, 0.015)  # a single element has to be seen
        axes.add_patch(Rectangle((slot, 0), share, 1, facecolor=plots.COLOURS["hbm"], linewidth=0))
        look = {"facecolor": plots.PAPER, "edgecolor": plots.MUTED, "linewidth": 0}
        axes.add_patch(Rectangle((slot + share, 0), 0.96 - share, 1, hatch="////", **look))
        frame = {"facecolor": "none", "edgecolor": plots.INK, "linewidth": 1.1}
        axes.add_patch(Rectangle((slot, 0), 0.96, 1, **frame))
        words = f"program {program:,}"
        axes.text(middle, 1, words, transform=above, ha="center", va="bottom", size=9)
        last = first + owned - 1
        words = f"{first:,} to {last:,}" if last > first else f"{first:,}"
        if len(words) > 21:  # wider than the box
            words = words.replace(" to", "\nto")
        axes.text(middle, 0, words, transform=below, ha="center", va="top", size=9)


def _figures(axes: Axes, size: int, block: int, found: Launch, card: gpus.GPU) -> None:
    """Write the launch's figures, one a line."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    at_once = found.resident * card.sms
    lines = [
        ("masked lanes", _masked(size, block, found)),
        ("threads a program", f"{found.threads:,}, {_per_thread(block, found)}"),
        (
            "programs at once",
            f"{at_once:,} at most: {_count(card.sms, 'SM')}\nof {found.resident} each, "
            f"limited by {found.limit}",
        ),
        ("occupancy", f"at most {_percent(found.occupancy)} of an SM's threads"),
        ("waves", _waves(found)),
    ]
    line = 16 / 72 / (axes.bbox.height / axes.figure.dpi)  # 16 points, in parts of the axes
    y = 1.0
    for name, words in lines:
        axes.text(0, y, name, va="top", size=9, color=plots.MUTED)
        axes.text(0.36, y, words, va="top", size=9, linespacing=1.3)
        y -= line * (1.35 + words.count("\n"))


def _rates(axes: Axes, block: int, warps: int, gpu: str) -> None:
    """Draw the recorded GB/s over BLOCK, the chosen num_warps in front and the point ringed."""
    rates = recorded_rates(gpu)
    plots.set_title(axes, f"recorded: chain, {plots.power_of_two(RECORDED_SIZE)} floats", 20)
    axes.set_xscale("log", base=2)
    axes.set_xlim(BLOCKS[0] / 1.3, BLOCKS[-1] * 1.3)
    axes.set_xlabel("BLOCK", size=9)
    ceiling = measured_ceilings(gpu)
    copy = ceiling.bandwidth if ceiling else None
    highest = max([rate for line in rates.values() for rate in line.values()] + [copy or 0.0])
    axes.set_ylim(0, 1.25 * highest or 1)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(*axes.get_ylim()) if rates else []
    heights = {y: f"{y / 1e12:g}" for y in ticks if y <= axes.get_ylim()[1]}
    plots.light_ticks(axes, {b: f"{b}" for b in BLOCKS[::2]}, heights)
    if not rates:
        look = {"ha": "center", "va": "center", "size": 9, "color": plots.MUTED}
        axes.text(0.5, 0.5, "no sweep was recorded on this GPU", transform=axes.transAxes, **look)
        return
    above = offset_copy(axes.transAxes, axes.figure, y=5, units="points")
    axes.text(0, 1, f"TB/s, num_warps = {warps}; grey: the others", transform=above, size=9)
    for other, line in sorted(rates.items()):
        if other != warps:
            axes.plot(*zip(*sorted(line.items()), strict=True), color=_OTHERS, linewidth=1.4)
    mine = rates.get(warps, {})
    if mine:
        look = {"color": plots.COLOURS["ours"], "marker": plots.MARKERS["ours"], "markersize": 4.5}
        axes.plot(*zip(*sorted(mine.items()), strict=True), zorder=3, clip_on=False, **look)
    if block in mine:
        ring = {"marker": "o", "markersize": 11, "color": plots.INK, "markerfacecolor": "none"}
        axes.plot([block], [mine[block]], zorder=4, clip_on=False, **ring)
    if copy:
        axes.axhline(copy, color=plots.INK, linewidth=1.1, linestyle=(0, (1, 1.5)), zorder=2)
        upper = offset_copy(axes.get_yaxis_transform(), axes.figure, y=2, units="points")
        axes.text(0.01, copy, "copy", transform=upper, va="bottom", size=9)


def _elements(size: int) -> str:
    power = size.bit_length() - 1
    return f"{plots.power_of_two(size) if size == 2**power else f'{size:,}'} elements"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _per_thread(block: int, found: Launch) -> str:
    if block >= found.threads:
        return f"{_count(block // found.threads, 'element')} each"
    return f"{found.threads // block} for each element"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _masked(size: int, block: int, found: Launch) -> str:
    if not found.masked:
        return "none"
    share = found.masked / (size + found.masked)
    return f"{found.masked:,} of {block:,} in the last program\n({_percent(share)} of all lanes)"


def _waves(found: Launch) -> str:
    if found.waves <= 1:
        return f"1, filling {_percent(found.waves)} of the GPU"
    return f"{found.waves:,.0f}" if found.waves >= 10 else plots.significant(found.waves)


def describe(*, block: int, warps: int, size: int, gpu: str) -> str:
    """Say in words what ``draw`` shows."""
    card = gpus.gpu(gpu)
    found = launch(size, block, warps, card)
    words = (
        f"{_elements(size)} in blocks of {block:,}: {_count(found.programs, 'program')}, "
        f"{_count(found.masked, 'masked lane')}. {_count(found.threads, 'thread')} a program, "
        f"{_per_thread(block, found)}. One {card.name} holds at most "
        f"{_count(found.resident * card.sms, 'program')} at once, limited by {found.limit}. "
        f"Waves: {_waves(found)}."
    )
    rate = recorded_rates(gpu).get(warps, {}).get(block)
    if rate is not None:
        record = record_of(gpu)
        assert record is not None
        words += (
            f" The chain over {plots.power_of_two(RECORDED_SIZE)} floats moved "
            f"{plots.quantity(rate, 'B/s')} with these, {record.label}."
        )
    return words


def block_explorer() -> Explorer:
    """Make the explorer of lesson 04, with 4097 elements in blocks of 1024."""
    controls = {
        "block": widgets.SelectionSlider(
            options=[(f"{block:,}", block) for block in BLOCKS], value=1024, description="BLOCK"
        ),
        "warps": widgets.SelectionSlider(options=list(WARPS), value=4, description="num_warps"),
        "size": widgets.Dropdown(
            options=[(_elements(size), size) for size in SIZES], value=4097, description="x has"
        ),
        "gpu": gpu_dropdown(),
    }
    controls["block"].layout.width = "330px"
    controls["warps"].layout.width = "300px"
    controls["size"].layout.width = "200px"
    return Explorer(
        draw,
        controls,
        caption=(
            "Each program owns BLOCK neighbouring elements; the last one masks off the lanes that "
            "stand beyond the end (hatched)."
        ),
        describe=describe,
    )
