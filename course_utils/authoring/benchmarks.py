"""What ``make record`` measures: one function per benchmark, each a list of cells.

A cell is one row of the record: a function, its inputs, and what it moves and computes. Lessons ask
for rows by these names, so a name here is an interface.

How bytes and FLOPs are counted, for every cell in the same way: the meter runs the function on
``meta`` tensors, which computes nothing. Where one fused kernel does the whole function (a compiled
chain, PyTorch's fused attention, a norm), the FLOPs are those of the eager form, since the same
arithmetic is done, and the bytes are each input once and each output once: the compulsory traffic.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from course_utils import bench

LARGE = 2**28
"""Elements of the large vectors: 1 GiB in float32, many times any L2 cache."""

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
CAPABILITY_OF_TF32 = CAPABILITY_OF_BF16 = (8, 0)
MATMUL_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Input:
    """The shape and dtype of one input tensor."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Cell:
    """One row of the record, before it is measured.

    Attributes:
        benchmark: the row's benchmark.
        case: the row's case.
        parameters: the row's parameters.
        function: takes the inputs as tensors. None for a cell with its own ``measure``.
        inputs: what the function takes.
        peak_bytes: GPU memory that inputs, intermediates and output take together at most.
        compiled: whether to time ``torch.compile(function)``.
        fused: whether one kernel does it all, which decides how bytes are counted.
        counted: what is counted in the function's place, where it cannot run on ``meta`` tensors: a
            Triton kernel's eager form.
        setting: what must hold while it runs, such as the tf32 switch.
        measure: times the cell in its own way, instead of ``bench.measure``.
        capability: the least compute capability on which the cell makes sense.
    """

    benchmark: str
    case: str
    parameters: Mapping[str, int | str]
    function: Callable[..., object] | None = None
    inputs: tuple[Input, ...] = ()
    peak_bytes: int = 0
    compiled: bool = False
    fused: bool = False
    counted: Callable[..., object] | None = None
    setting: Callable[[], AbstractContextManager[object]] = nullcontext
    measure: Callable[[], bench.Timing] | None = None
    capability: tuple[int, int] = (0, 0)

    @property
    def title(self) -> str:
        """The cell in one line of text."""
        values = " ".join(
            f"{name}={_power(value)}" if isinstance(value, int) else value
            for name, value in self.parameters.items()
        )
        return f"{self.benchmark} {self.case} {values}".rstrip()

    def obstacle(self, memory_bytes: int, capability: tuple[int, int]) -> str | None:
        """Say why a GPU cannot measure this cell; None if it can.

        Args:
            memory_bytes: the GPU's free memory.
            capability: the GPU's compute capability.
        """
        if capability < self.capability:
            wanted = ".".join(map(str, self.capability))
            return f"needs compute capability {wanted}"
        if self.peak_bytes > memory_bytes:
            wanted, there = self.peak_bytes / 2**30, memory_bytes / 2**30
            return f"needs {wanted:.1f} GiB of GPU memory, {there:.1f} GiB are free"
        return None

    def prepare(self, device: str = "cuda") -> Callable[[], object]:
        """Make fresh random inputs and return the function to time."""
        import torch

        assert self.function is not None
        tensors = [
            torch.randn(entry.shape, dtype=getattr(torch, entry.dtype), device=device)
            for entry in self.inputs
        ]
        function = self.function
        if self.compiled:
            # Each shape its own kernel, and no shape pushed out of the cache by earlier ones.
            torch.compiler.reset()
            function = torch.compile(function, dynamic=False, fullgraph=True)
        return lambda: function(*tensors)

    def time(self) -> bench.Timing:
        """Measure the cell on the GPU."""
        if self.measure is not None:
            return self.measure()
        with self.setting():
            return bench.measure(self.prepare(), rated=False)

    def count(self) -> Count | None:
        """Count the cell's bytes and FLOPs without computing anything; None for a bare launch."""
        if self.function is None:
            return None
        import torch

        from course_utils import Meter

        tensors = [
            torch.empty(entry.shape, dtype=getattr(torch, entry.dtype), device="meta")
            for entry in self.inputs
        ]
        with Meter() as meter:
            result = (self.counted or self.function)(*tensors)
        traffic = meter.traffic
        if not self.fused:
            return Count(traffic.bytes_read, traffic.bytes_written, traffic.flops)
        outputs = result if isinstance(result, tuple | list) else (result,)
        read = sum(entry.nbytes for entry in self.inputs)
        return Count(read, sum(output.nbytes for output in outputs), traffic.flops)


