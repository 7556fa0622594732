"""Run the meter's tests on every supported Triton, the oldest Numba too: ``make test-versions``.

Each version is installed into a folder of its own under ``build/versions`` and put before the
installed one on ``PYTHONPATH``; the environment itself is not touched. Needs the network the first
time (about 200 MB a version).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "versions"
TESTS = ("tests/meter",)


@dataclass(frozen=True)
class Case:
    """A combination of versions to test.

    Attributes:
        triton: the version of Triton.
        numpy: the version of numpy; None for the installed one.
        oldest_python: the oldest Python that these versions have a build for.
        numba: what to install for another Numba than the installed one, as ``name==version``.
    """

    triton: str
    numpy: str | None = None
    oldest_python: tuple[int, int] = (3, 11)
    numba: tuple[str, ...] = ()

    def __str__(self) -> str:
        numpy = f", numpy {self.numpy}" if self.numpy else ""
        numba = f", {self.numba[0].replace('==', ' ')}" if self.numba else ""
        return f"triton {self.triton}{numpy}{numba}"

    @property
    def packages(self) -> list[str]:
        """What to install, as ``name==version``."""
        pairs = (("triton", self.triton), ("numpy", self.numpy))
        return [*(f"{name}=={version}" for name, version in pairs if version), *self.numba]


# Triton 3.6's interpreter fails on loops over tensor bounds since numpy 2.4, which the meter mends.
CASES = (
    Case("3.6.0", numpy="2.4.6"),
    Case("3.6.0", numpy="2.5.0", oldest_python=(3, 12)),
    Case("3.7.1"),
    Case("3.8.0"),
    Case("3.9.0"),
    Case(  # what Colab has
        "3.6.0", "2.1.3", numba=("numba==0.61.2", "llvmlite==0.44.0", "numba-cuda==0.22.2")
    ),
)


@dataclass
class Result:
    """What came of one case; ``problem`` is empty where its tests ran and passed."""

    case: Case
    python: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    problem: str = ""
    was_skipped: bool = False
    output: str = field(default="", repr=False)

    @property
    def verdict(self) -> str:
        """One word, and the reason where it is not "passed"."""
        if self.was_skipped:
            return f"skipped: {self.problem}"
        return f"FAILED: {self.problem}" if self.problem else "passed"


Run = Callable[..., subprocess.CompletedProcess]


def main(arguments: Sequence[str] | None = None, run: Run = subprocess.run) -> int:
    """Run the command; return its exit status.

    Args:
        arguments: the command line; by default this process's.
        run: ``subprocess.run``, or a stand-in for it.
    """
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.authoring.versions",
        description="Run the meter's tests on every supported version of Triton.",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="only cases that contain one of these texts"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the Python whose torch and pytest are used"
    )
    options = parser.parse_args(arguments)
    cases = [
        case for case in CASES if not options.only or any(t in str(case) for t in options.only)
    ]
    if not cases:
        parser.error(f"no case contains any of {options.only}; there are: {_listed(CASES)}")
    results = []
    for case in cases:
        print(f"{case} ...", flush=True)
        result = check(case, options.python, run)
        results.append(result)
        if result.problem and result.output:
            print(result.output)
    print(table(results))
    return int(any(r.problem and not r.was_skipped for r in results))


def _listed(cases: Sequence[Case]) -> str:
    return "; ".join(map(str, cases))


def check(case: Case, python: str, run: Run = subprocess.run) -> Result:
    """Install one case's versions if needed and run the tests with them.

    Args:
        case: what to test.
        python: the interpreter to test with; a newer one is looked for where it is too old.
        run: ``subprocess.run``, or a stand-in for it.
    """
    result = Result(case)
    found = _find_python(case, python, run)
    if found is None:
        wanted = ".".join(map(str, case.oldest_python))
        result.problem = f"needs Python {wanted} or newer with torch and pytest; found none"
        result.was_skipped = True
        return result
    python, result.python = found
    try:
        folders = [_install(package, python, result.python, run) for package in case.packages]
    except InstallError as error:
        result.problem = str(error)
        return result
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("TRITON_INTERPRET", None)
    if wrong := _wrong_versions(case, python, environment, run):
        result.problem = wrong
        return result
    _run_tests(result, python, environment, run)
    return result


def _find_python(case: Case, python: str, run: Run) -> tuple[str, str] | None:
    """Return an interpreter that is new enough and has torch and pytest, and its version."""
    names = [f"python3.{minor}" for minor in range(case.oldest_python[1], 15)]
    script = "import sys, torch, pytest; print('%d.%d' % sys.version_info[:2])"
    for candidate in (python, *filter(None, map(shutil.which, names))):
        answer = run([candidate, "-c", script], capture_output=True, text=True, check=False)
        version = answer.stdout.strip()
        if answer.returncode == 0 and tuple(map(int, version.split("."))) >= case.oldest_python:
            return candidate, version
    return None


class InstallError(RuntimeError):
    """Why a package could not be installed, in one line."""


def _install(package: str, python: str, version: str, run: Run) -> Path:
    """Install a package without its dependencies; return the folder it lies in."""
    folder = FOLDER / f"python{version}" / package.replace("==", "-")
    if folder.is_dir():
        return folder
    # pip writes elsewhere first: a folder that exists holds a whole package.
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    answer = run(
        [*command, "--target", str(unfinished), package],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        last = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]
        raise InstallError(f"pip could not install {package}: {''.join(last)}")
    unfinished.rename(folder)
    return folder


def _wrong_versions(case: Case, python: str, environment: dict[str, str], run: Run) -> str:
    """Say which other versions are imported; empty where they are the case's."""
    script = "import numpy, triton; print(triton.__version__, numpy.__version__)"
    answer = run(
        [python, "-c", script],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode:
        return f"import failed: {answer.stderr.strip().splitlines()[-1]}"
    triton, numpy = answer.stdout.split()
    if triton != case.triton or case.numpy not in (None, numpy):
        return f"triton {triton} and numpy {numpy} were imported instead"
    return ""


def _run_tests(result: Result, python: str, environment: dict[str, str], run: Run) -> None:
    report = FOLDER / f"{str(result.case).replace(', ', '-').replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    start = perf_counter()
    answer = run(
        [python, "-m", "pytest", *TESTS, "-q", "--no-header", "-p", "no:cacheprovider",
         f"--junitxml={report}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    result.seconds = perf_counter() - start
    result.output = answer.stdout + answer.stderr
    if not report.is_file():
        result.problem = f"pytest ended with status {answer.returncode} and no report"
        return
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.parse(report).iter("testsuite"):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    result.failed = counts["failures"] + counts["errors"]
    result.skipped = counts["skipped"]
    result.passed = counts["tests"] - result.failed - result.skipped
    if result.failed:
        result.problem = f"{result.failed} of {counts['tests']} tests"
    elif answer.returncode or not result.passed:
        result.problem = f"pytest ended with status {answer.returncode}, {result.passed} passed"


def table(results: Sequence[Result]) -> str:
    """Write one row a case: versions, Python, how many tests passed, failed and were skipped."""
    rows = [("versions", "Python", "passed", "failed", "skipped", "seconds", "verdict")]
    for r in results:
        counts = (r.passed, r.failed, r.skipped, round(r.seconds))
        rows.append((str(r.case), r.python or "-", *map(str, counts), r.verdict))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if 2 <= i <= 5 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
