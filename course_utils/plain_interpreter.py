"""Run kernels in Triton's interpreter as it comes, without what `setup()` mends in it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 120
_HEAD = "import torch\nimport triton\nimport triton.language as tl"


def in_plain_interpreter(program: str, *kernels: Any) -> str:
    """Run a small program in a fresh Python, in Triton's own interpreter, and return its output.

    Args:
        program: what to run; it sees ``torch``, ``triton``, ``tl`` and the kernels by their names.
            Its tensors live on the CPU.
        kernels: functions under ``@triton.jit`` whose source can be found; they see no other
            globals than these.

    Raises:
        RuntimeError: if the program fails; the message is the end of what it wrote.
    """
    sources = [textwrap.dedent(inspect.getsource(kernel.fn)) for kernel in kernels]
    text = "\n\n".join([_HEAD, *sources, textwrap.dedent(program).strip()])
    with tempfile.TemporaryDirectory() as folder:
        # Triton reads the kernels' source from a file.
        path = Path(folder) / "program.py"
        path.write_text(text + "\n", encoding="utf-8")
        child = subprocess.run(
            [sys.executable, "-W", "ignore", str(path)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            env={**os.environ, "TRITON_INTERPRET": "1"},
        )
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise RuntimeError(f"the program failed in Triton's interpreter: {last[0]}")
    return child.stdout.rstrip()