@dataclass(frozen=True)
class Count:
    """What a cell moves and computes."""

    read: int
    written: int
    flops: int

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def copy() -> Iterator[Cell]:
    """A device-to-device copy: the practical ceiling of the bandwidth."""
    for power in range(10, 31):
        yield _copy("copy", "torch", {"n": 2**power}, 2**power)


def matmul() -> Iterator[Cell]:
    """Square products through PyTorch: the practical ceiling of the arithmetic, by dtype."""
    for case in MATMUL_DTYPES:
        for size in (512, 1024, 2048, 4096, 8192, 16384):
            yield _matmul("matmul", case, case, size, {})


def chain() -> Iterator[Cell]:
    """The course's five-op chain, eager and compiled, over sizes; in bfloat16 at the largest."""
    for power in range(10, 29, 2):
        yield from _chain_pair(2**power, "float32")
    yield from _chain_pair(LARGE, "bfloat16")


def residual() -> Iterator[Cell]:
    """The residual block, eager and compiled."""
    from course_utils.examples import residual_block

    for case in ("eager", "compiled"):
        yield _elementwise("residual", case, {}, residual_block, LARGE, "float32")


def fusion() -> Iterator[Cell]:
    """Chains of one to sixteen unary ops, eager and compiled."""
    from course_utils.examples import chain_of

    for ops in range(1, 17):
        for case in ("eager", "compiled"):

            def function(x: Any, ops: int = ops) -> Any:
                return chain_of(x, ops)

            yield _elementwise("fusion", case, {"ops": ops}, function, LARGE, "float32")


def launch() -> Iterator[Cell]:
    """What a launch costs when the kernel does next to nothing."""
    ways = {
        "empty_kernel": time_empty_kernel,
        "add_8": time_tiny_op,
        "add_8_host": time_tiny_op_on_host,
        "add_8_graph": time_tiny_op_in_graph,
    }
    for case, measure in ways.items():
        yield Cell("launch", case, {"launches": bench.LAUNCHES}, measure=measure)


def cache() -> Iterator[Cell]:
    """One pass over the same tensor again and again, which HBM need not serve if L2 keeps it."""
    import torch

    for power in range(16, 29):
        n = 2**power
        vector = Input((n,))

        def measure(n: int = n) -> bench.Timing:
            x = torch.randn(n, device="cuda")
            return time_in_graph(lambda: torch.neg(x, out=x), launches=20)

        yield Cell(
            "cache",
            "neg_again",
            {"n": n, "dtype": "float32"},
            torch.neg_,
            (vector,),
            vector.nbytes,
            measure=measure,
        )


