"""The public face of the meter."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from typing import Any

from course_utils.meter import compiled, report
from course_utils.meter.torch_ops import CountingMode
from course_utils.meter.traffic import Finding, Launch, Traffic
from course_utils.when_imported import when_imported


class Meter:
    """Count what a block of code does to memory.

    Eager PyTorch ops are counted on any device, ``meta`` included. Triton kernels launched inside
    run in Triton's interpreter, with the same results, and are counted tile by tile, on a machine
    with a GPU as well (a launch then returns None, not the compiled kernel). In the same way Python
    CUDA kernels (Numba's ``@cuda.jit``) run in Numba's simulator and are counted warp by warp (see
    :attr:`Launch.warps`). Meters nest, and each thread's meter counts its own thread (and the
    backward passes it starts). A meter that is opened again goes on counting where it stopped.

    Launches in the interpreter take turns, whatever thread they are from. What a meter cannot hold
    back is a kernel that another thread is compiling already when the first metered launch begins:
    open the meter before such a thread starts.

    Example:
        >>> with Meter() as meter:
        ...     y = chain(x)
        >>> meter.trips(x)
        10.0

    Attributes:
        launches: one :class:`Launch` per op or kernel that moved bytes, in order.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._undo: contextlib.ExitStack | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Meter:
        with self._lock:
            if self._undo is not None:
                raise RuntimeError(
                    "this meter is open already; open a second one with `with Meter() as inner:`"
                )
            # Should a step fail, the stack takes the earlier ones back.
            with contextlib.ExitStack() as undo:
                _triton("install")
                undo.callback(_triton, "uninstall")
                cuda = undo.enter_context(contextlib.ExitStack())
                undo.callback(when_imported("numba.cuda", lambda: cuda.enter_context(_cuda())))
                compiled.install()
                undo.callback(compiled.uninstall)
                mode = CountingMode(self.launches.append)
                mode.__enter__()
                undo.callback(mode.leave)
                self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            undo, self._undo = self._undo, None
        if undo is None:
            raise RuntimeError("this meter is not open: enter it with `with meter:` first")
        undo.close()

    @property
    def traffic(self) -> Traffic:
        """The sum over all launches."""
        return Traffic.total(launch.traffic for launch in self.launches)

    @property
    def findings(self) -> list[Finding]:
        """Everything wrong or noteworthy that was seen in memory, in order."""
        return [finding for launch in self.launches for finding in launch.findings]

    def trips(self, reference: Any) -> float:
        """Bytes moved in units of one pass over ``reference`` (a tensor, or bytes).

        Raises:
            TypeError: if ``reference`` has no size.
            ValueError: if ``reference`` is empty.
        """
        return self.traffic.trips(reference)

    def report(
        self, reference: Any = None, *, by_argument: bool = False, by_warp: bool = False
    ) -> str:
        """Write a table as plain text.

        Args:
            reference: the tensor one trip refers to; by default the largest one touched.
            by_argument: one row per argument instead of one per launch.
            by_warp: one row per array and kind of access of CUDA kernels: requests of warps,
                sectors, bank conflicts; and the branches at which warps diverged.
        """
        return report.to_text(self.launches, self.traffic, reference, by_argument, by_warp)

    def __repr__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        return report.to_html(self.launches, self.traffic)


def _cuda() -> contextlib.AbstractContextManager:
    # Numba is only looked at once the reader has imported it.
    from course_utils.meter import cuda_warps

    return cuda_warps.catching()


def _triton(action: str) -> None:
    # Imported here: eager ops can be counted where Triton does not exist (macOS, Windows).
    if importlib.util.find_spec("triton") is None:
        return
    from course_utils.meter import triton_tiles

    getattr(triton_tiles, action)()
