"""Count the kernels that torch.compile generates, by their arguments.

Inductor writes a Python module per compiled graph; in it stand the generated kernels (Triton on a
GPU, C++ on a CPU) and the code that calls them with their buffers. While a meter is open, those
kernels are wrapped: each call is a launch that reads its inputs and writes its outputs, each whole
and each byte once. What is inside such a kernel is not watched, which the launch says in a note.
Replays of CUDA graphs (``mode="reduce-overhead"``) call no kernel, and are not seen.

This is the only file that touches Inductor.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from course_utils.meter.tensors import tensor_bytes
from course_utils.meter.torch_ops import active_counters, uncounted
from course_utils.meter.traffic import ArgumentTraffic, Launch, Traffic

_NOTE = (
    "kernels from torch.compile are counted by their arguments, each byte once; "
    "their FLOPs are not counted"
)

_TRITON_KERNEL = re.compile(
    r"^(\w+) = async_compile\.triton\('\w+', '{3}(.*?)'{3}", re.DOTALL | re.MULTILINE
)
_TRITON_DEF = re.compile(r"^def \w+\((.*?)\):$", re.DOTALL | re.MULTILINE)
_MUTATED = re.compile(r"'mutated_arg_names': \[(.*?)\]")
_CPP_KERNEL = re.compile(
    r"^(\w+) = async_compile\.cpp(?:_pybinding)?\(.*?\bkernel\((.*?)\)\s*\{",
    re.DOTALL | re.MULTILINE,
)

_lock = threading.Lock()
_count = 0
_undo: list[tuple[Any, str, Any]] = []


@dataclass(frozen=True)
class Parameter:
    """A parameter of a generated kernel, and what the kernel does with it if it is a tensor."""

    name: str
    is_read: bool
    is_written: bool


class _CountedKernel:
    """A generated kernel that reports its calls; whatever else is asked of it is passed on."""

    def __init__(self, kernel: Any, name: str, parameters: list[Parameter]) -> None:
        self._kernel = kernel
        self._name = name
        self._parameters = parameters

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._kernel, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # C++ kernels are called
        with uncounted():
            result = self._kernel(*args, **kwargs)
        self._report(args)
        return result

    def run(self, *args: Any, **kwargs: Any) -> Any:  # Triton kernels are run
        # On a GPU the first run searches for the kernel's best configuration, with torch ops of
        # the search's own that are no traffic of the program.
        with uncounted():
            result = self._kernel.run(*args, **kwargs)
        self._report(args)
        return result

    def _report(self, args: tuple) -> None:
        counters = active_counters()
        if counters:
            launch = count_call(self._name, self._parameters, args)
            for on_launch in counters:
                on_launch(launch)


def count_call(name: str, parameters: list[Parameter], args: tuple) -> Launch:
    """Count one call of a generated kernel.

    Args:
        name: the kernel's name.
        parameters: its parameters, as :func:`kernels_in` found them.
        args: what it was called with, in the same order.
    """
    counted = {}
    for parameter, value in zip(parameters, args, strict=False):
        if isinstance(value, torch.Tensor):
            size = tensor_bytes(value)
            read, written = size * parameter.is_read, size * parameter.is_written
            counted[parameter.name] = ArgumentTraffic(read, written, read, written, nbytes=size)
    total = Traffic.total(counted.values())
    return Launch(name, "compiled", total, counted, notes=(_NOTE,))


def kernels_in(source: str) -> dict[str, list[Parameter]]:
    """Find the generated kernels in an Inductor module, and their parameters by kernel name.

    Args:
        source: the module's text.
    """
    found = {}
    for name, body in _TRITON_KERNEL.findall(source):
        *_helpers, parameters = _TRITON_DEF.findall(body)
        mutated = ",".join(_MUTATED.findall(body))
        names = [parameter.split(":")[0].strip() for parameter in parameters.split(",")]
        found[name] = [_triton_parameter(n, is_mutated=f"'{n}'" in mutated) for n in names]
    for name, parameters in _CPP_KERNEL.findall(source):
        found[name] = [_cpp_parameter(parameter) for parameter in parameters.split(",")]
    return found


def _triton_parameter(name: str, is_mutated: bool) -> Parameter:
    if name.startswith("in_out_ptr"):
        return Parameter(name, True, True)
    # Templates and users' own kernels name their parameters freely.
    is_output = name.startswith("out_ptr") or is_mutated
    return Parameter(name, not is_output, is_output)


def _cpp_parameter(declaration: str) -> Parameter:
    name = declaration.split()[-1].lstrip("*&")
    is_input = "const " in declaration
    return Parameter(name, is_input or name.startswith("in_out_ptr"), not is_input)


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
        if _count == 0:
            _start()
        _count += 1


def _start() -> None:
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
