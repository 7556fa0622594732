"""What was timed, on which GPU, with which versions, when: JSON files and their loader.

A record is one file ``<gpu key>.json`` beside this module, written whole by ``make record`` in one
run on one GPU. Lessons show its times where there is no GPU, always with the record's label.

Units: times in milliseconds, sizes in bytes, work in FLOP; 1 GB/s is 1e9 bytes per second and
1 TFLOP/s is 1e12 FLOP per second.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
REFERENCE = "h200"
SCHEMA = 1
SHORTEST_RATED = 10.0
"""A time below this many launch overheads says more about the launch than about the kernel."""

_TEXTS = ("gpu", "gpu_key", "driver", "torch", "triton", "cuda", "python", "date", "git_revision")
_ROW = ("benchmark", "case", "parameters", "milliseconds", "low", "high", "repeats")
_COUNTS = ("counted_read", "counted_written", "dram_read", "dram_written")


class RecordError(ValueError):
    """A record file that is not what a record must be, or a request that no record can answer."""


class NoRecordError(RecordError, FileNotFoundError):
    """There is no record for this GPU, or none at all."""


def gb_per_s(nbytes: float, milliseconds: float) -> float:
    """Return the rate of ``nbytes`` moved in ``milliseconds``, in GB/s (1e9 bytes per second)."""
    return nbytes / (milliseconds * 1e-3) / 1e9


def tflop_per_s(flops: float, milliseconds: float) -> float:
    """Return the rate of ``flops`` done in ``milliseconds``, in TFLOP/s (1e12 FLOP per second)."""
    return flops / (milliseconds * 1e-3) / 1e12


def is_short(milliseconds: float, launch_overhead: float | None) -> bool:
    """Tell whether a time is too close to the launch overhead (both in ms) to be called a rate."""
    return launch_overhead is not None and milliseconds < SHORTEST_RATED * launch_overhead


def key_for(device_name: str, memory_bytes: int | None = None) -> str:
    """Return the key under which a GPU's record is kept: the GPU table's, else made of the name.

    Args:
        device_name: as ``torch.cuda.get_device_name()`` gives it, such as "NVIDIA H200".
        memory_bytes: the device's memory, which tells an A100 40 GB from an 80 GB one.
    """
    from course_utils import gpus

    known = gpus.find(device_name, memory_bytes)
    return known.key if known else re.sub(r"[^a-z0-9]+", "_", device_name.lower()).strip("_")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        benchmark: which experiment, such as "chain".
        case: which variant of it, such as "eager".
        parameters: sizes and dtype, such as ``{"n": 268435456, "dtype": "float32"}``.
        milliseconds: median of the repeats.
        low: 20th percentile, ms.
        high: 80th percentile, ms.
        repeats: how many times it ran.
        bytes: counted bytes, read and written; None where the experiment counts none.
        flops: counted FLOP; None where the experiment counts none.
        launch_overhead: what one launch costs on that machine, ms; None if not recorded.
    """

    benchmark: str
    case: str
    parameters: Mapping[str, int | float | str | bool]
    milliseconds: float
    low: float
    high: float
    repeats: int
    bytes: int | None = None
    flops: int | None = None
    launch_overhead: float | None = None

    @property
    def gb_per_s(self) -> float | None:
        """Counted bytes over the median time, GB/s; None without counted bytes.

        For a :attr:`short` row this is still the quotient, but mostly launch overhead: a chart may
        show how the rate grows with the size, a sentence must not call it the kernel's speed.
        """
        return None if self.bytes is None else gb_per_s(self.bytes, self.milliseconds)

    @property
    def tflop_per_s(self) -> float | None:
        """Counted FLOP over the median time, TFLOP/s; None without counted FLOP (see above)."""
        return None if self.flops is None else tflop_per_s(self.flops, self.milliseconds)

    @property
    def intensity(self) -> float | None:
        """Counted FLOP per counted byte; None where either was not counted."""
        return self.flops / self.bytes if self.bytes and self.flops is not None else None

    @property
    def short(self) -> bool:
        """Whether the time is below ten launch overheads, and so no rate of the kernel."""
        return is_short(self.milliseconds, self.launch_overhead)


