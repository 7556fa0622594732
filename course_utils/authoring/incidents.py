"""Run lesson 05's wrong kernels natively: ``python -m course_utils.authoring.incidents``.

The kernels are taken from the lesson itself, so what is recorded is what is shown. Each runs in a
child process of its own; three run under compute-sanitizer and ncu, where those are installed.
The result becomes ``course_utils/records/incidents/<gpu key>.json``.

A GPU is needed. Nothing here may be run on one that somebody else is computing on: some of these
kernels write where they should not.
"""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from course_utils.authoring.incident_cases import (
    CASES,
    NCU_CASES,
    NCU_REPEATS,
    TARGETS,
    Case,
    Seen,
)
from course_utils.records import incidents

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "notebooks" / "05_when_kernels_go_wrong.ipynb"
CHILD_TIMEOUT_S = 150
PARALLEL = 5
_RESULT = "incident: "
_HEAD = "import triton\nimport triton.language as tl\n"

# compute-sanitizer sees allocations of CUDA. PyTorch asks CUDA for 2 MB at a time and divides them
# itself, so the sanitizer has to be given every tensor as an allocation of its own.
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
METRICS = {
    "launch__registers_per_thread": "registers per thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps active, % of the most",
    "smsp__inst_executed_op_global_ld.sum": "load instructions of warps",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "sectors per load",
    "dram__bytes_read.sum": "bytes read from memory",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory busy, %",
    "gpu__time_duration.sum": "duration, ns",
}


class CannotRunError(RuntimeError):
    """A reason why nothing can be recorded."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.authoring.incidents",
        description="Run lesson 05's wrong kernels on this machine's GPU; record what happens.",
    )
    parser.add_argument("--notebook", type=Path, default=LESSON, help="the lesson")
    parser.add_argument("--output", type=Path, help="the file to write, instead of the course's")
    parser.add_argument("--revision", help="the course's git revision, where there is no git")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run and print these only")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "KERNELS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        name, kernels = options.child
        run_child(name, Path(kernels))
        return 0
    try:
        return _run(options)
    except (CannotRunError, incidents.RecordError) as error:
        print(f"incidents: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    import torch

    from course_utils.authoring import record

    if not torch.cuda.is_available():
        raise CannotRunError("there is no GPU here to run them on")
    sources = kernel_sources(options.notebook)
    device = torch.cuda.get_device_properties()
    try:
        revision = options.revision or record.git_revision(ROOT)
    except record.CannotRecordError as error:
        raise CannotRunError(error) from None
    head = record.heading(device.name, device.total_memory, revision)
    entries = run_all(sources, options.only)
    for entry in entries:
        print(f"[{entry['symptom']}] {entry['name']}: {entry['says']}")
        print("".join(f"    {line}\n" for line in entry["excerpt"]), end="")
    if options.only:
        return 0
    document = {**head, "schema": incidents.SCHEMA, "incidents": entries}
    path = options.output or incidents.FOLDER / f"{head['gpu_key']}.json"
    incidents.write(document, path)
    print(f"wrote {len(entries)} incidents to {path}")
    return 0


def run_all(sources: dict[str, str], only: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run all incidents, several at a time.

    Args:
        sources: the lesson's kernels, as `kernel_sources` gives them.
        only: names of incidents, if not all are wanted.

    Raises:
        CannotRunError: if the lesson lacks a kernel, or a child process gave no result.
    """
    everything = {**CASES, **TARGETS}
    lacking = {n for case in everything.values() for n in case.kernels} - sources.keys()
    if lacking:
        raise CannotRunError(f"the lesson has no kernel {', '.join(sorted(lacking))}")
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "lesson_kernels.py"
        kernels.write_text(module_text(sources), encoding="utf-8")
        jobs = {name: lambda name=name: [_plain(name, kernels, sources)] for name in CASES}
        jobs["memcheck"] = lambda: _memcheck(kernels, sources)
        jobs["initcheck"] = lambda: _initcheck(kernels, sources)
        wanted = [name for name in jobs if not only or name in only]
        with ThreadPoolExecutor(PARALLEL) as pool:
            # The slow ones first; the results in the lesson's order.
            futures = {name: pool.submit(jobs[name]) for name in reversed(wanted)}
            entries = [entry for name in wanted for entry in futures[name].result()]
        if not only or "ncu" in only:
            entries += _ncu(kernels, sources)  # alone: its counters see everybody's traffic
        return entries


# ---------------------------------------------------------------------------------------------
# The lesson's kernels
# ---------------------------------------------------------------------------------------------


