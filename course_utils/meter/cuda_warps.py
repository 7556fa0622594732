"""Run Numba's CUDA kernels in its simulator, thread by thread, and count what their warps do.

While a meter is open, a launch under it runs here, on a machine with a GPU too, and every access to
global and shared memory is written into a ledger. Where there is no GPU, `setup()` lets all
launches run here, counted or not: Numba's own simulator does not know tensors, takes a hundred
times longer, and lets threads race in whatever order the system runs them.

The threads of a block take turns: each runs until it comes to a barrier or its end. So a kernel
that forgets a barrier gives the same wrong result every time. Arithmetic is Python's and NumPy's,
as in Numba's simulator: a sum that starts as ``0.0`` stays float32 where Numba on a GPU computes
in float64; ``float32(0)`` is the same on both.

This is the only file of the course that touches ``numba.cuda.simulator``. What it relies on there:
``FakeCUDAModule``, which a kernel sees as ``cuda`` (:class:`_Module` says what is exchanged in it),
and the names of a kernel's function and configuration (:func:`_call_simulated`).
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import linecache
import operator
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import greenlet
import numba
import numpy as np
import torch
from numba import cuda
from numba.cuda.errors import normalize_kernel_dimensions
from numba.cuda.simulator import kernelapi
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.cuda.simulator.kernel import FakeCUDAKernel

from course_utils.meter.cuda_source import is_found, with_hooks, with_names
from course_utils.meter.host_arrays import HostArguments, HostArray
from course_utils.meter.ledger import SourceLine
from course_utils.meter.torch_ops import active_counters, uncounted
from course_utils.meter.warp_ledger import Array, WarpLedger
from course_utils.meter.warps import ATOMIC, READ, THREADS_PER_BLOCK, WRITE

LONGEST_S = 20.0
"""Launches that would take more processor time than this are refused."""
_PATIENCE_S = 2.0  # an estimate from less is not to be trusted
_BETWEEN_LOOKS = 4096  # accesses between two looks at the clock

_GARBAGE = 0xFF  # what shared memory holds before it is stored to: as floats these bytes are NaN

_running = threading.local()  # .run: the launch that this thread is simulating
_install_lock = threading.Lock()
_install_count = 0
_originals: list[tuple[type, str, Any]] = []


# -- memory, as a kernel sees it ------------------------------------------------------------------


class _WatchedArray:
    """An array whose elements are read and stored to under observation."""

    __slots__ = ("_array", "_layout", "_run", "_start", "_stored", "_view")
    __iter__ = None  # Python would count up until an index fails, which none does here

    def __init__(
        self, run: _MeteredRun, array: Array, view: np.ndarray, start: int, stored: Any = None
    ) -> None:
        self._run = run
        self._array = array
        self._view = view
        self._layout = tuple(zip(view.shape, view.strides, strict=True))
        self._start = start  # byte address of the view's first element
        self._stored = stored  # of shared memory: a byte for each of its own, 1 once stored to

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "ndim", "size", "strides", "dtype", "itemsize", "nbytes"):
            return getattr(self._view, name)
        if name in ("T", "transpose", "reshape", "ravel"):
            found = getattr(self._view, name)
            if name == "T":
                return self._part(found)
            return lambda *args: self._part(found(*args))
        raise AttributeError(f"an array in a kernel has no attribute {name!r} that can be metered")

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, index: Any) -> Any:
        try:
            found = self._view[index]
        except IndexError:
            return self._reach_out(index, READ, sys._getframe(1))
        if type(found) is np.ndarray:
            return self._part(found)
        address = self._address(index)
        self._run.note(self._array, address, READ, sys._getframe(1))
        if self._stored is not None and not self._stored[address]:
            self._run.ledger.see_uninitialised(self._array)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            found = self._view[index]
        except IndexError:
            self._reach_out(index, WRITE, sys._getframe(1), value)
            return
        if type(found) is np.ndarray:
            raise TypeError(
                f"{self._array.name}: a kernel's slices cannot be stored to under a meter; store "
                f"element by element"
            )
        self._store(self._address(index), WRITE, sys._getframe(1))
        self._view[index] = value

    def update(self, index: Any, function: Callable[[np.ndarray], Any], frame: Any) -> Any:
        """Do an atomic operation on one element."""
        try:
            self._view[index]
        except IndexError:
            return self._reach_out(index, ATOMIC, frame)
        self._store(self._address(index), ATOMIC, frame)
        return function(self._view)

    def _store(self, address: int, operation: int, frame: Any) -> None:
        self._run.note(self._array, address, operation, frame)
        if self._stored is not None:
            self._stored[address] = 1

    def _address(self, index: Any) -> int:
        address = self._start
        indices = index if type(index) is tuple else (index,)
        for i, (size, stride) in zip(indices, self._layout, strict=True):
            address += int(i + size if i < 0 else i) * stride
        return address

    def _part(self, view: np.ndarray) -> _WatchedArray:
        """The same elements in another shape, or some of them; that costs nothing."""
        moved = _address_of(view) - _address_of(self._view)
        return _WatchedArray(self._run, self._array, view, self._start + moved, self._stored)

    def _reach_out(self, index: Any, operation: int, frame: Any, value: Any = None) -> Any:
        """Access an element that the array does not have: a GPU goes where the index points.

        Where that is another element of the same array, so does this; elsewhere loads give zero
        and stores are lost.
        """
        indices = [operator.index(i) for i in (index if type(index) is tuple else (index,))]
        if len(indices) != self._view.ndim:
            self._view[index]  # raises IndexError, as outside
        address = self._start + sum(
            (i + size if -size <= i < 0 else i) * stride
            for i, (size, stride) in zip(indices, self._layout, strict=True)
        )
        self._run.note(self._array, address, operation, frame)
        self._run.ledger.see_outside(self._array, self._view.shape, indices)
        nothing = self._view.dtype.type(0)
        whole = self._run.views[self._array.number]
        actual = self._array.index_of(address)
        if actual is None:
            return nothing
        if operation == WRITE:
            whole[actual] = value
        return whole[actual]


class _WatchedAtomics:
    """``cuda.atomic``: an update is one access, however the simulator goes about it."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __getattr__(self, name: str) -> Callable:
        operation = getattr(self._plain, name)

        def atomic(array: Any, *args: Any) -> Any:
            if not isinstance(array, _WatchedArray):
                raise TypeError(f"cuda.atomic.{name} wants an array in global or shared memory")
            index = (0,) * array.ndim if name == "compare_and_swap" else args[0]
            return array.update(index, lambda view: operation(view, *args), sys._getframe(1))

        return atomic


