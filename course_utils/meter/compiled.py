"""Count the kernels that torch.compile generates, by their arguments.

Inductor writes a Python module per compiled graph; in it stand the generated kernels (Triton on a
GPU, C++ on a CPU) and the code that calls them with their buffers. While a meter is open, those
kernels are wrapped: each call is a launch whose ``in_ptr`` arguments are read, ``out_ptr``
arguments written and ``in_out_ptr`` arguments both, each byte once. That is the compulsory
traffic; what is inside such a kernel is not watched, which the launch says in a note.

This is the only file that touches Inductor.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from course_utils.meter.torch_ops import active_counters, tensor_bytes
from course_utils.meter.traffic import ArgumentTraffic, Launch, Traffic

_NOTE = (
    "kernels from torch.compile are counted by their arguments, each byte once; "
    "their FLOPs are not counted"
)

_TRITON_KERNEL = re.compile(
    r"^(\w+) = async_compile\.triton\(.*?^def \w+\((.*?)\):$", re.DOTALL | re.MULTILINE
)
_CPP_KERNEL = re.compile(
    r"^(\w+) = async_compile\.cpp(?:_pybinding)?\(.*?\bkernel\((.*?)\)\s*\{",
    re.DOTALL | re.MULTILINE,
)

_lock = threading.Lock()
_count = 0
_undo: list[tuple[Any, str, Any]] = []


class _CountedKernel:
    """A generated kernel that reports its calls; whatever else is asked of it is passed on."""

    def __init__(self, kernel: Any, name: str, parameters: list[str]) -> None:
        self._kernel = kernel
        self._name = name
        self._parameters = parameters

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._kernel, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # C++ kernels are called
        self._report(args)
        return self._kernel(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:  # Triton kernels are run
        self._report(args)
        return self._kernel.run(*args, **kwargs)

    def _report(self, args: tuple) -> None:
        counters = active_counters()
        if counters:
            launch = _count_call(self._name, dict(zip(self._parameters, args, strict=False)))
            for on_launch in counters:
                on_launch(launch)


def _count_call(name: str, arguments: dict[str, Any]) -> Launch:
    counted = {}
    for parameter, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            continue
        size = tensor_bytes(value)
        read = 0 if parameter.startswith("out_ptr") else size
        written = 0 if parameter.startswith("in_ptr") else size
        counted[parameter] = ArgumentTraffic(read, written, read, written, nbytes=size)
    total = Traffic.total(counted.values())
    return Launch(name, "compiled", total, counted, notes=(_NOTE,))


def kernels_in(source: str) -> dict[str, list[str]]:
    """Find the generated kernels in an Inductor module: name -> parameter names.

    Args:
        source: the module's text.
    """
    found = {}
    for name, parameters in _TRITON_KERNEL.findall(source):
        found[name] = [p.split(":")[0].strip() for p in parameters.split(",")]
    for name, parameters in _CPP_KERNEL.findall(source):
        found[name] = [p.split()[-1].lstrip("*&") for p in parameters.split(",")]
    return found


def _wrap(module: ModuleType) -> None:
    try:
        source = Path(module.__file__).read_text()
    except (OSError, TypeError):
        return
    for name, parameters in kernels_in(source).items():
        kernel = getattr(module, name, None)
        if kernel is not None and not isinstance(kernel, _CountedKernel):
            _undo.append((module, name, kernel))
            setattr(module, name, _CountedKernel(kernel, name, parameters))


def _watch_inductor() -> None:
    from torch._inductor.codecache import PyCodeCache

    original = PyCodeCache.load_by_key_path
    if getattr(original, "watched", False):
        return
    for module in list(PyCodeCache.modules):
        _wrap(module)

    @functools.wraps(original)
    def load_by_key_path(*args: Any, **kwargs: Any) -> ModuleType:
        module = original(*args, **kwargs)
        with _lock:
            if _count:
                _wrap(module)
        return module

    load_by_key_path.watched = True
    _undo.append((PyCodeCache, "load_by_key_path", vars(PyCodeCache)["load_by_key_path"]))
    PyCodeCache.load_by_key_path = staticmethod(load_by_key_path)


def install() -> None:
    """Start watching generated kernels; calls nest, each needs one :func:`uninstall`."""
    global _count
    with _lock:
        _count += 1
        if _count > 1:
            return
        # Inductor is heavy: it is only looked at once torch.compile has been.
        if "torch._dynamo" in sys.modules:
            _watch_inductor()
            return
        compile_function = torch.compile

        @functools.wraps(compile_function)
        def compile_and_watch(*args: Any, **kwargs: Any) -> Any:
            with _lock:
                if _count:
                    _watch_inductor()
            return compile_function(*args, **kwargs)

        _undo.append((torch, "compile", compile_function))
        torch.compile = compile_and_watch


def uninstall() -> None:
    """Stop watching once every :func:`install` has been undone."""
    global _count
    with _lock:
        _count -= 1
        if _count:
            return
        while _undo:
            owner, name, old = _undo.pop()
            setattr(owner, name, old)