def op() -> Iterator[Cell]:
    """The points of the roofline: ops whose intensities span four orders of magnitude."""
    import torch
    import torch.nn.functional as F

    n = LARGE
    yield _copy("op", "copy", {"n": n, "dtype": "float32"}, n)

    def one(
        case: str, function: Callable[..., object], inputs: int, tensors: int, dtype: str
    ) -> Cell:
        vector = Input((n,), dtype)
        parameters = {"n": n, "dtype": dtype}
        return Cell("op", case, parameters, function, (vector,) * inputs, tensors * vector.nbytes)

    yield one("add", torch.add, inputs=2, tensors=3, dtype="float32")
    yield one("gelu", F.gelu, inputs=1, tensors=2, dtype="float32")
    yield one("sum", torch.sum, inputs=1, tensors=1, dtype="float32")
    yield one("neg", torch.neg, inputs=1, tensors=2, dtype="float32")
    # Half the bytes, and the arithmetic of a GELU no longer hides behind them.
    yield one("neg", torch.neg, inputs=1, tensors=2, dtype="bfloat16")
    yield one("gelu", F.gelu, inputs=1, tensors=2, dtype="bfloat16")
    # Negation can be repeated in place for ever without the values running off to infinity.
    yield one("neg_in_place", torch.neg_, inputs=1, tensors=1, dtype="float32")
    for columns in (1024, 4096):
        rows = n // columns
        parameters = {"rows": rows, "columns": columns, "dtype": "float32"}
        matrix = Input((rows, columns))
        row = Input((columns,))

        def softmax(x: Any) -> Any:
            return torch.softmax(x, dim=-1)

        def layernorm(x: Any, weight: Any, bias: Any) -> Any:
            return F.layer_norm(x, (x.shape[-1],), weight, bias)

        yield Cell("op", "softmax", parameters, softmax, (matrix,), 2 * matrix.nbytes)
        yield Cell("op", "layernorm", parameters, layernorm, (matrix, row, row), 2 * matrix.nbytes)
        yield Cell("op", "broadcast_add", parameters, torch.add, (matrix, row), 2 * matrix.nbytes)
    for case in ("fp32", "bf16"):
        for side in (256, 512, 1024, 2048, 4096, 8192):
            yield _matmul("op", "matmul", case, side, {"dtype": MATMUL_DTYPES[case]})
    for tokens in (1024, 4096):
        yield from _attention_pair(batch=4, heads=16, tokens=tokens, head_dim=64)


