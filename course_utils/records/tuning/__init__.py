"""Designs of a kernel that were tried out on a GPU: one JSON file per GPU, and its loader.

Tuning comes before a record. Many candidates for a kernel are timed, each in a few milliseconds,
and the best go into a lesson; `make record` then times those as they stand on the shelf. What is
kept here are medians of lesson 06's candidates, with the time of a copy in the same run beside
each: a *share* of the copy can be compared between runs, a bare time cannot.

How they were timed: by CUDA events, after the L2 cache was overwritten, 7 to 60 times within about
13 ms, median. Each candidate's result was checked first. The designs called "ours" are the
candidates that became lesson 06's kernels.

Schema 1::

    {"schema": 1, "gpu": ..., "gpu_key": ..., "torch": ..., "triton": ..., "date": "YYYY-MM-DD",
     "rows": [{"op": "softmax",              or "rmsnorm_backward", ...
               "design": "ours",             or "eager", "compiled", ...: what lesson 06 calls it
               "dtype": "float32", "columns": 256,
               "settings": {"warps": 4},     what tells rows of one design apart
               "milliseconds": 0.5073,       median, of 2^28 elements in rows of so many columns
               "copy_milliseconds": 0.5084,  median copy of as many elements, in the same run
               "candidate": "..."}]}         its name in the tuner's own table
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_utils.records import REFERENCE, NoRecordError, RecordError

FOLDER = Path(__file__).parent
SCHEMA = 1
ELEMENTS = 2**28
"""Elements of the matrix, whatever its width."""


@dataclass(frozen=True)
class Tried:
    """One candidate's time; see the module's text."""

    op: str
    design: str
    dtype: str
    columns: int
    settings: Mapping[str, int]
    milliseconds: float
    copy_milliseconds: float
    candidate: str

    @property
    def share(self) -> float:
        """Its bytes per second by those of the copy.

        Counted are distinct bytes: one read and one write of the matrix, which is what the copy
        moves; for a backward pass two reads and one write.
        """
        trips = 3 if self.op.endswith("_backward") else 2
        return trips / 2 * self.copy_milliseconds / self.milliseconds


@dataclass(frozen=True)
class Tuning:
    """All candidates kept for one GPU. ``label`` says where and when they were timed."""

    label: str
    tried: tuple[Tried, ...]

    def rows(
        self,
        op: str,
        design: str,
        *,
        dtype: str = "float32",
        columns: int | None = None,
        **settings: int,
    ) -> list[Tried]:
        """Return the rows of a design, by width, then as they were kept.

        Raises:
            RecordError: if there is none.
        """
        found = [
            row
            for row in self.tried
            if (row.op, row.design, row.dtype) == (op, design, dtype)
            and columns in (None, row.columns)
            and settings.items() <= row.settings.items()
        ]
        if not found:
            there = sorted({f"{row.op} {row.design} {row.dtype}" for row in self.tried})
            asked = f"{op} {design} {dtype}, columns={columns}, {settings}"
            raise RecordError(f"nothing was tried for {asked}; there are: {', '.join(there)}")
        return sorted(found, key=lambda row: row.columns)


def available(folder: Path | None = None) -> list[str]:
    """Return the keys of the GPUs that have a file, sorted."""
    return sorted(path.stem for path in (folder or FOLDER).glob("*.json"))


def load(gpu: str = REFERENCE, folder: Path | None = None) -> Tuning:
    """Return what was tried on a GPU, by default on the reference GPU.

    Raises:
        NoRecordError: if there is no such file.
        RecordError: if it is not valid.
    """
    path = (folder or FOLDER) / f"{gpu}.json"
    if not path.is_file():
        there = ", ".join(available(folder)) or "none"
        raise NoRecordError(f"nothing was tuned on {gpu!r}; there are: {there}")
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(path: Path, _mtime: int) -> Tuning:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise RecordError(f"{path.name}: schema {document['schema']}; expected {SCHEMA}")
        torch = document["torch"].partition("+")[0]
        label = (
            f"tuned on {document['gpu']}, torch {torch}, triton {document['triton']}, "
            f"{document['date']}"
        )
        tried = tuple(Tried(**row) for row in document["rows"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RecordError(f"{path.name}: not as described above: {error!r}") from None
    for row in tried:
        if not (row.milliseconds > 0 and row.copy_milliseconds > 0 and 0 < row.share < 1.2):
            raise RecordError(f"{path.name}: no such time is possible: {row}")
    return Tuning(label, tried)
