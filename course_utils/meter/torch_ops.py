"""See every eager PyTorch op while it runs, on any device, ``meta`` included.

A dispatch mode is told of each op, inside autograd's backward threads too, below autograd and above
the device. What an op moves and computes is counted by :mod:`course_utils.meter.op_rules`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from course_utils.meter.op_rules import count_op, flatten
from course_utils.meter.traffic import Launch

_PYTORCHS_OWN = ("aten", "prims", "prim", "_c10d_functional")
# Ops that take Python functions and refuse to run their own loop under a mode.
_CONTROL_FLOW = ("cond", "while_loop", "while_loop_stack_output", "map_impl", "scan",
                 "associative_scan")  # fmt: skip

_RECIPE = torch._C.DispatchKey.CompositeImplicitAutograd


class CountingMode(TorchDispatchMode):
    """The dispatch mode behind a Meter: hands every counted op to ``on_launch``."""

    supports_higher_order_operators = True

    def __init__(self, on_launch: Callable[[Launch], None]) -> None:
        super().__init__()
        self.on_launch = on_launch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile run under the meter instead of silently falling back to eager."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._open_higher_order_op(func, args, kwargs)
        if _is_composite(func):  # such as `linear`; autograd opens them, inference_mode does not
            with self:
                return func._op_dk(_RECIPE, *args, **kwargs)
        if func.namespace not in _PYTORCHS_OWN:
            return self._open_custom_op(func, args, kwargs)
        result = func(*args, **kwargs)
        launch = count_op(func, args, kwargs, result)
        if launch is not None:
            self.on_launch(launch)
        return result

    def _open_custom_op(self, func, args, kwargs):
        # A custom op is counted by what its implementation does. Calling the kernel of its own
        # dispatch key with the mode back on lets the ops and launches inside reach us again.
        key = _implementation_key(func, args, kwargs)
        seen: list[Launch] = []
        if key is None:
            result = func(*args, **kwargs)
        else:
            with self, _overhearing(self, seen):
                result = func._op_dk(key, *args, **kwargs)
        if not seen:
            # Written in C++ or CUDA, or run on `meta`: counted by its operands, like PyTorch's own.
            launch = count_op(func, args, kwargs, result)
            if launch is not None:
                # A meter around this one saw the op itself only if it was called in the usual way.
                around = active_counters() if key is not None else []
                for on_launch in (*around, self.on_launch):
                    on_launch(launch)
        return result

    def _open_higher_order_op(self, func, args, kwargs):
        # Ops such as `cond` and `flex_attention` run other ops; those are what is counted.
        dense = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        others = [m for m in _get_current_dispatch_mode_stack() if not isinstance(m, CountingMode)]
        if dense is not None and not others and func.name() not in _CONTROL_FLOW:
            with self:
                return dense(*args, **kwargs)
        return func(
            *(self._watch(a) for a in args), **{k: self._watch(v) for k, v in kwargs.items()}
        )

    def _watch(self, value: Any) -> Any:
        if not callable(value) or isinstance(value, torch.Tensor):
            return value

        def watched(*args, **kwargs):
            with self:
                return value(*args, **kwargs)

        return watched

    def leave(self) -> None:
        """Take this mode off the thread's stack, also from below meters opened after it.

        Raises:
            RuntimeError: if this thread did not enter it.
        """
        stack = _get_current_dispatch_mode_stack()
        if not any(mode is self for mode in stack):
            raise RuntimeError(
                "this meter was opened in another thread; leave its `with` block in the thread "
                "that entered it"
            )
        # A `with` block inside a generator may end after one that was opened later.
        above = []
        while stack[-1] is not self:
            above.append(_pop_mode())
            stack.pop()
        self.__exit__(None, None, None)
        for mode in reversed(above):
            _push_mode(mode)


@contextlib.contextmanager
def _overhearing(mode: CountingMode, seen: list[Launch]) -> Iterator[None]:
    """Copy into ``seen`` what a mode counts meanwhile."""
    on_launch = mode.on_launch

    def overhear(launch: Launch) -> None:
        seen.append(launch)
        on_launch(launch)

    mode.on_launch = overhear
    try:
        yield
    finally:
        mode.on_launch = on_launch


def active_counters() -> list[Callable[[Launch], None]]:
    """Return ``on_launch`` of every meter open around the caller, outermost first.

    The dispatch-mode stack is asked rather than a thread-local of our own because autograd hands
    that stack to its backward threads: a Triton launch there belongs to the same meters.
    """
    stack = _get_current_dispatch_mode_stack()
    return [mode.on_launch for mode in stack if isinstance(mode, CountingMode)]


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Run a block without any dispatch mode, for the meters' own housekeeping."""
    with _disable_current_modes():
        yield


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an op has no kernel of its own, only a recipe of other ops."""
    # Asked of the dispatcher, not of the op: PyTorch also keeps Python recipes for ops that do have
    # kernels, and running those would change what runs.
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _RECIPE)
    except RuntimeError:  # such as `dim`, which asks a tensor subclass for metadata
        return False


def _implementation_key(func: Any, args: tuple, kwargs: dict) -> Any:
    """Name the dispatch key under which a custom op's implementation is registered."""
    for value in flatten([list(args), list(kwargs.values())]):
        if isinstance(value, torch.Tensor):
            backend = {"cpu": "CPU", "cuda": "CUDA"}.get(value.device.type)
            keys = [backend, "CompositeExplicitAutograd"] if backend else []
            for key in (getattr(torch._C.DispatchKey, name) for name in keys):
                if hasattr(func, "_op_dk") and func.has_kernel_for_dispatch_key(key):
                    return key
            return None
    return None
