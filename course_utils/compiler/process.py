"""Processes that compile, seen from here: started when needed, stopped when they take too long.

A compiler can abort, and take with it the process that it runs in; or it can take minutes. Here it
runs in a process of its own, so that neither harms a notebook. A process compiles many kernels,
one after the other, because starting one takes longer than to compile.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from course_utils.compiler.pipe import TRITON_FOLDER, receive, send
from course_utils.compiler.request import Request

START_SECONDS = 120  # to import Triton from a cold disk
_CHILD = "course_utils.compiler.child"
_ROOT = Path(__file__).resolve().parents[2]


class StoppedError(Exception):
    """The process took too long and was stopped."""


class DiedError(Exception):
    """The process ended while it compiled.

    Attributes:
        status: its exit status; negative for the signal that ended it.
        printed: what it printed meanwhile.
    """

    def __init__(self, status: int, printed: str) -> None:
        super().__init__(f"exit status {status}")
        self.status = status
        self.printed = printed


class _NotTakenError(Exception):
    """The process did not take the request: it had idled out."""


class _Process:
    """One process, and its folder for temporary files."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.folder = tempfile.mkdtemp(prefix="writing-fast-kernels-")
        self.printed = Path(self.folder, "printed")
        with self.printed.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, self.folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder,
                env=environment(self.folder),
                # The tools that it starts are stopped with it; a Ctrl-C is handled here.
                start_new_session=True,
            )

    def run(self, request: Request, seconds: float) -> tuple[dict[str, Any], str]:
        """Return the answer to a request, and what was printed meanwhile."""
        try:
            before = self.printed.stat().st_size
        except FileNotFoundError:  # it has idled out, or somebody cleared the temporary folder
            raise _NotTakenError from None
        try:
            send(self.process.stdin, request)
            self._receive(START_SECONDS)
        except (OSError, EOFError):
            if self._status() == 0:
                raise _NotTakenError from None
            raise DiedError(self._status(), self._text(before)) from None
        try:
            return self._receive(seconds), self._text(before)
        except EOFError:
            raise DiedError(self._status(), self._text(before)) from None

    def _receive(self, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        pipe = self.process.stdout.fileno()

        def read(size: int) -> bytes:
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise StoppedError
            return os.read(pipe, size)

        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            return receive(read)

    def _status(self) -> int:
        """Return the exit status of a process that closed its side."""
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _text(self, begin: int) -> str:
        with self.printed.open("rb") as file:
            file.seek(begin)
            return file.read().decode("utf-8", errors="replace")

    def close(self) -> None:
        """End the process and what it started, and remove its files."""
        if self.owner == os.getpid():  # a fork must not end its parent's
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is not wanted any more
                pipe.close()


def environment(folder: str) -> dict[str, str]:
    """Return the environment of a process that compiles, with `folder` for its files."""
    kept = {
        name: value
        for name, value in os.environ.items()
        # TRITON_INTERPRET above all; of Triton's other settings only where its tools are.
        if not name.startswith(("TRITON_", "MLIR_", "LLVM_")) or name in tools()
    }
    return {
        **kept,
        # The same Triton as here, however it came to be importable.
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *(entry for entry in sys.path if entry)]),
        "PYTHONWARNINGS": "ignore",
        # Results are kept by course_utils.compiler.cache; Triton's own cache has no ptxas log.
        "TRITON_CACHE_DIR": os.path.join(folder, TRITON_FOLDER),
        "TMPDIR": folder,
        "CUDA_VISIBLE_DEVICES": "",
    }


def tools() -> dict[str, str]:
    """Return the variables that replace Triton's own tools, where they are set."""
    names = (name for name in os.environ if name.startswith("TRITON_") and name.endswith("_PATH"))
    return {name: os.environ[name] for name in sorted(names)}


_idle: list[_Process] = []
_lock = threading.Lock()


def run(request: Request, seconds: float) -> tuple[dict[str, Any], str]:
    """Compile in a process; return its answer (see `child.py`) and what it printed.

    Safe from several threads: each gets a process of its own, which is kept for later.

    Raises:
        StoppedError: it took longer than `seconds`.
        DiedError: the process ended.
    """
    while True:
        process = _take()
        try:
            result = process.run(request, seconds)
        except _NotTakenError:
            process.close()
            continue
        except BaseException:  # KeyboardInterrupt too: what it is doing now nobody waits for
            process.close()
            raise
        with _lock:
            _idle.append(process)
        return result


def _take() -> _Process:
    """Return a process that waits, or a new one."""
    while True:
        with _lock:
            if not _idle:
                break
            process = _idle.pop()
        if process.owner == os.getpid() and process.process.poll() is None:
            return process
        process.close()
    return _Process()


@atexit.register
def close_all() -> None:
    """End all processes that wait for work."""
    while True:
        with _lock:
            if not _idle:
                return
            process = _idle.pop()
        process.close()
