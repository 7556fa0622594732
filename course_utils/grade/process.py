"""Run code that nobody trusts in a fork, which can send back signed lines of JSON, and no more.

What comes back is never executed, as a pickle would be. It is signed with a key that only the
fork's memory holds, so that code which writes to every open file does not forge a message.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import resource
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_utils import course_map

_LARGEST_FILE = 64 * 2**20  # bytes
_GRACE = 10  # seconds
_END = {"end": True}
_BETWEEN_LOOKS = 0.01  # seconds

Send = Callable[..., None]
"""Sends a message, given as keywords whose values JSON knows."""


@dataclass(frozen=True)
class Ended:
    """What became of a fork.

    Attributes:
        messages: what it sent, in order.
        cause: how it ended, in words such as "ended the process by signal SIGKILL"; empty if it
            came to its end.
    """

    messages: tuple[dict[str, Any], ...]
    cause: str = ""


def run(work: Callable[[Send], None], seconds: float) -> Ended:
    """Call ``work(send)`` in a fork of this process, in an empty folder that is removed later.

    Its input is empty, what it prints is thrown away, and what this process has open is closed
    there. It knows of no screen and of no progress, and can write no file above 64 MiB. Like the
    checks' own forks it computes on the CPU, on one thread.

    Args:
        work: what to run.
        seconds: after how long it is stopped, with everything that it has started.
    """
    key = secrets.token_bytes(32)
    sys.stdout.flush()
    sys.stderr.flush()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile(buffering=0) as file,
    ):
        child = os.fork()
        if child == 0:
            _be_the_child(work, key, folder, file.fileno(), seconds)
        cause = _wait(child, seconds)
        file.seek(0)
        lines = file.read().split(b"\n")
    messages = [message for line in lines if (message := _opened(key, line))]
    if _END in messages:
        return Ended(tuple(messages[: messages.index(_END)]))
    return Ended(tuple(messages), cause or "ended the process with exit status 0")


def out_of_time(seconds: float) -> str:
    """Say that something took too long."""
    return f"did not end within {seconds:g} seconds, and was stopped"


def _be_the_child(
    work: Callable[[Send], None], key: bytes, folder: str, file: int, seconds: float
) -> None:
    """Run the work and end; never returns."""
    status = 1
    try:
        os.setsid()  # what it starts is ended with it
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but(file)
        _leave(folder)
        # Also of what the fork starts in sessions of their own, should it end before them.
        limit = math.ceil(seconds) + _GRACE
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        import torch

        torch.set_num_threads(1)
        work(lambda **message: _write(file, _signed(key, message)))
        _write(file, _signed(key, _END))
        status = 0
    finally:
        os._exit(status)


def _close_all_but(file: int) -> None:
    """Let input be empty and output be lost, and close what else this process has open."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2 and number != file:
            with contextlib.suppress(OSError):  # that of /dev/fd itself is closed already
                os.close(number)


def _leave(folder: str) -> None:
    """Go to a folder, with temporary files and progress in it, and no screen in sight."""
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[course_map.PATH_VARIABLE] = os.path.join(folder, "progress.json")
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["BROWSER"] = "true"  # the command, which does nothing
    os.environ.pop("DISPLAY", None)
    if "matplotlib" in sys.modules:
        sys.modules["matplotlib"].use("Agg")
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))


def _wait(child: int, seconds: float) -> str:
    """Wait for a fork, and return how it ended; "" for an exit status of 0."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _cause(status)
            if time.monotonic() > deadline:
                return out_of_time(seconds)
            time.sleep(_BETWEEN_LOOKS)
    finally:
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _cause(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended the process with exit status {code}" if code else ""
    with contextlib.suppress(ValueError):
        return f"ended the process by signal {signal.Signals(-code).name}"
    return f"ended the process by signal {-code}"


def _write(file: int, line: bytes) -> None:
    os.write(file, b"\n" + line + b"\n")


def _signed(key: bytes, message: dict[str, Any]) -> bytes:
    text = json.dumps(message).encode()
    return hmac.digest(key, text, "sha256").hex().encode() + b" " + text


def _opened(key: bytes, line: bytes) -> dict[str, Any] | None:
    """Return a line's message; None where it is not signed with the key."""
    signature, _, text = line.partition(b" ")
    wanted = hmac.digest(key, text, "sha256").hex().encode()
    return json.loads(text) if hmac.compare_digest(signature, wanted) else None
