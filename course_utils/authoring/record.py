"""Measure this machine's GPU and write its record: ``python -m course_utils.authoring.record``.

The record is written whole, in one run, or not at all: a file that mixes two runs would compare
times taken under different drivers, versions and clocks.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from course_utils import bench, records
from course_utils.authoring import benchmarks, counters

RESERVE_BYTES = 2**30
"""GPU memory left free for the libraries' workspaces and the buffer that empties the cache."""


class CannotRecordError(RuntimeError):
    """A reason not to write a record."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.authoring.record",
        description="Measure this machine's GPU (about ten minutes) and write its record.",
    )
    parser.add_argument(
        "--revision", help="the course's git revision, where this copy of it is no repository"
    )
    parser.add_argument(
        "--output", type=Path, help="the file to write, instead of course_utils/records/<gpu>.json"
    )
    parser.add_argument(
        "--no-counters", action="store_true", help="do not read DRAM counters with ncu afterwards"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="BENCHMARK",
        choices=list(benchmarks.BENCHMARKS),
        help="measure and print these only, and write nothing",
    )
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except (CannotRecordError, records.RecordError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    # What could make the run useless is asked first: minutes on a GPU are dear.
    revision = options.revision or git_revision(Path(__file__).parent)
    machine = _gpu_machine()
    import torch

    device = torch.cuda.get_device_properties()
    head = heading(device.name, device.total_memory, revision)
    path = options.output or records.FOLDER / f"{head['gpu_key']}.json"
    if not path.parent.is_dir():
        raise CannotRecordError(f"the folder {path.parent} does not exist; make it first")
    begin = perf_counter()
    rows, skipped, failed = measure(
        benchmarks.cells(options.only),
        torch.cuda.mem_get_info()[0] - RESERVE_BYTES,
        tuple(machine.compute_capability),
    )
    print(table(rows))
    for row in rows:
        if doubt := too_fast(row, head["gpu_key"]):
            print(f"too fast to be true? {doubt}")
    print(f"{len(rows)} rows in {perf_counter() - begin:.0f} s")
    if options.only:
        return 1 if failed else 0
    document = {
        **head,
        "rows": rows,
        "counters": [],
        "skipped": skipped,
    }
    check_complete(document, failed)
    document["generated"] = generated_sources()
    records.write(document, path)
    print(f"wrote {path}")
    if not options.no_counters:
        torch.cuda.empty_cache()
        counters.main(["--record", str(path)])
    return 0


def measure(
    cells: Sequence[benchmarks.Cell], memory_bytes: int, capability: tuple[int, int]
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Measure cells one after the other, printing a line for each.

    Args:
        cells: what to measure.
        memory_bytes: GPU memory that may be used.
        capability: the GPU's compute capability.

    Returns:
        The rows; what was skipped, and why; what failed, and why.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    failed: list[str] = []
    for index, cell in enumerate(cells, start=1):
        begin = f"[{index:3}/{len(cells)}] {cell.title}"
        obstacle = cell.obstacle(memory_bytes, capability)
        if obstacle is None:
            try:
                row = row_of(cell)
            except Exception as error:
                if not _is_out_of_memory(error):
                    traceback.print_exc()
                    failed.append(f"{cell.title}: {error}")
                    print(f"{begin}: FAILED", flush=True)
                    continue
                obstacle = "does not fit into the GPU's memory"
            else:
                rows.append(row)
                print(f"{begin}: {describe(row)}", flush=True)
                continue
        skipped.append(f"{cell.title}: {obstacle}")
        print(f"{begin}: skipped, {obstacle}", flush=True)
        _release_memory()
    return rows, skipped, failed


def generated_sources() -> dict[str, str]:
    """Return the Triton kernels that torch.compile writes on this GPU, by program."""
    import torch

    from course_utils.examples import chain
    from course_utils.generated import generated_kernels

    x = torch.randn(2**20, device="cuda")
    return {"chain": "\n\n".join(generated_kernels(torch.compile(chain, dynamic=False), x))}


def row_of(cell: benchmarks.Cell) -> dict[str, Any]:
    """Measure one cell and return its row, as the record's JSON has it."""
    timing = cell.time()
    count = cell.count()
    return {
        "benchmark": cell.benchmark,
        "case": cell.case,
        "parameters": dict(cell.parameters),
        "milliseconds": _rounded(timing.milliseconds),
        "low": _rounded(timing.low),
        "high": _rounded(timing.high),
        "repeats": timing.repeats,
        "bytes": count.bytes if count else None,
        "flops": count.flops if count else None,
    }