class _Shared:
    """``cuda.shared``: one array for the whole block, told by the line that asks for it."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._dynamic: tuple[np.ndarray, bytearray] = _garbage(0)
        self._made: dict[tuple[int, int], tuple[int, Any]] = {}
        self.nbytes = 0

    def new_block(self, dynamic_bytes: int) -> None:
        self._dynamic = _garbage(dynamic_bytes)
        self._made = {}
        self.nbytes = dynamic_bytes

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        frame = sys._getframe(1)
        key = (id(frame.f_code), frame.f_lineno)
        if key not in self._made:
            self._made[key] = (_instruction(frame), self._make(shape, dtype, frame))
        instruction, made = self._made[key]
        if instruction != _instruction(frame):
            line = _line_of(frame)
            raise ValueError(
                f"{line.function}, line {line.number} `{line.text}` makes two shared arrays. "
                f"Numba's simulator tells shared arrays apart by their line, and would silently "
                f"take these two for one: give each a line of its own"
            )
        return made

    def _make(self, shape: Any, dtype: Any, frame: Any) -> Any:
        if isinstance(dtype, kernelapi.types.Type):
            dtype = kernelapi.numpy_support.as_dtype(dtype)
        dtype = np.dtype(dtype)
        if shape == 0:  # dynamic shared memory: all such arrays begin at the same place
            buffer, stored = self._dynamic
            whole = buffer[: buffer.size // dtype.itemsize * dtype.itemsize]
            return self._run.shared(whole.view(dtype), stored, frame, is_dynamic=True)
        buffer, stored = _garbage(int(np.prod(shape)) * dtype.itemsize)
        self.nbytes += buffer.nbytes
        return self._run.shared(buffer.view(dtype).reshape(shape), stored, frame)


def _garbage(nbytes: int) -> tuple[np.ndarray, bytearray]:
    """New shared memory, and for each byte whether an element stored to begins there."""
    return np.full(nbytes, _GARBAGE, np.uint8), bytearray(nbytes)


class _Module(kernelapi.FakeCUDAModule):
    """What a running kernel finds under the name ``cuda``."""

    def __init__(self, run: _Run) -> None:
        super().__init__(run.grid, run.block, run.dynamic_bytes)
        self._run = run
        self._shared = _Shared(run)

    @property
    def threadIdx(self):  # noqa: N802
        return self._run.thread.index

    @property
    def blockIdx(self):  # noqa: N802
        return self._run.block_index

    @property
    def laneid(self):
        return self._run.thread.number % 32

    def syncthreads(self):
        self._run.wait(None, sys._getframe(1))

    def syncthreads_count(self, value):
        return sum(map(bool, self._run.wait(value, sys._getframe(1))))

    def syncthreads_and(self, value):
        return int(all(self._run.wait(value, sys._getframe(1))))

    def syncthreads_or(self, value):
        return int(any(self._run.wait(value, sys._getframe(1))))

    def threadfence(self):
        self._run.fence()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"cuda.{name} is not in Numba's simulator, in which kernels run without a GPU and "
            f"under a meter"
        )


# -- running --------------------------------------------------------------------------------------


class _Thread:
    """One CUDA thread.

    Attributes:
        number: in its block.
        index: threadIdx.
        phase: barriers that it has passed.
        context: stands for the loops' iterations and the calls that it is in.
        vote, place: what it brought to the barrier at which it waits, and where that is.
    """

    __slots__ = ("context", "greenlet", "index", "number", "phase", "place", "vote")

    def __init__(self, number: int, index: Any, body: Callable) -> None:
        self.number = number
        self.index = index
        self.phase = 0
        self.context = 0
        self.vote: Any = None
        self.place: Any = None
        self.greenlet = greenlet.greenlet(body)


class _Run:
    """One launch: its blocks one after the other, and their threads in turns."""

    def __init__(self, function: Callable, grid, block, dynamic_bytes: int) -> None:
        self.name = function.__name__
        self.grid, self.block = grid, block
        self.dynamic_bytes = dynamic_bytes
        self.threads_per_block = block[0] * block[1] * block[2]
        if self.threads_per_block > THREADS_PER_BLOCK:
            raise ValueError(
                f"{self.name} was launched with blocks of {self.threads_per_block} threads "
                f"({' x '.join(map(str, block))}); a block has at most {THREADS_PER_BLOCK}"
            )
        self.thread: _Thread | None = None
        self.block_index = kernelapi.Dim3(0, 0, 0)
        self.block_number = 0
        self._begun = 0
        self._started = time.process_time()
        self.module = _Module(self)
        names = {id(cuda): self.module}
        names[id(numba)] = types.SimpleNamespace(**{**vars(numba), "cuda": self.module})
        self._names = names
        self._functions: dict[Callable, Callable] = {}

    def run(self, function: Callable, args: tuple) -> None:
        """Run a kernel on all blocks."""
        kernel = self.function(function)

        def body(_):
            # NumPy warns where a GPU is silent; each greenlet has a context of its own for that.
            with np.errstate(all="ignore"):
                kernel(*args)

        x, y, z = self.block
        indices = [kernelapi.Dim3(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        nx, ny, nz = self.grid
        for number in range(nx * ny * nz):
            self.block_number = number
            self.block_index = kernelapi.Dim3(number % nx, number // nx % ny, number // (nx * ny))
            self.module.shared.new_block(self.dynamic_bytes)
            self._run_block([_Thread(n, index, body) for n, index in enumerate(indices)])

    def _run_block(self, threads: list[_Thread]) -> None:
        votes = None
        barriers = 0
        while True:
            for thread in threads:
                if not barriers:
                    self._begun += 1
                    self.look_at_clock()
                self.thread = thread
                try:
                    thread.greenlet.switch(votes)
                except Exception as error:
                    error.add_note(f"in thread {thread.index} of block {self.block_index}")
                    raise
            waiting = [thread for thread in threads if not thread.greenlet.dead]
            if not waiting:
                return self.end_block(barriers)
            barriers += 1
            self.at_barrier(waiting)
            votes = [thread.vote for thread in waiting]
            threads = waiting

    def wait(self, vote: Any, frame: Any) -> list[Any]:
        """Let the running thread wait at a barrier; return what each thread brought to it."""
        thread = self.thread
        thread.vote, thread.place = vote, frame
        votes = thread.greenlet.parent.switch()
        thread.place = None
        thread.phase += 1
        return votes

    def look_at_clock(self) -> None:
        """Refuse to go on where it would take too long.

        Raises:
            ValueError: with an estimate.
        """
        elapsed = time.process_time() - self._started
        if elapsed < _PATIENCE_S:
            return
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        estimate = elapsed * blocks * self.threads_per_block / self._begun
        if estimate > LONGEST_S:
            raise ValueError(
                f"{self.name} on {blocks} block{'s' * (blocks != 1)} of {self.threads_per_block} "
                f"threads would take about {_duration(estimate)} in the simulator, which runs "
                f"thread by thread; more than {LONGEST_S:.0f} s are refused. Give it a smaller "
                f"problem: fewer blocks, or shorter loops"
            )

    def function(self, function: Callable) -> Callable:
        """The version of a function that this launch calls."""
        if function not in self._functions:
            self._functions[function] = self._prepared(function)
        return self._functions[function]

    def call(self, function: Callable, args: tuple, frame: Any) -> Any:
        """Call a device function from the kernel."""
        return self.function(function)(*args)

    def _prepared(self, function: Callable) -> Callable:
        return with_names(function, self._names)

    def shared(
        self, view: np.ndarray, stored: bytearray, frame: Any, is_dynamic: bool = False
    ) -> Any:
        """Hand a shared array to the kernel."""
        return view

    def fence(self) -> None:
        """The kernel orders its memory accesses."""

    def at_barrier(self, waiting: list[_Thread]) -> None:
        """All threads of the block that have not ended wait."""

    def end_block(self, barriers: int) -> None:
        """All threads of the block have ended."""


class _MeteredRun(_Run):
    """A launch that is written into a ledger.

    Attributes:
        views: the elements of each array in the ledger, by its number.
    """

    def __init__(self, function: Callable, grid, block, dynamic_bytes: int) -> None:
        super().__init__(function, grid, block, dynamic_bytes)
        self.ledger = WarpLedger(self.name, grid, block)
        self.views: list[np.ndarray] = []
        self.module._atomic = _WatchedAtomics(self.module._atomic)
        self._sites: dict[tuple[int, int], int] = {}
        self._contexts: dict[tuple[int, ...], int] = {}
        self._shared_arrays: dict[int, Array] = {}

    def watch(self, argument: HostArray) -> _WatchedArray:
        """Watch an array among the arguments."""
        array = self.ledger.add_array(
            argument.name, argument.array, argument.memory, argument.start,
            nbytes=argument.nbytes,
        )  # fmt: skip
        self.views.append(argument.array)
        return _WatchedArray(self, array, argument.array, argument.start)

    def shared(
        self, view: np.ndarray, stored: bytearray, frame: Any, is_dynamic: bool = False
    ) -> _WatchedArray:
        """Watch a shared array; it goes by the name that its line gives it."""
        site = self._site(frame)
        if site not in self._shared_arrays:
            line = _line_of(frame)
            named = re.match(r"(\w+)\s*=", line.text)
            self._shared_arrays[site] = self.ledger.add_array(
                named[1] if named else f"shared array of line {line.number}",
                view,
                "dynamic shared memory" if is_dynamic else ("shared", site),
                nbytes=view.nbytes,
                is_shared=True,
            )
            self.views.append(view)
        array = self._shared_arrays[site]
        self.views[array.number] = view
        return _WatchedArray(self, array, view, 0, stored)

    def note(self, array: Array, address: int, operation: int, frame: Any) -> None:
        """Write down one access of the running thread, as an `Access`."""
        thread = self.thread
        accesses = self.ledger.accesses
        number = self.block_number * THREADS_PER_BLOCK + thread.number
        place = self._site(frame)
        accesses.append(
            (number, thread.phase, thread.context, place, array.number, address, operation)
        )
        if not len(accesses) % _BETWEEN_LOOKS:
            self.look_at_clock()

    def _site(self, frame: Any) -> int:
        key = (id(frame.f_code), frame.f_lasti)
        site = self._sites.get(key)
        if site is None:
            first = (key[0], _instruction(frame))
            if first not in self._sites:
                self._sites[first] = self.ledger.add_site(_line_of(frame))
            site = self._sites[key] = self._sites[first]
        return site

    def _context(self, *key: int) -> int:
        return self._contexts.setdefault(key, len(self._contexts) + 1)

    def _prepared(self, function: Callable) -> Callable:
        self.ledger.has_source &= is_found(function)
        return with_hooks(function, self, self._names)

    def call(self, function: Callable, args: tuple, frame: Any) -> Any:
        thread = self.thread
        outer = thread.context
        thread.context = self._context(outer, self._site(frame))
        try:
            return super().call(function, args, frame)
        finally:
            thread.context = outer

    def fence(self) -> None:
        self.ledger.is_fenced = True

    def at_barrier(self, waiting: list[_Thread]) -> None:
        places: dict[int, int] = {}
        for thread in waiting:
            number = self.block_number * THREADS_PER_BLOCK + thread.number
            places.setdefault(self._site(thread.place), number)
        ended = self.threads_per_block - len(waiting)
        if len(places) > 1 or ended:
            self.ledger.see_barrier(places, ended)
        self.ledger.at_barrier()

    def end_block(self, barriers: int) -> None:
        self.ledger.barriers = max(self.ledger.barriers, barriers)
        self.ledger.shared_bytes = max(self.ledger.shared_bytes, self.module.shared.nbytes)
        self.ledger.at_barrier()

    # -- what the kernel's source reports, see `cuda_source.Hooks` --------------------------------

    def branch(self, outcome: Any) -> Any:
        """Write down which way an ``if`` goes."""
        self._note_branch(self._site(sys._getframe(1)), outcome)
        return outcome

    def each(self, items: Any) -> Iterator[Any]:
        """Loop over ``items``, telling iterations apart."""
        return self._each(items, self._site(sys._getframe(1)))

    def _each(self, items: Any, site: int) -> Iterator[Any]:
        with _Loop(self, site) as again:
            for item in items:
                again(True)
                yield item
            again(False)

    def loop(self) -> _Loop:
        """Tell the iterations of a ``while`` apart."""
        return _Loop(self, self._site(sys._getframe(1)))

    def flops(self, count: int, value: Any) -> Any:
        """Count what gives a float."""
        if isinstance(value, float | np.floating):
            self.ledger.flops += count
        return value

    def _note_branch(self, site: int, outcome: Any) -> None:
        thread = self.thread
        number = self.block_number * THREADS_PER_BLOCK + thread.number
        branches = self.ledger.branches
        branches.append((number, thread.phase, thread.context, site, 1 if outcome else 0))
        if not len(branches) % _BETWEEN_LOOKS:
            self.look_at_clock()


class _Loop:
    """Gives each iteration of a running loop a context of its own."""

    __slots__ = ("_iteration", "_outer", "_run", "_site", "_thread")

    def __init__(self, run: _MeteredRun, site: int) -> None:
        self._run = run
        self._site = site

    def __enter__(self) -> Callable[[Any], Any]:
        self._thread = self._run.thread
        self._outer = self._thread.context
        self._iteration = 0
        return self._again

    def __exit__(self, *error: object) -> None:
        self._thread.context = self._outer

    def _again(self, outcome: Any) -> Any:
        context = self._run._context(self._outer, self._site, self._iteration)
        self._iteration += 1
        self._thread.context = context
        self._run._note_branch(self._site, outcome)
        return outcome


def _address_of(view: np.ndarray) -> int:
    return view.__array_interface__["data"][0]


def _instruction(frame: Any) -> int:
    """The offset of the instruction that a frame is at.

    Once an instruction is specialised, `f_lasti` may point into the cache behind it.
    """
    return _instruction_at(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=4096)
def _instruction_at(code: types.CodeType, offset: int) -> int:
    return max(i.offset for i in dis.get_instructions(code) if i.offset <= offset)


def _line_of(frame: Any) -> SourceLine:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    number = frame.f_lineno
    while frame.f_code.co_name.startswith("<"):  # a comprehension
        frame = frame.f_back
    return SourceLine(frame.f_code.co_name, number - frame.f_code.co_firstlineno + 1, text)


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


# -- launches -------------------------------------------------------------------------------------


def _simulate(function: Callable, grid, block, dynamic_bytes: int, args: tuple) -> None:
    """Run one launch, and report it to the meters around it."""
    counters = active_counters()
    grid, block = tuple(map(int, grid)), tuple(map(int, block))
    with uncounted():  # copies to the host and back are not the kernel's
        bound = inspect.signature(function).bind(*args)
        bound.apply_defaults()
        values = {name: _plain(value) for name, value in bound.arguments.items()}
        arguments = HostArguments(function.__name__, values)
        run = (_MeteredRun if counters else _Run)(function, grid, block, int(dynamic_bytes))
        for name, value in arguments.values.items():
            bound.arguments[name] = _handed(run, value)
        _running.run = run
        try:
            run.run(function, bound.args)
        finally:
            _running.run = None
        arguments.write_back()
        launch = run.ledger.launch() if counters and min(grid) > 0 else None
    for on_launch in counters if launch else ():
        on_launch(launch)


def _plain(value: Any) -> Any:
    """Look into what Numba wraps arrays in."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, cuda.In):  # what the kernel stores there does not come back
        inside = _plain(value.value)
        return inside.clone() if torch.is_tensor(inside) else np.array(inside)
    if isinstance(value, cuda.Out | cuda.InOut):
        return _plain(value.value)
    if isinstance(value, FakeCUDAArray):
        return value._ary
    if hasattr(value, "__cuda_array_interface__") and not torch.is_tensor(value):
        return torch.as_tensor(value, device="cuda")  # the same memory
    return value


