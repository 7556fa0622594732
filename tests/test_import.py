"""Importing the package is cheap, and every public name is there when asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import course_utils

PROJECT = Path(course_utils.__file__).resolve().parent.parent
HEAVY = ["torch", "triton", "numpy", "matplotlib", "ipywidgets"]

SCRIPT = """
import json, sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""


def run_python(statement: str) -> dict:
    """What a fresh interpreter has loaded, and how long it took, after one statement."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(statement=statement)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=True,
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "statement",
    [
        "import course_utils",
        "from course_utils import setup, machine, Machine",
        "from course_utils import compare, progress; progress()",
        "import course_utils; dir(course_utils)",
    ],
)
def test_importing_is_fast_and_loads_nothing_heavy(statement, tmp_path, monkeypatch):
    monkeypatch.setenv("WRITING_FAST_KERNELS_PROGRESS", str(tmp_path / "progress.json"))
    loaded = run_python(statement)
    assert [name for name in HEAVY if name in loaded["modules"]] == []
    assert loaded["seconds"] < 1


def test_every_lazy_name_is_listed_and_found():
    names = ["setup", "machine", "Machine", "compare", "progress", "course_map", "predict"]
    for name in names:
        assert name in dir(course_utils)
        assert getattr(course_utils, name) is not None
    assert set(course_utils.__all__) <= set(dir(course_utils))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'set_up'"):
        _ = course_utils.set_up
    assert not hasattr(course_utils, "nothing_of_the_kind")


def test_a_submodule_that_is_not_there_is_an_attribute_error(monkeypatch):
    monkeypatch.setattr(course_utils, "_SUBMODULES", ("not_written_yet",))
    with pytest.raises(AttributeError, match="not_written_yet"):
        _ = course_utils.not_written_yet


def test_a_missing_dependency_keeps_its_own_message(monkeypatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'somelib'", name="somelib")

    monkeypatch.setattr(course_utils, "_SUBMODULES", ("needs_somelib",))
    monkeypatch.setattr(course_utils.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="somelib"):
        _ = course_utils.needs_somelib