def heading(device_name: str, memory_bytes: int, revision: str) -> dict[str, Any]:
    """Return what a record says about the machine it was made on.

    Raises:
        CannotRecordError: if the driver's version cannot be found out.
    """
    import torch
    import triton

    return {
        "schema": records.SCHEMA,
        "gpu": device_name,
        "gpu_key": records.key_for(device_name, memory_bytes),
        "driver": driver_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "git_revision": revision,
    }


def check_complete(document: dict[str, Any], failed: Sequence[str]) -> None:
    """Refuse a partial record.

    Raises:
        CannotRecordError: if a measurement failed, or a benchmark has no row at all.
    """
    if failed:
        raise CannotRecordError(
            f"nothing is written, because {len(failed)} measurement(s) failed:\n  "
            + "\n  ".join(failed)
        )
    measured = {row["benchmark"] for row in document["rows"]}
    missing = [name for name in benchmarks.BENCHMARKS if name not in measured]
    if missing:
        raise CannotRecordError(
            f"nothing is written, because there is no row of: {', '.join(missing)}"
        )


def too_fast(row: dict[str, Any], gpu_key: str) -> str | None:
    """Say if a row beats the GPU's datasheet, which means that something was not measured.

    Tensors that the L2 cache can hold are left alone: they may well beat the memory's bandwidth.
    """
    from course_utils import gpus

    gpu = gpus.GPUS.get(gpu_key)
    if gpu is None:
        return None
    name = f"{row['benchmark']} {row['case']} {row['parameters']}"
    seconds = row["milliseconds"] * 1e-3
    sizes = row["parameters"]
    elements = sizes.get("n", 0) or sizes.get("rows", 0) * sizes.get("columns", 0)
    if row["bytes"] and elements >= benchmarks.LARGE:
        rate = row["bytes"] / seconds
        if rate > gpu.bandwidth:
            return f"{name}: {rate / 1e9:.0f} GB/s, the datasheet says {gpu.bandwidth / 1e9:.0f}"
    peak = max(gpu.peak.values())
    if row["flops"] and row["flops"] / seconds > peak:
        rate = row["flops"] / seconds / 1e12
        return f"{name}: {rate:.0f} TFLOP/s, the datasheet says {peak / 1e12:.0f}"
    return None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return all rows as a text table."""
    lines = [("benchmark", "case", "parameters", "time", "spread", "GB/s", "TFLOP/s")]
    for row in rows:
        time = row["milliseconds"]
        lines.append(
            (
                row["benchmark"],
                row["case"],
                " ".join(f"{name}={value}" for name, value in row["parameters"].items()),
                bench.format_time(time),
                f"{(row['high'] - row['low']) / time:.1%}",
                f"{records.gb_per_s(row['bytes'], time):.1f}" if row["bytes"] else "-",
                f"{records.tflop_per_s(row['flops'], time):.2f}" if row["flops"] else "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        " ".join(
            text.ljust(width) if index < 3 else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def describe(row: dict[str, Any]) -> str:
    """Return one row's time and rates in a few words."""
    time = row["milliseconds"]
    words = [bench.format_time(time)]
    if row["bytes"]:
        words.append(f"{records.gb_per_s(row['bytes'], time):.0f} GB/s")
    if row["flops"]:
        words.append(f"{records.tflop_per_s(row['flops'], time):.1f} TFLOP/s")
    return ", ".join(words)


def git_revision(folder: Path) -> str:
    """Return the revision of the repository that ``folder`` is in, "-dirty" if it was changed.

    Raises:
        CannotRecordError: if it is in none, or git is missing.
    """
    try:
        revision = _output("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
        changes = _output("git", "-C", str(folder), "status", "--porcelain", "-uno")
    except (OSError, subprocess.CalledProcessError):
        raise CannotRecordError(
            "this copy of the course is no git repository, so its revision is unknown: "
            "say it with --revision"
        ) from None
    return f"{revision}-dirty" if changes else revision


def driver_version() -> str:
    """Return the GPU driver's version.

    Raises:
        CannotRecordError: if nvidia-smi does not tell.
    """
    try:
        answer = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        return answer.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise CannotRecordError(f"nvidia-smi does not tell the driver's version: {error}") from None


def _gpu_machine() -> Any:
    import course_utils

    machine = course_utils.setup()
    if machine.mode != "gpu":
        raise CannotRecordError(
            "there is no GPU here to measure. Run `make record` on a machine that has one; "
            "the lessons show its times everywhere else"
        )
    if machine.compute_capability is None:
        raise CannotRecordError("records are made on NVIDIA GPUs only; this one has no CUDA")
    return machine


def _rounded(milliseconds: float) -> float:
    """Return a time to five significant digits: more than a clock of 0.5 µs can tell."""
    return float(f"{milliseconds:.5g}")


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _release_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _output(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
