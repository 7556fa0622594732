"""Results of the compiler, kept on disk: a lesson read again does not compile again.

In the folder that the variable `WRITING_FAST_KERNELS_CACHE` names, else in the user's cache folder
(`~/.cache/writing-fast-kernels`, or under `XDG_CACHE_HOME`). Nothing in it is needed: it may be
deleted at any time, and a folder that cannot be written to only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
import zlib
from pathlib import Path
from typing import Any

PATH_VARIABLE = "WRITING_FAST_KERNELS_CACHE"
ENTRIES = 1000  # of 10 to 100 kB; the oldest go first
_SCHEMA = 1  # change it when what is stored changes its meaning


def folder() -> Path:
    """The folder that holds the results; it need not exist yet."""
    chosen = os.environ.get(PATH_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser()
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "writing-fast-kernels" / "compiled"
    except RuntimeError:  # a user without a home folder, as in some containers
        return Path(tempfile.gettempdir(), "writing-fast-kernels", "compiled")


def key(*parts: Any) -> str:
    """Return the name under which the result for these parts is kept."""
    return hashlib.sha256(repr((_SCHEMA, parts)).encode()).hexdigest()[:40]


def load(name: str) -> Any:
    """Return what was kept under a name; None if there is nothing that can be read."""
    path = folder() / name
    try:
        value = pickle.loads(zlib.decompress(path.read_bytes()))
        os.utime(path)  # it is used: it goes last
    except (OSError, zlib.error, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
        return None
    return value


def store(name: str, value: Any) -> None:
    """Keep a value under a name, and drop the oldest where there are too many."""
    place = folder()
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        # In full or not at all, whatever happens meanwhile and whoever else writes.
        with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
            file.write(zlib.compress(pickle.dumps(value)))
        os.replace(file.name, place / name)
        _drop_oldest(place)


def _drop_oldest(place: Path) -> None:
    entries = [entry for entry in os.scandir(place) if entry.is_file()]
    if len(entries) > ENTRIES:
        entries.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in entries[: ENTRIES // 10 + len(entries) - ENTRIES]:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
