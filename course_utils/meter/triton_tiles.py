"""Count Triton launches, tile by tile, in Triton's own interpreter.

While a meter is open, a Triton launch under it runs in the interpreter, on a machine with a GPU
too, and every load, store and atomic is written into a ledger. This is the only file of the course
that touches ``triton.runtime.interpreter``; what it relies on there is listed in
:func:`_launch_patches`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import operator
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter, jit

from course_utils.meter import bfloat16
from course_utils.meter.arguments import stay_in_region
from course_utils.meter.ledger import Ledger, Position, SourceLine, Store
from course_utils.meter.torch_ops import active_counters, uncounted
from course_utils.meter.traffic import Launch

# The interpreter's program id and its patches of triton.language are global: one launch at a time.
_interpreter_lock = threading.RLock()
_install_lock = threading.Lock()
_install_count = 0
_originals: list[tuple[Any, str, Any]] = []
_searched: weakref.WeakSet = weakref.WeakSet()  # autotuners that have "searched" once

_TRITON_FOLDER = os.path.dirname(triton.__file__) + os.sep
_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_ABSENT = object()
_E2M1 = interpreter._ir.ScaleDotElemTypeTY.E2M1


# ---------------------------------------------------------------------------------------------
# The interpreter under observation
# ---------------------------------------------------------------------------------------------


def _position() -> Position:
    builder = interpreter.interpreter_builder
    return Position(tuple(builder.grid_idx), tuple(builder.grid_dim))


def _running_line() -> SourceLine:
    """Find the line that is running: the nearest frame outside Triton and the meter."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith((_TRITON_FOLDER, _OWN_FOLDER)):
        frame = frame.f_back
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    number = frame.f_lineno
    while frame.f_code.co_name.startswith("<"):  # a comprehension, a lambda
        frame = frame.f_back
    return SourceLine(frame.f_code.co_name, number - frame.f_code.co_firstlineno + 1, text)


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
        # It takes no mask: lanes that may not go where they point are sent to a place of their own.
        nowhere = np.zeros(real.shape, np.uint64)
        places = nowhere.ctypes.data + nowhere.itemsize * np.arange(real.size, dtype=np.uint64)
        real = np.where(allowed, real, places.reshape(real.shape))
        return self._native.atomic_cas(real, expected, value, semantic)


def _keep_region(original: Callable) -> Callable:
    def add_offset(builder, pointer, offset):
        result = original(builder, pointer, offset)
        stay_in_region(pointer.data, result.data, offset.data)
        return result

    return add_offset


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


def _count_scaled_dot(original: Callable, ledger: Ledger) -> Callable:
    def counted(builder, a, a_scale, a_format, b, b_scale, b_format, fast, a_packs_k, *rest):
        result = original(
            builder, a, a_scale, a_format, b, b_scale, b_format, fast, a_packs_k, *rest
        )
        packed = a_packs_k and a_format == _E2M1  # two 4-bit numbers to a byte, along K
        ledger.flops += 2 * result.data.size * a.data.shape[-1] * (2 if packed else 1)
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


def _poisoned(original: Callable) -> Callable:
    def masked_load(builder, pointers, mask, other, *rest, **options):
        dtype = pointers.get_element_ty()
        if other is None and dtype in (tl.float16, tl.bfloat16, tl.float32, tl.float64):
            signs = np.where(np.arange(pointers.data.size) % 2, -np.inf, np.inf).astype(np.float32)
            signs = signs.reshape(pointers.data.shape)
            if dtype == tl.bfloat16:
                filling = bfloat16.narrow(signs)
            else:
                filling = signs.astype(interpreter._get_np_dtype(dtype))
            other = interpreter.TensorHandle(filling, dtype)
        return original(builder, pointers, mask, other, *rest, **options)

    return masked_load