def _handed(run: _Run, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_handed(run, item) for item in value)
    if not isinstance(value, HostArray):
        return value
    return run.watch(value) if isinstance(run, _MeteredRun) else value.array


def _call_simulated(self, *args):
    """Run a kernel, or from inside one a device function, that was made for the simulator."""
    run = getattr(_running, "run", None)
    if run is not None:
        return run.call(self.fn, args, sys._getframe(1))
    grid, block = normalize_kernel_dimensions(self.grid_dim, self.block_dim)
    return _simulate(self.fn, grid, block, self.dynshared_size, args)


def _call_compiled(self, args, *configuration):
    """Launch a kernel that was made for a GPU: under a meter in the simulator."""
    if not active_counters():
        return _original(type(self), "call")(self, args, *configuration)
    if len(configuration) == 1:  # numba-cuda >= 0.28 hands over one object
        (c,) = configuration
        configuration = (c.griddim, c.blockdim, c.stream, c.sharedmem)
    grid, block, _stream, dynamic_bytes = configuration
    return _simulate(self.py_func, grid, block, dynamic_bytes, args)


def _call_device_function(self, *args, **kwargs):
    """Call a device function that was made for a GPU from a kernel in the simulator."""
    run = getattr(_running, "run", None)
    if run is not None:
        return run.call(self.py_func, args, sys._getframe(1))
    return _original(type(self), "__call__")(self, *args, **kwargs)


