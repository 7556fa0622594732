"""How the process that compiles and the one that asks talk: pickled bytes behind their length."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

TRITON_FOLDER = "triton"  # in the temporary folder; for what Triton keeps, which nobody reads
_LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(read: Callable[[int], bytes]) -> Any:
    """Read one message by a function that returns some bytes, at most so many, or none at the end.

    Raises:
        EOFError: the other side is gone.
    """
    (length,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    return pickle.loads(_exactly(read, length))


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    parts = []
    while size:
        part = read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
