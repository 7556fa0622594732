"""The roofline explorer (lesson 02): a GPU, a dtype and an intensity give what is attainable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from course_utils import gpus, models, plots
from course_utils.explorers.base import Explorer, offer
from course_utils.explorers.chosen_gpu import gpu_dropdown, measured_ceilings
from course_utils.records import REFERENCE

INTENSITIES = tuple(2.0**exponent for exponent in range(-4, 13))  # FLOP/byte
# The same axes for every GPU and dtype, so that a faster card is seen to be higher.
_X_LIMITS = (2.0**-5, 2.0**13)
_Y_LIMITS = (2e9, 9e15)


def draw(*, gpu: str, dtype: str, intensity: float) -> Figure:
    """Draw the roofline with a kernel of this intensity (FLOP/byte) on it; pure."""
    card = gpus.gpu(gpu)
    peak = card.peak[dtype]
    reachable = models.attainable(intensity, peak, card.bandwidth)
    rate = plots.quantity(reachable, "FLOP/s")
    mine = plots.COLOURS["ours"]
    figure = plots.new_figure(height=4.3)
    with plots.style():
        axes = plots.add_axes(figure, left=0.75, right=plots.ROOF_MARGIN, top=0.65, bottom=0.6)
        guide = ([intensity, intensity, _X_LIMITS[0]], [_Y_LIMITS[0], reachable, reachable])
        plots.roofline_axes(
            axes,
            card,
            (dtype,),
            [plots.Point(f"at most {rate}", intensity, None, "predicted", mine)],
            measured_ceilings(gpu),
            x_limits=_X_LIMITS,
            y_limits=_Y_LIMITS,
            avoid=[guide],
        )
        axes.plot(*guide, color=mine, linewidth=0.9, linestyle=":", zorder=2)
        words = f"{_number(intensity)} FLOP/byte in {dtype} on one {card.name}: at most {rate}"
        plots.set_title(axes, words, 27)
    return figure


def describe(*, gpu: str, dtype: str, intensity: float) -> str:
    """Say in words what ``draw`` shows."""
    card = gpus.gpu(gpu)
    peak, bandwidth = card.peak[dtype], card.bandwidth
    reachable = models.attainable(intensity, peak, bandwidth)
    ridge = models.ridge(peak, bandwidth)
    start = f"At {_number(intensity)} FLOP/byte in {dtype}, a kernel on one {card.name} is "
    lacking = _lacking(card)
    if models.bound(intensity, peak, bandwidth) == "memory":
        return (
            start + f"bandwidth-bound: at most {plots.quantity(reachable, 'FLOP/s')}, "
            f"{_percent(reachable / peak)} of the peak. The ridge, {plots.significant(ridge)} "
            f"FLOP/byte, is {plots.significant(ridge / intensity)} times as far to the right."
            + lacking
        )
    return (
        start + f"compute-bound: at most {plots.quantity(reachable, 'FLOP/s')}, the peak, with "
        f"{_percent(ridge / intensity)} of the bandwidth. The ridge is at "
        f"{plots.significant(ridge)} FLOP/byte." + lacking
    )


def _lacking(card: gpus.GPU) -> str:
    """Say so where the GPU has no bf16, since choosing it then changes the dtype."""
    if "bf16" in card.peak:
        return ""
    return f" The {card.name} has no hardware for bf16; its 16-bit type is fp16."


def _number(intensity: float) -> str:
    return f"1/{round(1 / intensity)}" if intensity < 1 else f"{intensity:g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def only_dtypes_it_has(controls: Mapping[str, Any]) -> None:
    """Offer only the dtypes for which the chosen GPU has hardware; 16 bits stay 16 bits."""
    dtype = controls["dtype"]
    instead = ("bf16", "fp16") if dtype.value in ("bf16", "fp8") else ()
    offer(dtype, list(gpus.gpu(controls["gpu"].value).peak), instead)


def roofline_explorer() -> Explorer:
    """Make the explorer of lesson 02."""
    steps = [(_number(intensity), intensity) for intensity in INTENSITIES]
    controls = {
        "gpu": gpu_dropdown(),
        "dtype": widgets.ToggleButtons(
            options=list(gpus.gpu(REFERENCE).peak), value="bf16", description="dtype"
        ),
        "intensity": widgets.SelectionSlider(
            options=steps, value=1.0, description="intensity, FLOP/byte"
        ),
    }
    controls["dtype"].style.button_width = "56px"
    controls["intensity"].layout.width = "500px"
    return Explorer(
        draw,
        controls,
        caption=(
            "Left of the ridge the memory sets the limit and more intensity helps; right of it "
            "only the arithmetic counts."
        ),
        describe=describe,
        rules=[only_dtypes_it_has],
    )
