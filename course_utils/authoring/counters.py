"""Read a GPU's own DRAM counters beside the meter's counts: ``python -m …authoring.counters``.

The meter says what an op asks for; Nsight Compute (``ncu``) says what the memory chips really
delivered. Each op runs once under ncu in a child process, at a size many times the L2 cache, and
the bytes of its kernels are summed. The result becomes the ``counters`` of an existing record.

ncu empties the caches before each kernel (its default), so every kernel's reads come from DRAM.
What a kernel leaves behind in L2 when it ends is not yet written: writes read low by up to the
size of that cache, reads do not.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_utils import records
from course_utils.authoring import benchmarks

READ = "dram__bytes_read.sum"
WRITTEN = "dram__bytes_write.sum"
CHILD_TIMEOUT_S = 300
PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
"""Where CUDA's installers put ncu when it is not on the PATH."""

_UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


class CannotCountError(RuntimeError):
    """A reason why the counters cannot be read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.authoring.counters",
        description="Add ncu's DRAM bytes to a record, beside the bytes that the meter counts.",
    )
    parser.add_argument(
        "--record", type=Path, help="the record to add them to; by default this GPU's own"
    )
    parser.add_argument("--child", metavar="OP", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        run_once(options.child)
        return 0
    import course_utils

    course_utils.setup()  # before the meter imports triton
    try:
        path = options.record or _own_record()
        document = json.loads(path.read_text(encoding="utf-8"))
        records.validate(document, path.name)
        document["counters"] = read_all(find_ncu())
        document["counters_date"] = datetime.date.today().isoformat()
        records.write(document, path)
    except (CannotCountError, records.RecordError, OSError) as error:
        print(f"counters: {error}\ncounters: the record stays as it was", file=sys.stderr)
        return 1
    print(f"added the counters of {len(document['counters'])} ops to {path}")
    return 0


def read_all(ncu: str) -> list[dict[str, Any]]:
    """Run every op under ncu and return the record's counters.

    Raises:
        CannotCountError: at the first op that ncu cannot count.
    """
    print(f"{'op':30} {'kernels':>7} {'read / counted':>15} {'written / counted':>18}")
    results = []
    for name, cell in benchmarks.counter_cells().items():
        kernels = profile(ncu, name)
        count = cell.count()
        assert count is not None
        row = {
            "op": name,
            "parameters": dict(cell.parameters),
            "counted_read": count.read,
            "counted_written": count.written,
            "dram_read": sum(read for read, _ in kernels),
            "dram_written": sum(written for _, written in kernels),
            "kernels": len(kernels),
        }
        results.append(row)
        counter = records.Counter(**row)
        print(
            f"{name:30} {len(kernels):>7} {counter.read_ratio:>15.4f} {counter.write_ratio:>18.4f}",
            flush=True,
        )
    return results


def profile(ncu: str, name: str) -> list[tuple[int, int]]:
    """Run one op in a child process under ncu.

    Returns:
        DRAM bytes read and written, per kernel.

    Raises:
        CannotCountError: if ncu fails, may not read counters, or saw no kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            *(ncu, "--profile-from-start", "off", "--target-processes", "application-only"),
            *("--clock-control", "none", "--cache-control", "all"),
            *("--metrics", f"{READ},{WRITTEN}"),
            *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
            *(sys.executable, "-m", "course_utils.authoring.counters", "--child", name),
        ]
        # Compiling in worker processes gains nothing here, and ncu would follow each of them.
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        # The child must find this copy of the course, whatever the folder it is run from.
        here = str(Path(records.__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(
            path for path in (here, environment.get("PYTHONPATH")) if path
        )
        try:
            child = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=CHILD_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise CannotCountError(f"{name}: ncu was not done after {CHILD_TIMEOUT_S} s") from None
        text = log.read_text(encoding="utf-8") if log.exists() else ""
    said = f"{text}\n{child.stdout}\n{child.stderr}"
    if "ERR_NVGPUCTRPERM" in said:
        raise CannotCountError(
            "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM); "
            "run as root, or have the administrator allow it"
        )
    kernels = parse(text)
    if child.returncode != 0 or not kernels:
        raise CannotCountError(
            f"{name}: ncu gave no counters (exit status {child.returncode}). It said:\n"
            + said.strip()[-2000:]
        )
    return kernels


def parse(text: str) -> list[tuple[int, int]]:
    """Read ncu's raw page as CSV: DRAM bytes read and written, one pair per kernel.

    Args:
        text: the log: lines of ncu's own that begin with "==", a header, a row of units, then one
            row per kernel.

    Raises:
        CannotCountError: if a value is no number, or its unit is unknown.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows or READ not in rows[0] or WRITTEN not in rows[0]:
        return []
    units, *kernels = rows
    return [tuple(_bytes(row[key], units[key]) for key in (READ, WRITTEN)) for row in kernels]


def _bytes(value: str, unit: str) -> int:
    if unit not in _UNITS:
        raise CannotCountError(f"ncu gave bytes in {unit!r}; expected one of {', '.join(_UNITS)}")
    try:
        return round(float(value.replace(",", "")) * _UNITS[unit])
    except ValueError:
        raise CannotCountError(f"ncu gave {value!r} where bytes were expected") from None


def find_ncu() -> str:
    """Return the path of Nsight Compute's command line.

    Raises:
        CannotCountError: if it is not installed.
    """
    if found := shutil.which("ncu"):
        return found
    for place in PLACES:
        versions = sorted(path for path in Path(place).glob("**/ncu") if path.is_file())
        if versions:
            return str(versions[-1])
    raise CannotCountError("Nsight Compute's ncu is not installed, so there are no DRAM counters")


def run_once(name: str) -> None:
    """Run one op once between the profiler's start and stop. This is the child under ncu."""
    import course_utils

    course_utils.setup()
    import torch

    cell = benchmarks.counter_cells()[name]
    with cell.setting():
        function = cell.prepare()
        function()  # compiles; and the allocator then has all it needs
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        function()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _own_record() -> Path:
    import torch

    if not torch.cuda.is_available():
        raise CannotCountError("there is no GPU here to count on")
    device = torch.cuda.get_device_properties()
    return records.FOLDER / f"{records.key_for(device.name, device.total_memory)}.json"


if __name__ == "__main__":
    sys.exit(main())