def _launch_patches(ledger: Ledger, poison: bool) -> list[tuple[Any, str, Any]]:
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
        (builder, "create_addptr", _keep_region(builder.create_addptr)),
        (builder, "create_dot", _count_dot(builder.create_dot, ledger)),
        (builder, "create_fma", _count_elementwise(builder.create_fma, ledger, 2)),
    ]
    if poison:
        patches.append((builder, "create_masked_load", _poisoned(builder.create_masked_load)))
    if hasattr(builder, "create_dot_scaled"):  # Triton >= 3.8
        original = builder.create_dot_scaled
        patches.append((builder, "create_dot_scaled", _count_scaled_dot(original, ledger)))
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


def _interpret(
    kernel: Any, args: tuple, grid: Any, kwargs: dict, asked: Any = None
) -> Launch | None:
    """Run one launch of an interpreted kernel under observation; None if the grid is empty.

    ``asked``: the kernel that was launched, where this one is only its twin.
    """
    tensors = [t for t in _flatten((args, tuple(kwargs.values()))) if torch.is_tensor(t)]
    name = kernel.fn.__name__
    if any(t.device.type == "meta" for t in tensors):
        raise ValueError(
            f"the Triton kernel {name} was launched on a `meta` tensor, which has no memory to "
            f"load from. Only eager PyTorch ops can be counted on `meta`; give the kernel a small "
            f"CPU or CUDA tensor instead"
        )
    # The interpreter works on copies of GPU tensors; a GPU address kept in memory leads nowhere.
    on_host = all(t.device.type == "cpu" for t in tensors)
    on_call, on_store, poison = _watchers[-1] if _watchers else (None, None, False)
    ledger = Ledger(name, _position, _running_line, follow_foreign=on_host, on_store=on_store)

    bound: dict[str, Any] = {}

    def register_arguments(*host_args, **host_kwargs):
        bound.update(inspect.getcallargs(kernel.fn, *host_args, **host_kwargs))
        for argument, value in bound.items():
            ledger.register(argument, value)

    def plain_grid(_converted):
        # As at a native launch: any sequence of numbers, or a function of plain arguments.
        return tuple(operator.index(size) for size in (grid(bound) if callable(grid) else grid))

    kernel.pre_run_hooks.append(register_arguments)
    try:
        # uncounted: copies to the host and back are the interpreter's, not the kernel's.
        with uncounted(), _exchanged(_launch_patches(ledger, poison)):
            _original(interpreter.InterpretedFunction, "run")(
                kernel, *args, grid=plain_grid, warmup=False, **kwargs
            )
    finally:
        kernel.pre_run_hooks.remove(register_arguments)
    programs = tuple(interpreter.interpreter_builder.grid_dim)
    if on_call is not None:
        options = {key: value for key, value in kwargs.items() if key not in bound}
        on_call(Call(asked or kernel, bound, options, programs))
    return ledger.launch(programs) if min(programs) > 0 else None


def _flatten(value: Any) -> Iterator[Any]:
    """Walk through tuples and host tensor descriptors."""
    if isinstance(value, tuple):
        for item in value:
            yield from _flatten(item)
    elif hasattr(value, "block_shape") and hasattr(value, "base"):
        yield value.base
    else:
        yield value


# ---------------------------------------------------------------------------------------------
# Compiled kernels, in the same process
# ---------------------------------------------------------------------------------------------


class _ScratchRewriter(interpreter.FunctionRewriter):
    """Defines the rewritten function in a scope of its own.

    Triton's rewriter leaves the interpreter's names behind in the function's module, where the
    next compilation would find them.
    """

    def _compile_and_exec(self, transformed_ast):
        code = compile(transformed_ast, filename=self.filename, mode="exec")
        namespace = dict(self.kwargs)
        exec(code, _scope_of(self.fn), namespace)
        return namespace[self.fn.__name__]