def elementwise() -> Iterator[Cell]:
    """The shelf's element-wise kernels (lesson 04), beside eager PyTorch and torch.compile."""
    import torch
    import torch.nn.functional as F

    from course_utils import examples

    def gelu_tanh(x: Any) -> Any:
        return F.gelu(x, approximate="tanh")

    def residual_separate(x: Any, residual: Any) -> Any:
        return residual + F.gelu(x * 1.5 + 0.25) * 0.5

    def bias_residual(x: Any, bias: Any) -> Any:
        return x + F.gelu(x * 1.5 + bias) * 0.5

    def erf(shelf: Any, x: Any) -> Any:
        """The formula as it stands, which lesson 04 starts from."""
        y, n = torch.empty_like(x), x.numel()
        shelf.gelu_erf_kernel[(-(-n // 1024),)](x, y, n, BLOCK=1024)
        return y

    def all_ways(
        op: str, eager: Callable[..., object], ours: Callable[..., object], vectors: int = 1
    ) -> list[Cell]:
        forms = {"eager": eager, "compiled": eager, "ours": on_shelf("elementwise", ours)}
        return [
            _shelf_cell("elementwise", case, {"op": op}, form, eager, vectors, dtype)
            for dtype in ("float32", "bfloat16")
            for case, form in forms.items()
        ]

    yield from all_ways("gelu", F.gelu, lambda shelf, x: shelf.fused_gelu(x))
    yield from all_ways("gelu_tanh", gelu_tanh, lambda shelf, x: shelf.fused_gelu(x, "tanh"))
    yield from all_ways("chain", examples.chain, lambda shelf, x: shelf.fused_chain(x))
    block = examples.residual_block
    yield from all_ways("residual", block, lambda shelf, x: shelf.fused_residual_block(x))
    yield from all_ways(
        "residual_separate",
        residual_separate,
        lambda shelf, x, residual: shelf.fused_residual_block(x, residual),
        vectors=2,
    )
    for dtype in ("float32", "bfloat16"):
        form = on_shelf("elementwise", erf)
        yield _shelf_cell("elementwise", "erf", {"op": "gelu"}, form, F.gelu, 1, dtype)
    ours = on_shelf("elementwise", lambda shelf, x, y: shelf.vector_add(x, y))
    for case, form in {"eager": torch.add, "ours": ours}.items():
        yield _shelf_cell("elementwise", case, {"op": "add"}, form, torch.add, 2, "float32")
    rows, columns = 2**16, 2**12
    ours = on_shelf("elementwise", lambda shelf, x, b: shelf.fused_bias_residual_block(x, b))
    for dtype in ("float32", "bfloat16"):
        inputs = (Input((rows, columns), dtype), Input((columns,), dtype))
        for case, form in {"eager": bias_residual, "compiled": bias_residual, "ours": ours}.items():
            parameters = {"op": "bias_residual", "rows": rows, "columns": columns, "dtype": dtype}
            yield _fused_cell("elementwise", case, parameters, form, bias_residual, inputs)


MOST_ELEMENTS_A_THREAD = 128
"""Beyond it a tile does not fit into the registers of its threads, and compiles for minutes."""


def block_sweep() -> Iterator[Cell]:
    """The chain's kernel over BLOCK and num_warps, which lesson 04 and its explorer show."""
    from course_utils import examples

    for block in (2**power for power in range(6, 15)):
        for num_warps in (1, 2, 4, 8, 16):
            if block > MOST_ELEMENTS_A_THREAD * 32 * num_warps:
                continue

            def ours(shelf: Any, x: Any, block: int = block, num_warps: int = num_warps) -> Any:
                import torch

                y, n = torch.empty_like(x), x.numel()
                shelf.chain_kernel[(-(-n // block),)](x, y, n, BLOCK=block, num_warps=num_warps)
                return y

            parameters = {"block": block, "num_warps": num_warps}
            form = on_shelf("elementwise", ours)
            yield _shelf_cell(
                "block_sweep", "chain", parameters, form, examples.chain, 1, "float32"
            )


WIDTHS = tuple(2**power for power in (8, 10, 12, 13, 14, 15, 16))
"""Columns of the matrices whose rows are reduced; ``LARGE`` elements in each."""


def reductions() -> Iterator[Cell]:
    """The shelf's reductions (lesson 06), beside eager PyTorch and torch.compile, over widths.

    The backward passes are the ops that autograd calls. Compiled, they become the kernels that a
    compiled model gets for its own backward pass.
    """
    import torch
    import torch.nn.functional as F

    aten = torch.ops.aten

    def softmax(x: Any) -> Any:
        return torch.softmax(x, dim=-1)

    def rmsnorm(x: Any, w: Any) -> Any:
        return F.rms_norm(x, x.shape[-1:], w, 1e-5)

    def layernorm(x: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)

    def rmsnorm_backward(dy: Any, x: Any, w: Any, rstd: Any) -> Any:
        return aten._fused_rms_norm_backward(dy, x, x.shape[-1:], rstd, w, [True] * 2)

    def layernorm_backward(dy: Any, x: Any, w: Any, b: Any, mean: Any, rstd: Any) -> Any:
        return aten.native_layer_norm_backward(dy, x, x.shape[-1:], mean, rstd, w, b, [True] * 3)

    # Called with the shelf's module, and with the tensors that the eager form takes.
    ours = {
        softmax: lambda shelf, x: shelf.softmax(x),
        rmsnorm: lambda shelf, x, w: shelf.norm_forward(x, w, None, 1e-5, False)[0],
        layernorm: lambda shelf, x, w, b: shelf.norm_forward(x, w, b, 1e-5, True)[0],
        rmsnorm_backward: lambda shelf, dy, x, w, rstd: shelf.norm_backward(
            dy, x, w, None, None, rstd
        )[:2],
        layernorm_backward: lambda shelf, *tensors: shelf.norm_backward(*tensors),
    }
    for eager, call in ours.items():
        op = eager.__name__
        forms = {"eager": eager, "compiled": eager, "ours": on_shelf("reductions", call)}
        for dtype in ("float32", "bfloat16"):
            for columns in WIDTHS:
                rows = LARGE // columns
                parameters = {"op": op, "rows": rows, "columns": columns, "dtype": dtype}
                inputs = _reduced(inspect.signature(eager).parameters, rows, columns, dtype)
                for case, form in forms.items():
                    yield _fused_cell(
                        "reductions", case, parameters, form, eager, inputs, eager_is_fused=True
                    )


def softmax_plans() -> Iterator[Cell]:
    """Ways to divide the rows of a softmax among programs, which lesson 06 compares."""
    import torch

    def softmax(x: Any) -> Any:
        return torch.softmax(x, dim=-1)

    def cell(case: str, width: int, dtype: str = "float32", **plan: int | None) -> Cell:
        """Rows of so many columns, divided by a plan with the fields of the shelf's ``Plan``."""
        rows = LARGE // width
        names = {"rows_per_program": "rows", "kept": "columns", "warps": "warps"}
        names |= {"step": "tile", "registers": "registers"}  # 0: no loop; no limit
        parameters = {"rows": rows, "columns": width, "dtype": dtype}
        parameters |= {name: plan.get(entry) or 0 for name, entry in names.items()}
        form = on_shelf("reductions", lambda shelf, x: shelf.softmax(x, plan=shelf.Plan(**plan)))
        inputs = _reduced(["x"], rows, width, dtype)
        return _fused_cell("softmax_plans", case, parameters, form, softmax, inputs)

    for columns, warps in ((1024, 4), (4096, 8), (16384, 16), (32768, 32), (65536, 32)):
        yield cell("one_row", columns, rows=1, columns=columns, warps=warps)
    for dtype in ("float32", "bfloat16"):
        for rows in (2, 4, 8):
            yield cell("rows", 256, dtype, rows=rows, columns=256, warps=1)
    for columns, warps, registers in ((8192, 8, 80), (16384, 16, 64), (32768, 32, None)):
        plan = {"rows": 1, "columns": columns, "warps": warps, "registers": registers}
        for case in ("once", "again"):
            yield cell(case, columns, **plan, again=case == "again")
    for kept in (4096, 8192, 16384, 32768):
        for step in sorted({min(kept, 8192), min(kept, 16384)}):
            yield cell("long", 65536, rows=1, columns=kept, warps=32, tile=step)


def on_shelf(module: str, call: Callable[..., object]) -> Callable[..., object]:
    """Return a function of tensors that calls something of the shelf.

    The shelf is imported when it is called: importing it imports Triton, and listing the cells must
    not.

    Args:
        module: a module of ``course_utils.kernels``, such as "elementwise".
        call: takes that module, then the tensors.
    """

    def function(*tensors: Any) -> Any:
        return call(importlib.import_module(f"course_utils.kernels.{module}"), *tensors)

    return function


BENCHMARKS: Mapping[str, Callable[[], Iterator[Cell]]] = {
    function.__name__: function
    for function in (
        *(copy, cache, matmul, chain, residual, fusion, launch, op),
        *(elementwise, block_sweep, reductions, softmax_plans),
    )
}
"""Every benchmark of a whole record, by name, in the order they are measured."""


def cells(names: Any = None) -> list[Cell]:
    """Return the cells of some benchmarks, of all by default.

    Raises:
        ValueError: if a name is no benchmark.
    """
    names = list(BENCHMARKS if names is None else names)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise ValueError(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    return [cell for name in names for cell in BENCHMARKS[name]()]


def counter_cells() -> dict[str, Cell]:
    """Return the ops whose DRAM bytes ncu reads, by the op's name in the record.

    Tensors are many times the L2 cache, so that what a cache keeps is small beside what moves. A
    copy is not among them: PyTorch has the GPU's copy engine do it, and ncu sees kernels only.
    """
    points = {
        cell.case: cell
        for cell in op()
        if cell.case in ("add", "gelu", "sum", "softmax", "layernorm")
        and cell.parameters["dtype"] == "float32"
    }
    both = {
        f"{cell.benchmark}_{cell.case}": cell
        for cell in (*_chain_pair(LARGE, "float32"), *residual())
    }
    ours = {
        f"{cell.parameters['op']}_ours": cell
        for cell in elementwise()
        if cell.case == "ours"
        and cell.parameters["op"] in ("gelu", "chain", "residual_separate", "bias_residual")
        and cell.parameters["dtype"] == "float32"
    }
    # 4096 columns fit into one program; of 65536 the caches have to serve a part.
    reduced = {
        f"{cell.parameters['op']}_ours_{cell.parameters['columns']}": cell
        for cell in reductions()
        if cell.case == "ours"
        and cell.parameters["columns"] in (4096, 65536)
        and cell.parameters["dtype"] == "float32"
    }
    return points | both | ours | reduced


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow float32 products to use tf32, or not, and put the switch back afterwards.

    The older of PyTorch's two switches is used on purpose: up to 2.11 at least, torch.compile reads
    it, and raises when a program has set the newer one.
    """
    import torch

    settings = torch.backends.cuda.matmul
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = settings.allow_tf32
        settings.allow_tf32 = allowed
        try:
            yield
        finally:
            settings.allow_tf32 = before


def time_empty_kernel() -> bench.Timing:
    """Time launches of a Triton kernel that does nothing."""
    import torch
    import triton

    @triton.jit
    def empty_kernel(x_pointer):
        pass

    x = torch.randn(8, device="cuda")
    return bench.per_launch(lambda: empty_kernel[(1,)](x))


def time_tiny_op() -> bench.Timing:
    """Time launches of an eager add of eight elements."""
    import torch

    x = torch.randn(8, device="cuda")
    return bench.per_launch(lambda: x + 1.0)


def time_tiny_op_on_host() -> bench.Timing:
    """Time how long the host is busy with one launch of an eager add of eight elements."""
    import torch

    x = torch.randn(8, device="cuda")
    samples = []

    def launch() -> object:
        return x + 1.0

    for _ in range(12):
        torch.cuda.synchronize()
        begin = perf_counter()
        for _ in range(bench.LAUNCHES):
            launch()
        samples.append((perf_counter() - begin) * 1e3 / bench.LAUNCHES)
    torch.cuda.synchronize()
    return _from_samples(samples[1:])


def time_tiny_op_in_graph() -> bench.Timing:
    """Time one of many eager adds of eight elements, replayed as a CUDA graph."""
    import torch

    x = torch.randn(8, device="cuda")
    out = torch.empty_like(x)
    return time_in_graph(lambda: torch.add(x, 1.0, out=out), bench.LAUNCHES)


def time_in_graph(launch: Callable[[], object], launches: int) -> bench.Timing:
    """Time one of many launches of the same kernel, replayed as a CUDA graph.

    The host has no part in it, so this is the device's own time from one kernel to the next; and
    nothing empties the caches in between.
    """
    import torch

    launch()  # loads the kernel, which may not happen during capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            launch()
    samples = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) / launches)
    return _from_samples(samples[1:])


def _from_samples(samples: list[float]) -> bench.Timing:
    import torch

    return bench.summary(samples, f"timed on {torch.cuda.get_device_name()}")


def _copy(benchmark: str, case: str, parameters: dict[str, int | str], n: int) -> Cell:
    def function(x: Any, out: Any) -> Any:
        return out.copy_(x)

    vector = Input((n,))
    return Cell(benchmark, case, parameters, function, (vector, vector), 2 * vector.nbytes)


def _matmul(
    benchmark: str, case: str, precision: str, size: int, parameters: dict[str, str]
) -> Cell:
    import torch

    matrix = Input((size, size), MATMUL_DTYPES[precision])
    return Cell(
        benchmark,
        case,
        {"m": size, "n": size, "k": size, **parameters},
        torch.matmul,
        (matrix, matrix),
        3 * matrix.nbytes,
        setting=lambda: tf32(precision == "tf32"),
        capability=CAPABILITY_OF_TF32 if precision in ("tf32", "bf16") else (0, 0),
    )


def _chain_pair(n: int, dtype: str) -> Iterator[Cell]:
    from course_utils.examples import chain as function

    for case in ("eager", "compiled"):
        yield _elementwise("chain", case, {}, function, n, dtype)


def _elementwise(
    benchmark: str,
    case: str,
    parameters: dict[str, int | str],
    function: Callable[..., object],
    n: int,
    dtype: str,
) -> Cell:
    vector = Input((n,), dtype)
    compiled = case == "compiled"
    # Eager: the input, the intermediate being read, the one being written.
    return Cell(
        benchmark,
        case,
        {"n": n, **parameters, "dtype": dtype},
        function,
        (vector,),
        (2 if compiled else 3) * vector.nbytes,
        compiled=compiled,
        fused=compiled,
        capability=CAPABILITY_OF_BF16 if dtype == "bfloat16" else (0, 0),
    )


def _shelf_cell(
    benchmark: str,
    case: str,
    parameters: dict[str, int | str],
    function: Callable[..., object],
    eager: Callable[..., object],
    vectors: int,
    dtype: str,
) -> Cell:
    inputs = (Input((LARGE,), dtype),) * vectors
    parameters = {**parameters, "n": LARGE, "dtype": dtype}
    return _fused_cell(benchmark, case, parameters, function, eager, inputs)


def _fused_cell(
    benchmark: str,
    case: str,
    parameters: dict[str, int | str],
    function: Callable[..., object],
    eager: Callable[..., object],
    inputs: tuple[Input, ...],
    eager_is_fused: bool = False,
) -> Cell:
    """A cell that is one kernel, unless its case is "eager"; counted by its eager form."""
    fused = eager_is_fused or case != "eager"
    # Eager: the inputs, the intermediate being read, the one being written.
    return Cell(
        benchmark,
        case,
        parameters,
        function,
        inputs,
        sum(entry.nbytes for entry in inputs) + (1 if fused else 2) * inputs[0].nbytes,
        compiled=case == "compiled",
        fused=fused,
        counted=eager,
        capability=CAPABILITY_OF_BF16 if inputs[0].dtype == "bfloat16" else (0, 0),
    )


def _reduced(names: Iterable[str], rows: int, columns: int, dtype: str) -> tuple[Input, ...]:
    """The inputs of a reduction over rows, by the names of its arguments."""
    matrix, weights = Input((rows, columns), dtype), Input((columns,), dtype)
    statistics = Input((rows, 1), "float32")
    kinds = {"x": matrix, "dy": matrix, "w": weights, "b": weights}
    return tuple(kinds.get(name, statistics) for name in names)


def _attention_pair(batch: int, heads: int, tokens: int, head_dim: int) -> Iterator[Cell]:
    import torch
    import torch.nn.functional as F

    def naive(query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        return torch.softmax(scores, dim=-1) @ value

    head = Input((batch, heads, tokens, head_dim), "float16")
    scores = batch * heads * tokens**2 * ITEMSIZE["float16"]
    for implementation in ("naive", "sdpa"):
        fused = implementation == "sdpa"
        yield Cell(
            "op",
            "attention",
            {
                "batch": batch,
                "heads": heads,
                "tokens": tokens,
                "head_dim": head_dim,
                "dtype": "float16",
                "implementation": implementation,
            },
            F.scaled_dot_product_attention if fused else naive,
            (head, head, head),
            4 * head.nbytes + (0 if fused else 2 * scores),
            fused=fused,
        )


def _power(value: int) -> str:
    """Write a large power of two as such: 2^28 is easier to read than 268435456."""
    exponent = value.bit_length() - 1
    return f"2^{exponent}" if value >= 2**14 and value == 2**exponent else str(value)
