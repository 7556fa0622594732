"""What lesson 05's wrong kernels really did on a GPU: one JSON file per GPU, and its loader.

A file ``<gpu key>.json`` beside this module is written whole, by
``python -m course_utils.authoring.incidents`` on a GPU. Each incident is one kernel of the lesson,
run natively in a process of its own, with what was seen: a symptom, one sentence, and the numbers
or the text from which the sentence was made. The kernel's fingerprint is kept with it, so that a
lesson whose kernel has changed since is told (``tests/test_incidents.py``).

Schema 1::

    {"schema": 1, "gpu": ..., "gpu_key": ..., "driver": ..., "torch": ..., "triton": ...,
     "cuda": ..., "python": ..., "date": "YYYY-MM-DD", "git_revision": ...,
     "incidents": [{"name": "missing_mask",      what the lesson calls it by
                    "mistake": 1,                its number in the lesson; null for what is none
                    "kernels": {"double": "…"},  fingerprint of each kernel that ran
                    "symptom": "neighbour overwritten",       one of SYMPTOMS
                    "says": "a sentence made of what was measured",
                    "seen": {"neighbour_changed": 128},       numbers and texts
                    "excerpt": ["lines of a tool's own output", ...]}]}
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import textwrap
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_utils.records import REFERENCE, NoRecordError, RecordError

FOLDER = Path(__file__).parent
SCHEMA = 1

SYMPTOMS = {
    "right": "the result is right",
    "wrong numbers": "numbers are wrong, without a word",
    "unwritten": "a part of the output keeps what was there before",
    "neighbour overwritten": "another tensor's numbers are overwritten",
    "not repeatable": "another wrong result in each run",
    "compile error": "the compiler refuses",
    "device error": "the GPU stops the program",
    "tool output": "what a tool reported",
}
"""What can be seen from outside, and what it means."""
LOUD = ("compile error", "device error")

_TEXTS = ("gpu", "gpu_key", "driver", "torch", "triton", "cuda", "python", "date", "git_revision")
_INCIDENT = {"name", "mistake", "kernels", "symptom", "says", "seen", "excerpt"}


@dataclass(frozen=True)
class Incident:
    """One kernel, run natively once, and what was seen.

    Attributes:
        name: what the lesson calls it by, such as "missing_mask".
        symptom: one of :data:`SYMPTOMS`.
        says: one sentence, made of what was measured.
        label: on what and when it was recorded.
        mistake: its number among the lesson's ten mistakes; None for what is no mistake.
        kernels: a fingerprint of each kernel that ran, by name.
        seen: the numbers and texts behind the sentence.
        excerpt: lines of a tool's own output, shortened.
    """

    name: str
    symptom: str
    says: str
    label: str
    mistake: int | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    excerpt: tuple[str, ...] = ()

    @property
    def loud(self) -> bool:
        """Whether an error was raised."""
        return self.symptom in LOUD

    def __str__(self) -> str:
        text = textwrap.fill(f"{self.says} ({self.label})", 96)
        return "\n".join([text, *(f"  {line}" for line in self.excerpt)])


@dataclass(frozen=True)
class Incidents(Mapping[str, Incident]):
    """All incidents recorded on one GPU in one run, by name."""

    label: str
    by_name: Mapping[str, Incident]

    def __getitem__(self, name: str) -> Incident:
        try:
            return self.by_name[name]
        except KeyError:
            raise RecordError(
                f"no incident {name!r} was recorded; there are: {', '.join(self.by_name)}"
            ) from None

    def __iter__(self):
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def mistakes(self) -> int:
        """How many of the lesson's mistakes were recorded."""
        return len(self._by_mistake())

    @property
    def loud(self) -> int:
        """How many of those raised an error."""
        return sum(self._by_mistake().values())

    def _by_mistake(self) -> dict[int, bool]:
        # A mistake's first incident is the kernel as it was launched; later ones are a tool's view.
        loud: dict[int, bool] = {}
        for incident in self.values():
            if incident.mistake is not None:
                loud.setdefault(incident.mistake, incident.loud)
        return loud


