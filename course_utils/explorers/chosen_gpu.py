"""The GPU that an explorer shows: the control that chooses it, and what the records say of it."""

from __future__ import annotations

from typing import NamedTuple

import ipywidgets as widgets

from course_utils import gpus, plots, records

# Up to so many elements the chain's time does not depend on how many there are.
_FEW_ELEMENTS = 2**14
_CHAIN_LAUNCHES = 5


class Recorded(NamedTuple):
    """A recorded time: seconds, the GPU's own name, and the words that stand beside the time."""

    seconds: float
    gpu: str
    label: str


def record_of(gpu_key: str) -> records.Record | None:
    """Return the record made on this GPU, or None."""
    return records.load(gpu_key) if gpu_key in records.available() else None


def recorded_time(
    gpu_key: str, benchmark: str, case: str, **parameters: int | str
) -> Recorded | None:
    """Return the recorded time of exactly this case on exactly this GPU, or None."""
    record = record_of(gpu_key)
    if record is None:
        return None
    try:
        row = record.row(benchmark, case, **parameters)
    except records.RecordError:
        return None
    return Recorded(row.milliseconds / 1e3, record.gpu, record.label)


class LaunchCost(NamedTuple):
    """What each of several queued launches costs the device, seconds, and where that is from."""

    seconds: float
    source: str


def launch_cost(gpu_key: str) -> LaunchCost | None:
    """Return what a launch costs when the next ones wait in the queue; None if not recorded.

    From the recorded eager chain of so few elements that its five launches are nothing but
    launches, else from launches in a CUDA graph. What the host needs per launch is more, but hides
    behind the work of the launches before. Of the reference GPU if this one has no record.
    """
    record = record_of(gpu_key) or record_of(records.REFERENCE)
    if record is None:
        return None
    chains = [
        row
        for row in record.all_rows
        if (row.benchmark, row.case) == ("chain", "eager") and row.parameters["n"] <= _FEW_ELEMENTS
    ]
    if chains:
        least = min(chains, key=lambda row: row.parameters["n"])
        seconds = least.milliseconds / 1e3
        words = f"{_CHAIN_LAUNCHES} in {plots.quantity(seconds, 's')}, recorded on {record.gpu}"
        return LaunchCost(seconds / _CHAIN_LAUNCHES, words)
    for row in record.all_rows:
        if (row.benchmark, row.case) == ("launch", "add_8_graph"):
            return LaunchCost(row.milliseconds / 1e3, f"recorded on {record.gpu}")
    return None


def measured_ceilings(gpu_key: str) -> plots.Ceilings | None:
    """Return the largest copy's rate and the best matmul's by dtype on this GPU, or None."""
    record = record_of(gpu_key)
    if record is None:
        return None
    # The largest copy, not the fastest: a small one may come out of the cache.
    copies, peaks = {}, {}
    for row in record.all_rows:
        if row.benchmark == "copy" and row.bytes:
            copies[row.bytes] = row.gb_per_s * 1e9
        elif row.benchmark == "matmul" and row.flops:
            peaks[row.case] = max(peaks.get(row.case, 0.0), row.tflop_per_s * 1e12)
    bandwidth = copies[max(copies)] if copies else None
    return plots.Ceilings(bandwidth, peaks) if copies or peaks else None


def gpu_dropdown() -> widgets.Dropdown:
    """Make the control that chooses a GPU of the table; its values are keys."""
    names = [(gpu.name, gpu.key) for gpu in gpus.GPUS.values()]
    control = widgets.Dropdown(options=names, value=records.REFERENCE, description="GPU")
    control.layout.width = "220px"
    return control