class _Twin(interpreter.InterpretedFunction):
    """The interpreted version of a ``@triton.jit`` function that was made to be compiled."""

    rewritten_fn: dict = {}  # noqa: RUF012  (not shared with Triton's own)

    def __init__(self, function: Any) -> None:
        super().__init__(function.fn)
        self.rewriter = _ScratchRewriter(function.fn)

    def rewrite(self):
        """Return the rewritten function, seeing its module's names as they are now."""
        function = super().rewrite()
        if function is self.fn:  # it has no source to rewrite
            return function
        fresh = types.FunctionType(
            function.__code__, _scope_of(self.fn), function.__name__, function.__defaults__
        )
        fresh.__kwdefaults__ = function.__kwdefaults__
        fresh.__annotations__ = function.__annotations__
        return fresh

    def __call__(self, *args, **kwargs):
        # Called from a kernel: _interpretable has prepared triton.language already.
        return self.rewrite()(*args, **kwargs)


def _scope_of(function: Callable) -> dict[str, Any]:
    """Collect the names that a rewritten function sees: the interpreter's, globals, closure."""
    scope = {**vars(interpreter), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name that is not bound yet
            scope[name] = cell.cell_contents
    return scope


_twins: dict[Callable, _Twin] = {}


def _twin(function: Any) -> _Twin:
    # Keyed by the Python function: hashing a JITFunction would parse its whole source.
    twin = _twins.get(function.fn)
    if twin is None:
        twin = _twins[function.fn] = _Twin(function)
    return twin


@contextlib.contextmanager
def _interpretable() -> Iterator[None]:
    """Let compiled kernels run in the interpreter, and undo all of it afterwards.

    Calls of ``@triton.jit`` helpers, and of those of triton.language (``tl.sum``, ``x.sum()``),
    go to their twins; triton.language is prepared once for all of them.
    """
    anywhere = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scope = interpreter._patch_lang(anywhere)
    try:
        for name in _jitted_methods():
            method = getattr(tl.tensor, name)
            scope.set_attr(tl.tensor, name, functools.partialmethod(_call_twin_of, method))
        scope.set_attr(jit.JITFunction, "__call__", _call_interpreted)
        yield
    finally:
        scope.restore()


def _call_interpreted(self, *args, **kwargs):
    return _twin(self)(*args, **kwargs)


def _call_twin_of(tensor, method, *args, **kwargs):
    return _twin(method)(tensor, *args, **kwargs)


@functools.cache
def _jitted_methods() -> tuple[str, ...]:
    members = vars(tl.tensor).items()
    return tuple(name for name, member in members if isinstance(member, jit.JITFunction))


# ---------------------------------------------------------------------------------------------
# Watching launches
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A metered launch as its caller wrote it.

    Attributes:
        kernel: what was launched, a function under ``@triton.jit``.
        arguments: the value of each of its parameters, constexprs too.
        options: what else was given, such as num_warps.
        grid: programs along x, y, z.
    """

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    grid: tuple[int, int, int]


_watchers: list[tuple[Callable[[Call], None] | None, Callable[[Store], None] | None, bool]] = []


@contextlib.contextmanager
def watch(
    on_call: Callable[[Call], None] | None = None,
    on_store: Callable[[Store], None] | None = None,
    poison: bool = False,
) -> Iterator[None]:
    """Be told of each metered Triton launch, after it ran, and of each tile that it stores.

    ``poison``: let masked lanes that are loaded without ``other`` hold infinities of both signs.
    Triton promises nothing of them; the interpreter would give zeros.
    """
    _watchers.append((on_call, on_store, poison))
    try:
        yield
    finally:
        _watchers.pop()


# ---------------------------------------------------------------------------------------------
# Catching launches
# ---------------------------------------------------------------------------------------------


def _original(owner: type, name: str) -> Callable:
    for patched, patched_name, old in _originals:
        if patched is owner and patched_name == name:
            return old
    return getattr(owner, name)


def _report(launch: Launch | None, counters: list[Callable[[Launch], None]]) -> None:
    if launch is not None:
        for on_launch in counters:
            on_launch(launch)


def _run_interpreted(self, *args, grid, warmup, **kwargs):
    counters = [] if warmup else active_counters()
    with _interpreter_lock:  # also without a meter: another thread's may be watching
        if not counters:
            run = _original(interpreter.InterpretedFunction, "run")
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        launch = _interpret(self, args, grid, kwargs)
    _report(launch, counters)
    return None


def _run_compiled(self, *args, grid, warmup, **kwargs):
    counters = [] if warmup else active_counters()
    if not counters:
        with _interpreter_lock:
            return _original(jit.JITFunction, "run")(
                self, *args, grid=grid, warmup=warmup, **kwargs
            )
    twin = _twin(self)
    with _interpreter_lock, _interpretable():
        twin.pre_run_hooks = list(self.pre_run_hooks)
        launch = _interpret(twin, args, grid, kwargs, asked=self)
    _report(launch, counters)
    return None


def _run_autotuned(self, *args, **kwargs):
    run = _original(autotuner.Autotuner, "run")
    if not active_counters():
        return run(self, *args, **kwargs)
    # What the search does is no traffic of the program: neither its trial launches nor the
    # zeroing of outputs between them.
    reset = self.pre_hook
    self.pre_hook = _uncounted_call(reset)
    try:
        if _can_time(args, kwargs) or len(self.configs) == 1:
            return run(self, *args, **kwargs)
        return _run_first_config(self, args, kwargs)
    finally:
        self.pre_hook = reset


def _run_first_config(self, args, kwargs):
    # Where nothing can be timed, the first configuration stands for the search's answer.
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = self.prune_configs(kwargs)[0]
    self.best_config = config
    everything = {**self.nargs, **kwargs, **config.all_kwargs()}
    if self not in _searched:
        _searched.add(self)
        self.pre_hook(everything, reset_only=True)  # as at the end of a search
    if config.pre_hook is not None:
        config.pre_hook(everything)
    result = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return result


def _uncounted_call(function: Callable) -> Callable:
    def call(*args, **kwargs):
        with uncounted():
            return function(*args, **kwargs)

    return call


def _bench_uncounted(self, *args, **kwargs):
    with uncounted():
        return _original(autotuner.Autotuner, "_bench")(self, *args, **kwargs)


def _can_time(args: tuple, kwargs: dict) -> bool:
    if not torch.cuda.is_available() or triton.knobs.runtime.interpret:
        return False
    # Where there is a GPU, a kernel may still be metered with tensors of the CPU's.
    tensors = [t for t in _flatten((args, tuple(kwargs.values()))) if torch.is_tensor(t)]
    return all(t.is_cuda for t in tensors)


def install() -> None:
    """Start catching launches; calls nest, each needs one :func:`uninstall`."""
    global _install_count
    with _install_lock:
        if _install_count == 0:
            repair_interpreter()
            # The first conversion of an argument imports more of Triton, which must happen before
            # triton.language is prepared for interpretation.
            interpreter._implicit_cvt(1)
            for owner, name, replacement in (
                (interpreter.InterpretedFunction, "run", _run_interpreted),
                (jit.JITFunction, "run", _run_compiled),
                (autotuner.Autotuner, "run", _run_autotuned),
                (autotuner.Autotuner, "_bench", _bench_uncounted),
            ):
                _originals.append((owner, name, vars(owner)[name]))
                setattr(owner, name, replacement)
        _install_count += 1


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
# Repairs
# ---------------------------------------------------------------------------------------------


def repair_interpreter() -> None:
    """Mend what is wrong in Triton's interpreter; does nothing where all is well.

    - Triton <= 3.6 with numpy >= 2.4 fails on a loop over a tensor bound: it asks ``int()`` of a
      one-element array, which numpy has since refused ("only 0-dimensional arrays can be converted
      to Python scalars"). Triton 3.7 squeezes the array first; so does this.
    - Arithmetic on bfloat16 is done on its bits as if they were integers (Triton <= 3.9), with
      wrong results and no message, and float32 is cut off rather than rounded. Here such ops are
      done in float32 and rounded to nearest even, as on a GPU.
    - Two threads that launch at once share one program id; here launches take turns.

    These are the only changes that stay after the last meter has closed.
    """
    _repair_loops()
    _repair_bfloat16()
    _repair_threads()


def _repair_loops() -> None:
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7):
        return
    original = interpreter._patch_lang_tensor
    if getattr(original, "repaired", False):
        return

    def patch_lang_tensor(tensor, scope, *args, **kwargs):
        original(tensor, scope, *args, **kwargs)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    patch_lang_tensor.repaired = True
    interpreter._patch_lang_tensor = patch_lang_tensor


def _repair_bfloat16() -> None:
    one = _bfloat16_handle(bfloat16.narrow(np.ones(1)))
    builder = interpreter.InterpreterBuilder
    two = builder.binary_op(interpreter.interpreter_builder, one, one, np.add)
    if bfloat16.widen(two.data) == 2:
        return
    for name in ("unary_op", "binary_op", "ternary_op", "create_fma", "create_dot"):
        setattr(builder, name, _in_float32(vars(builder)[name]))
    builder.cast_impl = _cast_through_float32(builder.cast_impl)
    builder.get_bf16 = lambda self, value: _bfloat16_handle(bfloat16.narrow(np.array([value])))
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _reduce_in_float32(kind.apply_impl)


def _repair_threads() -> None:
    original = interpreter.InterpretedFunction.run
    if getattr(original, "repaired", False):
        return

    @functools.wraps(original)
    def run(*args, **kwargs):
        with _interpreter_lock:
            return original(*args, **kwargs)

    run.repaired = True
    interpreter.InterpretedFunction.run = run


def _bfloat16_handle(bits: np.ndarray) -> Any:
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:
    if not _is_bfloat16(value):
        return value
    return interpreter.TensorHandle(bfloat16.widen(value.data), tl.float32)


def _in_float32(original: Callable) -> Callable:
    """Do one op of the interpreter's builder on bfloat16 operands in float32."""

    def op(builder, *operands):
        # The dtype of the result is the last operand's; of a dot, its accumulator's.
        handles = [o for o in operands if isinstance(o, interpreter.TensorHandle)]
        if not any(_is_bfloat16(handle) for handle in handles):
            return original(builder, *operands)
        result = original(builder, *(_widened(o) for o in operands))
        # A comparison keeps its Booleans.
        if _is_bfloat16(handles[-1]) and result.data.dtype == np.float32:
            return _bfloat16_handle(bfloat16.narrow(result.data))
        return interpreter.TensorHandle(result.data, handles[-1].dtype.scalar)

    return op


def _cast_through_float32(original: Callable) -> Callable:
    def cast(builder, source, dtype):
        if _is_bfloat16(source):
            source = _widened(source)
            if dtype.scalar == tl.float32:
                return source
        if dtype.scalar != tl.bfloat16:
            return original(builder, source, dtype)
        return _bfloat16_handle(bfloat16.narrow(source.data.astype(np.float32)))

    return cast


def _reduce_in_float32(original: Callable) -> Callable:
    def apply(operation, inputs):
        dtypes = [tensor.dtype for tensor in inputs]
        if tl.bfloat16 not in dtypes:
            return original(operation, inputs)
        results = original(operation, tuple(_tensor_in_float32(tensor) for tensor in inputs))
        several = isinstance(results, list | tuple)
        narrowed = [
            _tensor_in_bfloat16(result) if dtype == tl.bfloat16 else result
            for result, dtype in zip(results if several else [results], dtypes, strict=False)
        ]
        rest = list(results)[len(narrowed) :] if several else []
        return [*narrowed, *rest] if several else narrowed[0]

    return apply


def _tensor_in_float32(tensor: Any) -> Any:
    if tensor.dtype != tl.bfloat16:
        return tensor
    return tl.tensor(_widened(tensor.handle), _with_element(tensor.type, tl.float32))


def _tensor_in_bfloat16(tensor: Any) -> Any:
    handle = _bfloat16_handle(bfloat16.narrow(tensor.handle.data))
    return tl.tensor(handle, _with_element(tensor.type, tl.bfloat16))


def _with_element(kind: Any, element: Any) -> Any:
    return tl.block_type(element, kind.shape) if kind.is_block() else element