def fingerprint(source: str) -> str:
    """Return what identifies a kernel's source, whatever its comments and line breaks.

    Args:
        source: the text of one function.
    """
    lines = io.StringIO(textwrap.dedent(source)).readline
    ignored = (tokenize.COMMENT, tokenize.NL)
    # The words and the indentation, not ast.dump: what that writes differs between Pythons.
    words = [
        (tokenize.tok_name[token.type], token.string if token.string.strip() else "")
        for token in tokenize.generate_tokens(lines)
        if token.type not in ignored
    ]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def available(folder: Path | None = None) -> list[str]:
    """Return the keys of the GPUs that have a file, sorted."""
    return sorted(path.stem for path in (folder or FOLDER).glob("*.json"))


def load(gpu: str = REFERENCE, folder: Path | None = None) -> Incidents:
    """Return what was recorded on a GPU.

    Args:
        gpu: a key of :func:`available`. By default the reference GPU, also on a machine with
            another one: unlike times, symptoms are shown and not compared with one's own.
        folder: where the files are, if not in the course itself.

    Raises:
        NoRecordError: if there is no such file.
        RecordError: if it is not valid.
    """
    path = (folder or FOLDER) / f"{gpu}.json"
    if not path.is_file():
        there = ", ".join(available(folder)) or "none"
        raise NoRecordError(
            f"no incidents are recorded for {gpu!r}; there are: {there}. "
            "Record them with `python -m course_utils.authoring.incidents` on that GPU"
        )
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(path: Path, _mtime: int) -> Incidents:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RecordError(f"{path.name}: not JSON: {error}") from None
    validate(document, path.name)
    return from_document(document)


def from_document(document: Mapping[str, Any]) -> Incidents:
    """Build the incidents from a JSON document that :func:`validate` accepts."""
    torch = document["torch"].partition("+")[0]
    label = (
        f"recorded on {document['gpu']}, torch {torch}, triton {document['triton']}, "
        f"{document['date']}"
    )
    incidents = [
        Incident(
            **{**entry, "excerpt": tuple(entry["excerpt"])},
            label=label,
        )
        for entry in document["incidents"]
    ]
    return Incidents(label, {incident.name: incident for incident in incidents})


def validate(document: Any, name: str = "incidents") -> None:
    """Check a JSON document against the schema.

    Raises:
        RecordError: at the first thing that is wrong, saying where and what was expected.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise RecordError(f"{name}: expected a JSON object of schema {SCHEMA}")
    for key in _TEXTS:
        if not isinstance(document.get(key), str) or not document[key]:
            raise RecordError(f"{name}: {key}: expected a text, got {document.get(key)!r}")
    if others := sorted(set(document) - {"schema", "incidents", *_TEXTS}):
        raise RecordError(f"{name}: unknown keys: {', '.join(others)}")
    entries = document.get("incidents")
    if not isinstance(entries, list) or not entries:
        raise RecordError(f"{name}: incidents: expected a list, got {entries!r}")
    for index, entry in enumerate(entries):
        _check(entry, f"{name}: incidents[{index}]")
    names = [entry["name"] for entry in entries]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise RecordError(f"{name}: incidents: recorded twice: {', '.join(twice)}")


def _check(entry: Any, where: str) -> None:
    if not isinstance(entry, dict) or set(entry) != _INCIDENT:
        keys = ", ".join(sorted(_INCIDENT))
        raise RecordError(f"{where}: expected an object with {keys}; got {entry!r}")
    if entry["symptom"] not in SYMPTOMS:
        raise RecordError(
            f"{where}.symptom: expected one of {', '.join(SYMPTOMS)}; got {entry['symptom']!r}"
        )
    for key in ("name", "says"):
        if not isinstance(entry[key], str) or not entry[key]:
            raise RecordError(f"{where}.{key}: expected a text, got {entry[key]!r}")
    mistake = entry["mistake"]
    if mistake is not None and (type(mistake) is not int or mistake < 1):
        raise RecordError(f"{where}.mistake: expected a number from 1 on or null, got {mistake!r}")
    for key in ("kernels", "seen"):
        if not isinstance(entry[key], dict):
            raise RecordError(f"{where}.{key}: expected an object, got {entry[key]!r}")
    for key, value in entry["seen"].items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RecordError(f"{where}.seen.{key}: write {value} as a text")
    excerpt = entry["excerpt"]
    if not isinstance(excerpt, list) or not all(isinstance(line, str) for line in excerpt):
        raise RecordError(f"{where}.excerpt: expected a list of lines, got {excerpt!r}")


def write(document: dict[str, Any], path: Path) -> None:
    """Check a document and write it, one incident a paragraph.

    Raises:
        RecordError: if the document is not valid.
    """
    validate(document, path.name)
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