def _original(owner: type, name: str) -> Callable:
    for patched, patched_name, old in _originals:
        if patched is owner and patched_name == name:
            return old
    return getattr(owner, name)


def _patches() -> list[tuple[type, str, Callable]]:
    if cuda.config.ENABLE_CUDASIM:
        return [(FakeCUDAKernel, "__call__", _call_simulated)]
    from numba.cuda.dispatcher import CUDADispatcher

    return [
        (CUDADispatcher, "call", _call_compiled),
        (CUDADispatcher, "__call__", _call_device_function),
    ]


@contextlib.contextmanager
def catching() -> Iterator[None]:
    """Catch launches; where several are open, until the last is closed."""
    global _install_count
    with _install_lock:
        if _install_count == 0:
            for owner, name, replacement in _patches():
                _originals.append((owner, name, vars(owner)[name]))
                setattr(owner, name, replacement)
        _install_count += 1
    try:
        yield
    finally:
        with _install_lock:
            _install_count -= 1
            while _originals and not _install_count:
                owner, name, old = _originals.pop()
                setattr(owner, name, old)


def repair_simulator() -> None:
    """Let every launch in Numba's simulator run here, also without a meter.

    It stays when the last meter has closed. Call it where `NUMBA_ENABLE_CUDASIM` was set before
    numba was imported.
    """
    FakeCUDAKernel.__call__ = _call_simulated