def kernel_sources(notebook: Path) -> dict[str, str]:
    """Return the text of each ``@triton.jit`` function in a notebook, and of constants they use.

    Args:
        notebook: its path.

    Returns:
        name -> source, in the notebook's order; constants are whole assignments.
    """
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    functions: dict[str, str] = {}
    constants: dict[str, str] = {}
    for text in texts:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and _is_kernel(node):
                first = min(d.lineno for d in node.decorator_list)
                functions[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if _is_constant(node.value):
                    constants[node.targets[0].id] = ast.unparse(node)
    used = {
        name.id
        for source in functions.values()
        for name in ast.walk(ast.parse(source))
        if isinstance(name, ast.Name)
    }
    return {**{n: c for n, c in constants.items() if n in used and n.isupper()}, **functions}


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d).startswith("triton.jit") for d in node.decorator_list)


def _is_constant(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) == "tl.constexpr"
    return isinstance(value, ast.Constant)


def module_text(sources: dict[str, str]) -> str:
    """Return a Python module that holds these kernels."""
    return "\n\n".join([_HEAD, *sources.values()]) + "\n"


# ---------------------------------------------------------------------------------------------
# Child processes
# ---------------------------------------------------------------------------------------------


def run_child(name: str, kernels: Path) -> None:
    """Run one incident in this process, and print what it saw as the last line."""
    spec = importlib.util.spec_from_file_location("lesson_kernels", kernels)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lesson_kernels"] = module
    spec.loader.exec_module(module)
    seen = {**CASES, **TARGETS}[name].run(module)
    print(_RESULT + json.dumps(dataclasses.asdict(seen)), flush=True)
    if name in CASES:
        # After an error on the GPU, an orderly end would only report that error again. A tool that
        # watches this process needs the orderly end for its summary.
        os._exit(0)


def _start(name: str, kernels: Path, before: Sequence[str] = (), **environment: str):
    command = [
        *before,
        *(sys.executable, "-m", "course_utils.authoring.incidents"),
        *("--child", name, str(kernels)),
    ]
    here = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    whole = {**os.environ, "PYTHONPATH": here, **environment}
    whole.pop("TRITON_INTERPRET", None)
    return subprocess.run(
        command, capture_output=True, text=True, env=whole, timeout=CHILD_TIMEOUT_S
    )


def _plain(name: str, kernels: Path, sources: dict[str, str]) -> dict[str, Any]:
    case = CASES[name]
    try:
        child = _start(name, kernels)
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"{name} was not done after {CHILD_TIMEOUT_S} s") from None
    seen = _result(child)
    if seen is None:
        raise CannotRunError(
            f"{name} gave no result (exit status {child.returncode}). It said:\n"
            + child.stderr[-2000:]
        )
    if case.stderr:
        lines = (child.stdout + child.stderr).splitlines()
        seen.excerpt = [clean(line) for line in lines if re.search(case.stderr, line)][:1]
    return entry(name, case, seen, sources)


def _result(child: subprocess.CompletedProcess) -> Seen | None:
    for line in reversed(child.stdout.splitlines()):
        if line.startswith(_RESULT):
            return Seen(**json.loads(line.removeprefix(_RESULT)))
    return None


def entry(name: str, case: Case, seen: Seen, sources: dict[str, str]) -> dict[str, Any]:
    """Return one incident as the JSON has it."""
    return {
        "name": name,
        "mistake": case.mistake,
        "kernels": {kernel: incidents.fingerprint(sources[kernel]) for kernel in case.kernels},
        **dataclasses.asdict(seen),
    }


# ---------------------------------------------------------------------------------------------
# Tools
# ---------------------------------------------------------------------------------------------


def _memcheck(kernels: Path, sources: dict[str, str]) -> list[dict[str, Any]]:
    entries = []
    for name, environment, words in (
        ("memcheck_cached", {}, "With PyTorch's caching allocator"),
        ("memcheck", UNCACHED, "With every tensor allocated on its own"),
    ):
        seen = _sanitize("memcheck", "memcheck", kernels, environment, words)
        entries.append(entry(name, TARGETS["memcheck"], seen, sources))
    return entries


def _initcheck(kernels: Path, sources: dict[str, str]) -> list[dict[str, Any]]:
    words = "With every tensor allocated on its own"
    seen = _sanitize("initcheck", "initcheck", kernels, UNCACHED, words)
    return [entry("initcheck", TARGETS["initcheck"], seen, sources)]


def _sanitize(
    tool: str, target: str, kernels: Path, environment: dict[str, str], words: str
) -> Seen:
    sanitizer = find("compute-sanitizer")
    if sanitizer is None:
        return Seen("tool output", f"compute-sanitizer is not installed, so no {tool}.")
    try:
        # Unlimited: by default it stops printing after 100 errors, and would count on.
        command = (sanitizer, "--tool", tool, "--print-limit", "0")
        child = _start(target, kernels, command, **environment)
    except subprocess.TimeoutExpired:
        return Seen("tool output", f"{tool} was not done after {CHILD_TIMEOUT_S} s.")
    lines = (child.stdout + child.stderr).splitlines()
    errors = [int(m[1]) for line in lines if (m := re.search(r"ERROR SUMMARY: (\d+)", line))]
    if not errors:
        said = clean(" / ".join(lines[-3:]))
        return Seen("tool output", f"{tool} did not work here: {said[:200]}")
    says = f"{words}, {tool} reports {errors[0]} errors."
    seen = {"errors": errors[0], "kinds": sanitizer_kinds(lines)}
    return Seen("tool output", says, seen, sanitizer_excerpt(lines))


