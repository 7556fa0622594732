"""Execute notebooks in place, in interpreter mode, and leave them in canonical form.

    python -m course_utils.authoring.execute [--jobs N] [NOTEBOOK ...]

The committed outputs are those of a machine without a GPU, so that anyone can make them again. A
notebook that fails is left as it was.
"""

import argparse
import importlib
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ipykernel.kernelspec
import nbclient
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course_utils import course_map
from course_utils.authoring import canonical, notebooks
from course_utils.authoring.notebooks import NotebookError

CELL_SECONDS = 300
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class OwnKernel(AsyncKernelManager):
    """A kernel that runs under this very interpreter, whatever kernelspecs are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """The spec that ipykernel would install for this interpreter."""
        spec = KernelSpec(**ipykernel.kernelspec.get_kernel_dict())
        # Its warnings are about networks; what cells warn of is in their outputs all the same.
        spec.argv.append("--log-level=ERROR")
        return spec


def environment(scratch: str) -> dict[str, str]:
    """The kernel's environment: no GPU in sight, and the same results on every run.

    `scratch` is an empty folder, where the kernel may note a reader's progress.
    """
    chosen = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    # A machine's own Python, used as it is, need not have the course installed.
    search = [str(notebooks.ROOT), chosen.get("PYTHONPATH", "")]
    return chosen | {
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        # Nobody has passed a task yet.
        course_map.PATH_VARIABLE: os.path.join(scratch, "progress.json"),
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
        # The order in which threads add up changes a float32 sum.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def executed(path: Path, cell_seconds: float = CELL_SECONDS) -> str:
    """Execute the notebook file; returns what the file should hold now.

    The working directory is the notebook's folder. Raises `NotebookError`, which names notebook,
    cell and line.
    """
    notebook = notebooks.read(path)
    try:
        notebook = canonical.canonical(notebook, outputs=False)
    except NotebookError as error:
        raise NotebookError(f"{notebooks.name(path)}, {error}") from None
    begun = []
    client = nbclient.NotebookClient(
        notebook,
        km=OwnKernel(),
        timeout=cell_seconds,
        # Not the execution counts: a kernel that dies at once may not have sent its last one.
        on_cell_execute=lambda cell, cell_index: begun.append(cell),
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(Path(path).resolve().parent)}},
    )
    try:
        with tempfile.TemporaryDirectory() as scratch:
            client.execute(env=environment(scratch))
    except CellExecutionError:
        raise NotebookError(f"{notebooks.name(path)}, {_failure(notebook)}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        what = f"took longer than {cell_seconds:g} s"
        if isinstance(error, DeadKernelError):
            what = "ended the kernel"
        cell = f"cell {begun[-1].id!r}" if begun else "the first cell"
        raise NotebookError(f"{notebooks.name(path)}, {cell}: {what}") from None
    notebook.metadata.course = {"executed_source": notebooks.source_hash(notebook)}
    return canonical.text(canonical.canonical(notebook, outputs=True))


def execute(path: Path, cell_seconds: float = CELL_SECONDS) -> bool:
    """Execute the notebook in place; says whether its file changed. Raises `NotebookError`."""
    if not notebooks.keeps_outputs(path):
        raise NotebookError(f"{notebooks.name(path)}: only lessons are committed executed")
    wanted = executed(path, cell_seconds).encode()
    if Path(path).read_bytes() == wanted:
        return False
    # All or nothing: an interrupted write must not leave half a notebook.
    draft = Path(path).with_suffix(".ipynb.part")
    draft.write_bytes(wanted)
    draft.replace(path)
    return True


def _failure(notebook) -> str:
    """Which cell raised, at which line of it, and what."""
    for cell in notebooks.code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in notebooks.tags(cell):
                trace = COLOURS.sub("", "\n".join(output.traceback))
                lines = re.findall(rf"Cell In\[{cell.execution_count}\], line (\d+)", trace)
                line = f", line {lines[0]}" if lines else ""
                return f"cell {cell.id!r}{line}: {output.ename}: {output.evalue}"
    return "a cell raised"


def _run(path: Path) -> tuple[bool, str]:
    start = time.monotonic()
    try:
        changed = execute(path)
    except NotebookError as error:
        return False, f"FAILED {error}"
    word = "executed" if changed else "executed, nothing changed"
    return True, f"{notebooks.name(path)}: {word} ({time.monotonic() - start:.0f} s)"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 where a notebook failed."""
    parser = argparse.ArgumentParser(description="Execute notebooks in place and normalise them.")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks at a time (default: 2)")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every lesson")
    options = parser.parse_args(arguments)
    paths = options.notebooks or notebooks.lessons()
    if not paths:
        print("There are no lessons in notebooks/ yet.")
        return 0
    # Where Matplotlib has no font cache yet it makes one, slowly, and says so in a cell's output.
    importlib.import_module("matplotlib.font_manager")
    with ProcessPoolExecutor(max_workers=max(1, min(options.jobs, len(paths)))) as pool:
        results = []
        for done in pool.map(_run, paths):
            print(done[1], flush=True)
            results.append(done[0])
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