@dataclass(frozen=True)
class Counter:
    """The meter's bytes beside those that the GPU's own DRAM counters saw (read by ncu).

    Attributes:
        op: which op, such as "gelu".
        parameters: sizes and dtype.
        counted_read: bytes read, counted by the meter.
        counted_written: bytes written, counted by the meter.
        dram_read: bytes that DRAM delivered, summed over the op's kernels.
        dram_written: bytes that DRAM took. Reads low by what still sits in L2 when a kernel ends.
        kernels: how many kernels the op launched.
    """

    op: str
    parameters: Mapping[str, int | float | str | bool]
    counted_read: int
    counted_written: int
    dram_read: int
    dram_written: int
    kernels: int | None = None

    @property
    def read_ratio(self) -> float:
        """DRAM bytes read / counted bytes read."""
        return self.dram_read / self.counted_read

    @property
    def write_ratio(self) -> float:
        """DRAM bytes written / counted bytes written."""
        return self.dram_written / self.counted_written


@dataclass(frozen=True)
class Record:
    """Everything measured on one GPU in one run.

    Attributes:
        gpu: the device's own name, such as "NVIDIA H200".
        gpu_key: its key in the GPU table.
        driver, torch, triton, cuda, python: versions.
        date: the day of the run, YYYY-MM-DD.
        git_revision: the revision of the course that measured.
        all_rows: the measurements, in the order they were made.
        counters: the meter's bytes beside the GPU's own counters; empty where ncu could not run.
        counters_date: the day when those were read, in a run of their own; empty if they were not.
        skipped: what was left out, and why.
        generated: source of the Triton kernels that torch.compile wrote there, by program.
    """

    gpu: str
    gpu_key: str
    driver: str
    torch: str
    triton: str
    cuda: str
    python: str
    date: str
    git_revision: str
    all_rows: tuple[Row, ...]
    counters: tuple[Counter, ...] = ()
    counters_date: str = ""
    skipped: tuple[str, ...] = ()
    generated: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The words that go beside every recorded time."""
        return self._label(self.date)

    @property
    def counters_label(self) -> str:
        """The words that go beside what the GPU's counters saw."""
        return self._label(self.counters_date)

    def _label(self, date: str) -> str:
        torch = self.torch.partition("+")[0]
        return f"recorded on {self.gpu}, torch {torch}, triton {self.triton}, {date}"

    @property
    def launch_overhead(self) -> float | None:
        """What one launch of a tiny op costs, ms, from the "launch" rows; None if not recorded."""
        return _launch_overhead(self.all_rows)

    def rows(
        self, benchmark: str, case: str | None = None, **parameters: int | float | str | bool
    ) -> list[Row]:
        """Return the rows of a benchmark whose parameters agree with those given.

        Raises:
            RecordError: if the benchmark or the case is not in the record. Parameters that match
                nothing give an empty list.
        """
        found = [row for row in self.all_rows if row.benchmark == benchmark]
        if not found:
            raise RecordError(
                f"no benchmark {benchmark!r} in this record ({self.label}); "
                f"there are: {_listing(row.benchmark for row in self.all_rows)}"
            )
        cases = [row.case for row in found]
        if case is not None:
            found = [row for row in found if row.case == case]
            if not found:
                raise RecordError(
                    f"benchmark {benchmark!r} has no case {case!r}; there are: {_listing(cases)}"
                )
        missing = object()
        return [
            row
            for row in found
            if all(row.parameters.get(name, missing) == value for name, value in parameters.items())
        ]

    def row(
        self, benchmark: str, case: str | None = None, **parameters: int | float | str | bool
    ) -> Row:
        """Return the one row that fits.

        Raises:
            RecordError: if none fits, or several do; the message lists what there is.
        """
        found = self.rows(benchmark, case, **parameters)
        if len(found) == 1:
            return found[0]
        asked = _describe(benchmark, case, parameters)
        if found:
            raise RecordError(
                f"{len(found)} recorded rows fit {asked}; say which one: "
                f"{_listing(_describe(r.benchmark, r.case, r.parameters) for r in found)}"
            )
        raise RecordError(
            f"no recorded row fits {asked}; there are: "
            + _listing(
                _describe(r.benchmark, r.case, r.parameters) for r in self.rows(benchmark, case)
            )
        )

    def counter(self, op: str) -> Counter:
        """Return the counters of one op.

        Raises:
            RecordError: if the record has none for it.
        """
        for counter in self.counters:
            if counter.op == op:
                return counter
        there = _listing(counter.op for counter in self.counters) or "none"
        raise RecordError(f"no counters for {op!r} in this record; there are: {there}")


