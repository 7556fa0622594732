"""README's picture: the chain's trips, counted, beside its place on the roofline, timed.

PNG files of the same figure differ from one version of matplotlib to the next, so freshness is not
decided by bytes: the file carries a fingerprint of all that goes into the picture.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import course_utils
from course_utils import gpus, records
from course_utils.authoring import benchmarks
from course_utils.authoring.notebooks import ROOT

PICTURE = Path("notebooks", "images", "chain_on_the_roofline.png")
FINGERPRINT = "Inputs"
"""The PNG's text entry that holds the fingerprint."""

CASES = ("eager", "compiled")
N, DTYPE = benchmarks.LARGE, "float32"
RECORD = records.REFERENCE

# Inches. As wide as the text column in which GitHub shows a README.
SIZE = (10.2, 4.45)
MIDDLE = 4.6
LIMITS = {"x_limits": (2**-5, 2**11), "y_limits": (5e10, 1.2e14)}


@dataclass(frozen=True)
class Way:
    """One way of running the chain: what it moves, and how long it took.

    Attributes:
        case: "eager" or "compiled", as in the record.
        launches: name, bytes read and bytes written of each launch, counted.
        flops: counted FLOPs.
        milliseconds: median time on the record's GPU.
    """

    case: str
    launches: tuple[tuple[str, int, int], ...]
    flops: int
    milliseconds: float

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(read + written for _, read, written in self.launches)

    @property
    def trips(self) -> float:
        """Passes over x through memory."""
        return self.bytes / (N * benchmarks.ITEMSIZE[DTYPE])

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes

    @property
    def time(self) -> str:
        """The time in words, three significant digits."""
        from course_utils import plots

        return f"{plots.significant(self.milliseconds)} ms"


