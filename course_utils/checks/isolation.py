"""Run a reader's function where it can do no harm: in a fork of this process, with a time limit.

A fork has all the notebook's functions at hand without pickling them, in some milliseconds. An
endless loop in it is stopped, and a kernel that kills its process kills only that.

The fork computes on the CPU alone, on one thread: neither a CUDA context nor a pool of threads
survives a fork.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

_ENDED_WELL = 0


class TookTooLongError(Exception):
    """The function did not end in time, and was stopped.

    Attributes:
        seconds: the time it was given.
        printed: what it printed meanwhile.
    """

    def __init__(self, seconds: float, printed: str) -> None:
        super().__init__(f"stopped after {seconds:g} seconds")
        self.seconds = seconds
        self.printed = printed


class DiedError(Exception):
    """The process ended before the function returned.

    Attributes:
        cause: in words: by which signal, or with which exit status.
        printed: what it printed meanwhile.
    """

    def __init__(self, cause: str, printed: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.printed = printed


class FailedError(Exception):
    """The function raised; the message is the traceback."""


def run(function: Callable[[], Any], seconds: float) -> tuple[Any, str]:
    """Call ``function()`` in a fork of this process.

    Args:
        function: what to run; what it returns must be picklable.
        seconds: after how long it is stopped.

    Returns:
        What the function returned, and what it printed.

    Raises:
        TookTooLongError: it did not end in time.
        DiedError: the process ended before.
        FailedError: it raised.
    """
    with tempfile.TemporaryFile() as printed:
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        # What does not begin with it was not sent by `_be_the_child`, and is not unpickled.
        token = secrets.token_bytes(16)
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_the_child(function, token, writing, printed.fileno())
        os.close(writing)
        try:
            answer = _read(reading, time.monotonic() + seconds)
        except TimeoutError:
            _kill(child)
            raise TookTooLongError(seconds, _text(printed)) from None
        except BaseException:  # a Ctrl-C of the reader's
            _kill(child)
            raise
        finally:
            os.close(reading)
        _, status = os.waitpid(child, 0)
        _sweep(child)
        words = _text(printed)
        if not answer.startswith(token) or status != _ENDED_WELL:
            raise DiedError(_cause(status), words)
        worked, value = pickle.loads(answer.removeprefix(token))
        if not worked:
            raise FailedError(value)
        return value, words


def _be_the_child(function: Callable[[], Any], token: bytes, writing: int, printed: int) -> None:
    """Run the function, send what came out, and end; never returns."""
    status = 1
    try:
        os.setsid()  # what it starts is ended with it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        # What else was open is the notebook's: its sockets are none of an answer's business.
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)
        import torch

        torch.set_num_threads(1)
        # What Triton deprecates is no concern of the reader's.
        warnings.filterwarnings("ignore", module="triton")
        try:
            answer = pickle.dumps((True, function()))
        except Exception:
            answer = pickle.dumps((False, traceback.format_exc()))
        sys.stdout.flush()
        sys.stderr.flush()
        with open(writing, "wb") as stream:
            stream.write(token + answer)
        status = _ENDED_WELL
    finally:
        os._exit(status)


def _read(pipe: int, deadline: float) -> bytes:
    """Read a pipe to its end; TimeoutError at the deadline."""
    parts = []
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
            part = os.read(pipe, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    _sweep(child)


def _sweep(child: int) -> None:
    """End what the child had started and left running."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _text(printed: Any) -> str:
    printed.seek(0)
    return printed.read().decode("utf-8", errors="replace")


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"by signal {signal.Signals(number).name}"
        return f"by signal {number}"
    return f"with exit status {os.WEXITSTATUS(status)}"