def sanitizer_excerpt(lines: Sequence[str]) -> list[str]:
    """Keep of compute-sanitizer's output the first error and the summary.

    Args:
        lines: all that it wrote; its own lines begin with "=========".
    """
    own = [line for line in lines if line.startswith("=========")]
    kept: list[str] = []
    for line in own:
        text = line.removeprefix("=========").rstrip()
        if re.search(r"COMPUTE-SANITIZER|Host Frame|Host Backtrace|host backtrace", text):
            if kept:
                break
            continue
        if text.strip():
            kept.append(clean(text))
        elif kept:
            break
    summary = [clean(line.removeprefix("=========")) for line in own if "ERROR SUMMARY" in line]
    return [*[line for line in kept if "ERROR SUMMARY" not in line][:6], *summary[:1]]


def sanitizer_kinds(lines: Sequence[str]) -> dict[str, int]:
    """Count compute-sanitizer's errors by their first lines, such as "Invalid __global__ write …".

    Args:
        lines: all that it wrote. An error's first line is indented by one blank, its details more.
    """
    kinds: dict[str, int] = {}
    for line in lines:
        head = re.match(
            r"========= (?=\S)(?!COMPUTE-SANITIZER|ERROR SUMMARY|Target appl|Error: proc)(.*)", line
        )
        if head:
            kind = clean(head[1])
            kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def clean(text: str) -> str:
    """Take what is only true of this run and machine out of a line: folders, addresses."""
    text = re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", text)
    text = re.sub(r"0x[0-9a-fA-F]{5,}", "0x…", text)
    return re.sub(r"\s+", " ", text).strip()[:160]


def _ncu(kernels: Path, sources: dict[str, str]) -> list[dict[str, Any]]:
    seen = _profile(kernels)
    return [entry("ncu", TARGETS["ncu"], seen, sources)]


def _profile(kernels: Path) -> Seen:
    from course_utils.authoring.counters import CannotCountError, find_ncu

    try:
        ncu = find_ncu()
    except CannotCountError as error:
        return Seen("tool output", str(error))
    before = [
        *(ncu, "--profile-from-start", "off", "--target-processes", "application-only"),
        *("--clock-control", "none", "--metrics", ",".join(METRICS)),
        *("--csv", "--page", "raw", "--print-units", "base"),
    ]
    try:
        child = _start("ncu", kernels, before)
    except subprocess.TimeoutExpired:
        return Seen("tool output", f"ncu was not done after {CHILD_TIMEOUT_S} s.")
    numbers = ncu_medians(child.stdout)
    if numbers is None:
        said = clean(child.stdout[-300:] + child.stderr[-300:])
        return Seen("tool output", f"ncu did not work here: {said}")
    table = [f"{'':31s}" + "".join(f"{case:>14s}" for case in NCU_CASES)]
    for key, words in METRICS.items():
        table.append(f"{words:31s}" + "".join(f"{_show(v):>14s}" for v in numbers[key]))
    says = (
        "ncu, on GELU over 2^26 floats: from an aligned tensor, from one 4 bytes later, and of "
        f"one float fewer; medians of {NCU_REPEATS} launches:"
    )
    return Seen("tool output", says, {"cases": list(NCU_CASES), **numbers}, table)


def ncu_medians(text: str) -> dict[str, list[float | None]] | None:
    """Return, for each of METRICS, one median for each of NCU_CASES; None where it was not given.

    Args:
        text: ncu's raw page as CSV: a row of names, one of units, then one for each launch. Other
            lines do not count.

    Returns:
        None if there are not as many launches as `ncu_target` makes, or times are not in ns.
    """
    rows = list(csv.DictReader(line for line in text.splitlines() if line[:1] == '"'))
    units, launches = rows[0] if rows else {}, rows[1:]
    if len(launches) != len(NCU_CASES) * NCU_REPEATS:
        return None
    if units.get("gpu__time_duration.sum") not in ("ns", "nsecond"):
        return None

    def median(key: str, case: int) -> float | None:
        mine = launches[case * NCU_REPEATS : (case + 1) * NCU_REPEATS]
        known = [number for launch in mine if (number := _number(launch.get(key))) is not None]
        return statistics.median(known) if known else None

    return {key: [median(key, case) for case in range(len(NCU_CASES))] for key in METRICS}


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _show(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def find(tool: str) -> str | None:
    """Return the path of one of CUDA's command-line tools; None where it is not installed."""
    if found := shutil.which(tool):
        return found
    places = sorted(Path("/usr/local").glob(f"cuda*/bin/{tool}"))
    return str(places[-1]) if places else None


if __name__ == "__main__":
    sys.exit(main())