@dataclass(frozen=True)
class Inputs:
    """All that the picture shows.

    Attributes:
        label: which GPU, versions and day the times are from.
        bandwidth, peak: the GPU's datasheet, bytes/s and FLOP/s (fp32).
        copy_bandwidth: what a copy reached on that GPU, bytes/s.
        ways: the chain, eager and compiled.
    """

    label: str
    bandwidth: float
    peak: float
    copy_bandwidth: float
    ways: tuple[Way, ...]

    @property
    def fingerprint(self) -> str:
        """A short hash of the data and of the code in this file that draws them."""
        code = "".join(inspect.getsource(function) for function in (draw, _trips, _roofline))
        text = json.dumps([asdict(self), SIZE, MIDDLE, LIMITS, code], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def caption(self) -> str:
        """One sentence that says what to see, and where the times are from."""
        eager, compiled = self.ways
        return (
            f"Five element-wise lines of PyTorch make {eager.trips:.0f} trips over x; "
            f"fused into one kernel they make {compiled.trips:.0f}, and take {compiled.time} in "
            f"place of {eager.time} (x has 2²⁸ float32 numbers; {self.label})."
        )

    @property
    def alt(self) -> str:
        """The picture in words, for those who do not see it."""
        eager, compiled = self.ways
        gpu = gpus.GPUS[RECORD]
        return (
            "Two charts. Left: bytes counted for each launch, in trips over x: five ops with one "
            f"read and one write each, {eager.trips:.0f} trips together, and below them the one "
            f"compiled kernel with {compiled.trips:.0f} trips. Right: the same two programs on the "
            f"roofline of one {gpu.name}: eager at {eager.intensity:g} FLOP per byte and "
            f"{eager.time}, compiled at {compiled.intensity:g} FLOP per byte and {compiled.time}; "
            "both lie just below the slope of the memory bandwidth, far left of the ridge."
        )


@functools.cache
def inputs() -> Inputs:
    """Count the chain's traffic, and look up its times in the reference record.

    Raises:
        records.RecordError: the record lacks the chain or the copy.
    """
    if "triton" not in sys.modules:
        # Counting imports triton. Whoever runs kernels later in this process needs it set up.
        course_utils.machine()
    record, gpu = records.load(RECORD), gpus.GPUS[RECORD]
    return Inputs(
        record.label,
        gpu.bandwidth,
        gpu.peak["fp32"],
        # The largest copy, as in lesson 02: the ceiling that a program really gets.
        max(record.rows("copy", "torch"), key=lambda row: row.bytes).gb_per_s * 1e9,
        tuple(_way(record, case) for case in CASES),
    )


def _way(record: records.Record, case: str) -> Way:
    row = record.row("chain", case, n=N, dtype=DTYPE)
    (cell,) = (
        cell
        for cell in benchmarks.chain()
        if cell.case == case and cell.parameters == row.parameters
    )
    launches = _launches(cell) if case == "eager" else (_one_kernel(cell),)
    return Way(case, launches, cell.count().flops, row.milliseconds)


def _launches(cell: benchmarks.Cell) -> tuple[tuple[str, int, int], ...]:
    """What the meter counts for each op; on `meta` tensors, which compute nothing."""
    import torch

    from course_utils import Meter

    (given,) = cell.inputs
    with Meter() as meter:
        cell.function(torch.empty(given.shape, dtype=getattr(torch, given.dtype), device="meta"))
    return tuple(
        (launch.name, launch.traffic.bytes_read, launch.traffic.bytes_written)
        for launch in meter.launches
    )


def _one_kernel(cell: benchmarks.Cell) -> tuple[str, int, int]:
    count = cell.count()
    return "one kernel", count.read, count.written


def draw(shown: Inputs):
    """Draw the picture; returns a matplotlib Figure."""
    from course_utils import plots

    figure = plots.new_figure(*SIZE)
    with plots.style():
        _trips(figure, shown)
        _roofline(figure, shown)
    return figure


def _trips(figure, shown: Inputs) -> None:
    """The left half: one trips chart above the other, to one scale."""
    from course_utils import plots

    eager, compiled = shown.ways
    row = 0.335
    heights = [row * (len(way.launches) + 1) for way in (eager, compiled)]
    top = 0.78
    for way, height, title in (
        (eager, heights[0], f"Counted: five ops, {eager.trips:.0f} trips over x"),
        (compiled, heights[1], f"Fused into one kernel: {compiled.trips:.0f} trips over x"),
    ):
        bottom = SIZE[1] - top - height
        margins = {"left": 0.85, "right": SIZE[0] - MIDDLE + 0.25, "top": top, "bottom": bottom}
        axes = plots.add_axes(figure, **margins)
        plots.trips_axes(axes, way.launches, N * benchmarks.ITEMSIZE[DTYPE])
        plots.set_title(axes, title, 34)
        top += height + 0.95


def _roofline(figure, shown: Inputs) -> None:
    """The right half: both ways of running the chain under the GPU's roof."""
    from course_utils import plots

    axes = plots.add_axes(
        figure, left=MIDDLE + 0.75, right=plots.ROOF_MARGIN, top=0.78, bottom=0.55
    )
    points = [
        plots.Point(
            f"{way.case}, {way.time}",
            way.intensity,
            way.flops / (way.milliseconds / 1e3),
            colour=way.case,
        )
        for way in shown.ways
    ]
    gpu = gpus.GPUS[RECORD]
    measured = plots.Ceilings(bandwidth=shown.copy_bandwidth)
    layout = plots.roofline_axes(axes, gpu, ["fp32"], points, measured, **LIMITS)
    for label in layout.point_labels:
        # One of them crosses the ridge's line.
        label.set_bbox({"facecolor": plots.PAPER, "edgecolor": "none", "pad": 0.8})
    plots.set_title(axes, f"Timed: the same on the roofline of one {gpu.name}", 34)


def fingerprint(path: Path) -> str | None:
    """The fingerprint that a PNG file carries; None without a file, or one that has none."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.info.get(FINGERPRINT)
    except (FileNotFoundError, UnidentifiedImageError):
        return None


def is_fresh(root: Path = ROOT) -> bool:
    """Whether the picture file shows what it would show if it were drawn now."""
    return fingerprint(root / PICTURE) == inputs().fingerprint


def write(root: Path = ROOT) -> None:
    """Draw the picture into its file."""
    from PIL import Image, PngImagePlugin

    from course_utils import plots

    shown, path = inputs(), root / PICTURE
    entries = PngImagePlugin.PngInfo()
    entries.add_text(FINGERPRINT, shown.fingerprint)
    entries.add_text("Description", shown.alt)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".png.part")
    with Image.open(io.BytesIO(plots.png(draw(shown)))) as image:
        # 256 colours are plenty for a chart, and make a third of the file.
        image.convert("RGB").quantize(256).save(draft, "PNG", pnginfo=entries, optimize=True)
    os.replace(draft, path)