def available(folder: Path | None = None) -> list[str]:
    """Return the keys of the GPUs that have a record, sorted."""
    return sorted(path.stem for path in (folder or FOLDER).glob("*.json"))


def load(gpu: str | None = None, folder: Path | None = None) -> Record:
    """Return a GPU's record.

    Args:
        gpu: a key of :func:`available`. None means this machine's own GPU if it has a record, else
            the reference GPU, the H200.
        folder: where the records are, if not in the course itself.

    Raises:
        NoRecordError: if there is no such record.
        RecordError: if the file is not a valid record.
    """
    there = available(folder)
    if not there:
        raise NoRecordError("no record yet; make one with `make record` on a GPU")
    if gpu is None:
        own = _own_key()
        key = own if own in there else REFERENCE
    else:
        key = gpu
    if key not in there:
        raise NoRecordError(
            f"no record for {key!r}; there are: {_listing(there)}. "
            "Make one with `make record` on that GPU"
        )
    path = (folder or FOLDER) / f"{key}.json"
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, _mtime: int, _size: int) -> Record:
    """Read and check one file; explorers ask at every redraw, so unchanged files are kept."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RecordError(f"{path.name}: not JSON: {error}") from None
    validate(document, path.name)
    if document["gpu_key"] != path.stem:
        raise RecordError(
            f"{path.name}: gpu_key is {document['gpu_key']!r}, but a record is named after it: "
            f"expected {document['gpu_key']}.json"
        )
    return from_document(document)


def from_document(document: Mapping[str, Any]) -> Record:
    """Build a record from a JSON document that :func:`validate` accepts."""
    rows = [Row(**row) for row in document["rows"]]
    overhead = _launch_overhead(rows)
    return Record(
        **{name: document[name] for name in _TEXTS},
        all_rows=tuple(Row(**row, launch_overhead=overhead) for row in document["rows"]),
        counters=tuple(Counter(**counter) for counter in document.get("counters", [])),
        counters_date=document.get("counters_date", ""),
        skipped=tuple(document.get("skipped", [])),
        generated=dict(document.get("generated", {})),
    )


def _check_date(document: Mapping[str, Any], key: str, name: str) -> None:
    try:
        datetime.datetime.strptime(str(document.get(key)), "%Y-%m-%d")
    except ValueError:
        shown = repr(document.get(key))
        raise RecordError(f"{name}: {key}: expected YYYY-MM-DD, got {shown}") from None


def validate(document: Any, name: str = "record") -> None:
    """Check a JSON document against the schema.

    Args:
        document: what ``json.loads`` gave.
        name: what to call it in a message, such as the file's name.

    Raises:
        RecordError: at the first thing that is wrong, saying where, what was expected, what is
            there.
    """
    if not isinstance(document, dict):
        raise RecordError(f"{name}: expected a JSON object, got {type(document).__name__}")
    if document.get("schema") != SCHEMA:
        raise RecordError(
            f"{name}: schema: expected {SCHEMA}, got {document.get('schema')!r}; "
            "make the record again with `make record`"
        )
    for key in _TEXTS:
        value = document.get(key)
        if not isinstance(value, str) or not value:
            raise RecordError(f"{name}: {key}: expected a text that is not empty, got {value!r}")
    _check_date(document, "date", name)
    known = {"schema", "rows", "counters", "counters_date", "skipped", "generated", *_TEXTS}
    _no_others(document, known, name)
    rows = document.get("rows")
    if not isinstance(rows, list) or not rows:
        raise RecordError(f"{name}: rows: expected a list of measurements, got {rows!r}")
    for index, row in enumerate(rows):
        _check_row(row, f"{name}: rows[{index}]")
    _check_distinct(rows, ("benchmark", "case"), f"{name}: rows")
    counters = document.get("counters", [])
    if not isinstance(counters, list):
        raise RecordError(f"{name}: counters: expected a list, got {counters!r}")
    if counters:
        _check_date(document, "counters_date", name)
    for index, counter in enumerate(counters):
        _check_counter(counter, f"{name}: counters[{index}]")
    _check_distinct(counters, ("op",), f"{name}: counters")
    skipped = document.get("skipped", [])
    if not isinstance(skipped, list) or not all(isinstance(entry, str) for entry in skipped):
        raise RecordError(f"{name}: skipped: expected a list of texts, got {skipped!r}")
    generated = document.get("generated", {})
    if not isinstance(generated, dict) or not all(isinstance(t, str) for t in generated.values()):
        raise RecordError(f"{name}: generated: expected texts by program, got {generated!r}")


def write(document: dict[str, Any], path: Path) -> None:
    """Check a record and write it, replacing the old file in one step or leaving it as it was.

    Raises:
        RecordError: if the document is no valid record.
    """
    validate(document, path.name)
    text = _dump(document)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # mkstemp makes it the owner's alone
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _dump(document: dict[str, Any]) -> str:
    """Return the JSON with one measurement a line: short to read, and short in a diff."""
    lines = ["{"]
    for index, (key, value) in enumerate(document.items()):
        comma = "," if index < len(document) - 1 else ""
        if isinstance(value, list) and value:
            entries = ",\n".join(f"  {json.dumps(entry)}" for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{entries}\n ]{comma}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}{comma}")
    return "\n".join([*lines, "}", ""])


def _check_row(row: Any, where: str) -> None:
    _check_object(row, where, texts=("benchmark", "case"))
    _no_others(row, {*_ROW, "bytes", "flops"}, where)
    for key in ("milliseconds", "low", "high"):
        value = row.get(key)
        if not _is_number(value) or value <= 0:
            raise RecordError(f"{where}.{key}: expected a positive number, got {value!r}")
    if not row["low"] <= row["milliseconds"] <= row["high"]:
        raise RecordError(
            f"{where}: expected low <= milliseconds <= high, got "
            f"{row['low']!r}, {row['milliseconds']!r}, {row['high']!r}"
        )
    repeats = row.get("repeats")
    if not _is_count(repeats) or repeats < 1:
        raise RecordError(f"{where}.repeats: expected a positive whole number, got {repeats!r}")
    for key in ("bytes", "flops"):
        value = row.get(key)
        if value is not None and not _is_count(value):
            raise RecordError(f"{where}.{key}: expected a whole number or null, got {value!r}")


def _check_counter(counter: Any, where: str) -> None:
    _check_object(counter, where, texts=("op",))
    _no_others(counter, {"op", "parameters", "kernels", *_COUNTS}, where)
    for key in _COUNTS:
        value = counter.get(key)
        if not _is_count(value) or (value == 0 and key.startswith("counted")):
            raise RecordError(f"{where}.{key}: expected a number of bytes, got {value!r}")
    kernels = counter.get("kernels")
    if kernels is not None and (not _is_count(kernels) or kernels < 1):
        raise RecordError(f"{where}.kernels: expected a positive whole number, got {kernels!r}")


def _check_object(value: Any, where: str, texts: tuple[str, ...]) -> None:
    if not isinstance(value, dict):
        raise RecordError(f"{where}: expected an object, got {value!r}")
    for key in texts:
        if not isinstance(value.get(key), str) or not value[key]:
            raise RecordError(f"{where}.{key}: expected a text, got {value.get(key)!r}")
    parameters = value.get("parameters")
    if not isinstance(parameters, dict) or not all(
        isinstance(entry, str | bool) or _is_number(entry) for entry in parameters.values()
    ):
        raise RecordError(
            f"{where}.parameters: expected an object of numbers and texts, got {parameters!r}"
        )


def _check_distinct(entries: list[dict], names: tuple[str, ...], where: str) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        identity = json.dumps(
            [*(entry[name] for name in names), entry["parameters"]], sort_keys=True
        )
        if identity in seen:
            raise RecordError(f"{where}: {seen[identity]} and {index} are the same: {identity}")
        seen[identity] = index


def _no_others(value: Mapping[str, Any], known: set[str], where: str) -> None:
    others = sorted(set(value) - known)
    if others:
        raise RecordError(f"{where}: unknown keys: {_listing(others)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _launch_overhead(rows: Any) -> float | None:
    for row in rows:
        if row.benchmark == "launch" and row.case == "add_8":
            return row.milliseconds
    return None


def _own_key() -> str | None:
    """Return the key of this machine's GPU; None without one.

    A GPU is looked for only if something has imported torch: reading a file must not cost the
    seconds of that import.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return key_for(torch.cuda.get_device_name(), torch.cuda.get_device_properties().total_memory)


def _describe(benchmark: str, case: str | None, parameters: Mapping[str, object]) -> str:
    inside = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    return f"{benchmark}/{case}({inside})" if case else f"{benchmark}({inside})"


def _listing(names: Any, limit: int = 40) -> str:
    names = list(dict.fromkeys(names))
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
