"""Count Triton launches, tile by tile, in Triton's own interpreter.

While a meter is open, a Triton launch under it runs in the interpreter, on a machine with a GPU
too, and every load, store and atomic is written into a ledger. This is the only file of the course
that touches ``triton.runtime.interpreter``; what it relies on there is listed in
:func:`_launch_patches`.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter, jit

from course_utils.meter.ledger import Ledger, Position
from course_utils.meter.torch_ops import active_counters, uncounted
from course_utils.meter.traffic import Launch

# The interpreter's patches of triton.language are global: one interpreted launch at a time.
_interpreter_lock = threading.RLock()
_install_lock = threading.Lock()
_install_count = 0
_originals: list[tuple[Any, str, Any]] = []
_paused = threading.local()

_TRITON_FOLDER = os.path.dirname(triton.__file__)
_OWN_FOLDER = os.path.dirname(__file__)
_ABSENT = object()


# ---------------------------------------------------------------------------------------------
# The interpreter under observation
# ---------------------------------------------------------------------------------------------


def _position() -> Position:
    builder = interpreter.interpreter_builder
    return Position(tuple(builder.grid_idx), tuple(builder.grid_dim))


def _kernel_line() -> tuple[int | None, str]:
    """Find the kernel's line that is running: the nearest frame outside Triton and the meter."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TRITON_FOLDER, _OWN_FOLDER)):
            line = frame.f_lineno - frame.f_code.co_firstlineno + 1
            return line, linecache.getline(file, frame.f_lineno).strip()
        frame = frame.f_back
    return None, ""


class _WatchedMemory:
    """Stands in for the interpreter's native module: watches memory, forwards the rest."""

    def __init__(self, native: Any, ledger: Ledger) -> None:
        self._native = native
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers, mask, other, dtype):
        width = np.dtype(dtype).itemsize
        real, allowed = self._ledger.access(pointers, mask, width, True, False)
        return self._native.load(real, allowed, other, dtype)

    def store(self, pointers, value, mask):
        value = np.asarray(value)
        real, allowed = self._ledger.access(pointers, mask, value.itemsize, False, True)
        return self._native.store(real, value, allowed)

    def atomic_rmw(self, op, pointers, value, mask, semantic):
        real, allowed = self._ledger.access(pointers, mask, np.asarray(value).itemsize, True, True)
        return self._native.atomic_rmw(op, real, value, allowed, semantic)

    def atomic_cas(self, pointers, expected, value, semantic):
        everyone = np.ones(np.shape(pointers), bool)
        width = np.asarray(value).itemsize
        real, allowed = self._ledger.access(pointers, everyone, width, True, True)
        if not allowed.all():
            raise IndexError("an atomic compare-and-swap left its tensor: " + _last(self._ledger))
        return self._native.atomic_cas(real, expected, value, semantic)


def _last(ledger: Ledger) -> str:
    return next(reversed(ledger.sights.values())).story


# One FLOP per element of the result. Selects, casts and comparisons compute nothing.
_ELEMENTWISE = """
    fadd fsub fmul fdiv frem fneg precise_divf approx_divf minimumf maximumf minnumf maxnumf clampf
    cos exp exp2 floor ceil log log2 precise_sqrt sqrt sin erf rsqrt fabs
""".split()


def _count_elementwise(original: Callable, ledger: Ledger, per_element: int) -> Callable:
    def counted(builder, *args, **kwargs):
        result = original(builder, *args, **kwargs)
        if not ledger.reducing:
            ledger.flops += per_element * result.data.size
        return result

    return counted


def _count_dot(original: Callable, ledger: Ledger) -> Callable:
    def counted(builder, a, b, *args, **kwargs):
        result = original(builder, a, b, *args, **kwargs)
        ledger.flops += 2 * result.data.size * a.data.shape[-1]
        return result

    return counted


def _count_reduction(original: Callable, ledger: Ledger) -> Callable:
    def counted(operation, inputs):
        # A combine function may be interpreted element by element; its ops are this reduction.
        ledger.reducing += 1
        try:
            result = original(operation, inputs)
        finally:
            ledger.reducing -= 1
        if not ledger.reducing and inputs[0].dtype.is_floating():
            ledger.flops += inputs[0].handle.data.size
        return result

    return counted


def _launch_patches(ledger: Ledger) -> list[tuple[Any, str, Any]]:
    """List what is exchanged in the interpreter for one launch: (object, name, replacement)."""
    convert = interpreter._implicit_cvt

    def convert_with_region(value):
        result = convert(value)
        argument = ledger.argument_for(value)
        if argument is not None:
            result.handle.data = np.array([argument.base], dtype=np.uint64)
        return result

    builder = interpreter.InterpreterBuilder
    patches: list[tuple[Any, str, Any]] = [
        (interpreter, "_interpreter", _WatchedMemory(interpreter._interpreter, ledger)),
        (interpreter, "_implicit_cvt", convert_with_region),
        (builder, "create_dot", _count_dot(builder.create_dot, ledger)),
        (builder, "create_fma", _count_elementwise(builder.create_fma, ledger, 2)),
    ]
    for name in _ELEMENTWISE:
        original = getattr(builder, f"create_{name}", None)  # not every version has each op
        if original is not None:
            patches.append((builder, f"create_{name}", _count_elementwise(original, ledger, 1)))
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        patches.append((kind, "apply_impl", _count_reduction(kind.apply_impl, ledger)))
    return patches


@contextlib.contextmanager
def _exchanged(patches: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes, and put the old ones back whatever happens."""
    undo = []
    try:
        for owner, name, replacement in patches:
            undo.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, old in reversed(undo):
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


def _interpret(kernel: Any, args: tuple, grid: Any, kwargs: dict) -> Launch:
    """Run one launch of an interpreted kernel under observation."""
    ledger = Ledger(kernel.fn.__name__, _position, _kernel_line)

    def register_arguments(*host_args, **host_kwargs):
        bound = inspect.getcallargs(kernel.fn, *host_args, **host_kwargs)
        for name, value in bound.items():
            ledger.register(name, value)

    _refuse_meta(args, kwargs, kernel.fn.__name__)
    kernel.pre_run_hooks.append(register_arguments)
    try:
        # uncounted: copies to the host and back are the interpreter's, not the kernel's.
        with uncounted(), _exchanged(_launch_patches(ledger)):
            _original(interpreter.InterpretedFunction, "run")(
                kernel, *args, grid=grid, warmup=False, **kwargs
            )
    finally:
        kernel.pre_run_hooks.remove(register_arguments)
    return ledger.launch(tuple(interpreter.interpreter_builder.grid_dim))


def _refuse_meta(args: tuple, kwargs: dict, name: str) -> None:
    for value in (*args, *kwargs.values()):
        if torch.is_tensor(value) and value.device.type == "meta":
            raise ValueError(
                f"the Triton kernel {name} was launched on a `meta` tensor, which has no memory "
                f"to load from. Only eager PyTorch ops can be counted on `meta`; "
                f"give the kernel a small CPU or CUDA tensor instead"
            )


# ---------------------------------------------------------------------------------------------
# Compiled kernels, in the same process
# ---------------------------------------------------------------------------------------------


_interpreted_twins: dict[Callable, Any] = {}


def _twin(function: Any) -> Any:
    """Return the interpreted version of a ``@triton.jit`` function that was made to compile."""
    # Keyed by the Python function: hashing a JITFunction would parse its whole source.
    twin = _interpreted_twins.get(function.fn)
    if twin is None:
        twin = _interpreted_twins[function.fn] = interpreter.InterpretedFunction(function.fn)
    return twin


@contextlib.contextmanager
def _interpretable(kernel: Any) -> Iterator[None]:
    """Make everything a compiled kernel reaches interpretable, and undo all of it afterwards.

    Its ``@triton.jit`` helpers, and those of triton.language (``tl.sum``, ``tl.zeros``), are
    exchanged for interpreted twins. The interpreter leaves names behind in the namespaces it has
    rewritten functions in; a namespace must not keep them, or the next compilation would see them.
    """
    namespaces = [vars(space) for space in (tl, tl.core, tl.math, tl.standard)]
    known = {id(space) for space in namespaces}
    namespaces += [space for space in _namespaces_of(kernel.fn) if id(space) not in known]
    classes = (tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
    before = [dict(namespace) for namespace in namespaces]
    before_classes = [dict(vars(cls)) for cls in classes]
    try:
        for namespace in namespaces:
            for name, value in list(namespace.items()):
                if isinstance(value, jit.JITFunction):
                    namespace[name] = _twin(value)
            for name, value in vars(interpreter).items():
                namespace.setdefault(name, value)
        yield
    finally:
        for namespace, old in zip(namespaces, before, strict=True):
            for name in namespace.keys() - old.keys():
                del namespace[name]
            namespace.update(old)
        for cls, old in zip(classes, before_classes, strict=True):
            for name, value in dict(vars(cls)).items():
                if name not in old:
                    delattr(cls, name)
                elif old[name] is not value:
                    setattr(cls, name, old[name])


def _namespaces_of(function: Callable) -> list[dict]:
    """List the namespaces that a kernel and its helpers, and theirs, look names up in."""
    found: dict[int, dict] = {}
    waiting, done = [function], set()
    while waiting:
        function = waiting.pop()
        if function in done:
            continue
        done.add(function)
        space = function.__globals__
        found[id(space)] = space
        names = _names_in(function.__code__)
        for value in (space.get(name) for name in names):
            if isinstance(value, jit.JITFunction):
                waiting.append(value.fn)
            elif isinstance(value, types.ModuleType) and not value.__name__.startswith("triton"):
                members = [vars(value).get(name) for name in names]
                helpers = [m.fn for m in members if isinstance(m, jit.JITFunction)]
                if helpers:
                    found[id(vars(value))] = vars(value)
                    waiting += helpers
    return list(found.values())


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


# ---------------------------------------------------------------------------------------------
# Catching launches
# ---------------------------------------------------------------------------------------------


def _original(owner: type, name: str) -> Callable:
    for patched, patched_name, old in _originals:
        if patched is owner and patched_name == name:
            return old
    return getattr(owner, name)


def _report(launch: Launch, counters: list[Callable[[Launch], None]]) -> None:
    for on_launch in counters:
        on_launch(launch)


def _run_interpreted(self, *args, grid, warmup, **kwargs):
    counters = [] if warmup or _is_paused() else active_counters()
    with _interpreter_lock:  # also without a meter: another thread's may be watching
        if not counters:
            run = _original(interpreter.InterpretedFunction, "run")
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        launch = _interpret(self, args, grid, kwargs)
    _report(launch, counters)
    return None


def _run_compiled(self, *args, grid, warmup, **kwargs):
    counters = [] if warmup or _is_paused() else active_counters()
    if not counters:
        with _interpreter_lock:
            return _original(jit.JITFunction, "run")(
                self, *args, grid=grid, warmup=warmup, **kwargs
            )
    with _interpreter_lock, _interpretable(self):
        launch = _interpret(_twin(self), args, grid, kwargs)
    _report(launch, counters)
    return None


def _run_autotuned(self, *args, **kwargs):
    if not active_counters() or _is_paused():
        return _original(autotuner.Autotuner, "run")(self, *args, **kwargs)
    # The search's trial launches are no traffic of the program. Where nothing can be timed,
    # the first configuration stands for the search's answer.
    if not _can_time():
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.prune_configs(kwargs)[0]
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())
    return _original(autotuner.Autotuner, "run")(self, *args, **kwargs)


def _bench_uncounted(self, *args, **kwargs):
    previous = _is_paused()
    _paused.value = True
    try:
        with uncounted():
            return _original(autotuner.Autotuner, "_bench")(self, *args, **kwargs)
    finally:
        _paused.value = previous


def _is_paused() -> bool:
    return getattr(_paused, "value", False)


def _can_time() -> bool:
    return torch.cuda.is_available() and not triton.knobs.runtime.interpret


def install() -> None:
    """Start catching launches; calls nest, each needs one :func:`uninstall`."""
    global _install_count
    with _install_lock:
        _install_count += 1
        if _install_count > 1:
            return
        repair_interpreter()
        # The first conversion of an argument imports more of Triton, which must happen before
        # any function of triton.language is exchanged for an interpreted twin.
        interpreter._implicit_cvt(1)
        for owner, name, replacement in (
            (interpreter.InterpretedFunction, "run", _run_interpreted),
            (jit.JITFunction, "run", _run_compiled),
            (autotuner.Autotuner, "run", _run_autotuned),
            (autotuner.Autotuner, "_bench", _bench_uncounted),
        ):
            _originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replacement)


def uninstall() -> None:
    """Stop catching launches once every :func:`install` has been undone."""
    global _install_count
    with _install_lock:
        _install_count -= 1
        if _install_count:
            return
        while _originals:
            owner, name, old = _originals.pop()
            setattr(owner, name, old)


# ---------------------------------------------------------------------------------------------
# A repair
# ---------------------------------------------------------------------------------------------


def repair_interpreter() -> None:
    """Mend Triton <= 3.6's interpreter for numpy >= 2.4; does nothing where all is well.

    There, a loop over a tensor bound asks ``int()`` of a one-element array, which numpy has since
    refused: "only 0-dimensional arrays can be converted to Python scalars". Triton 3.7 squeezes
    the array first; so does this.
    """
    original = interpreter._patch_lang_tensor
    if getattr(original, "repaired", False):
        return

    def patch_lang_tensor(tensor, scope, *args, **kwargs):
        original(tensor, scope, *args, **kwargs)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    patch_lang_tensor.repaired = True
    interpreter._patch_lang_tensor = patch_lang_tensor
