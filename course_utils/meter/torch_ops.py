"""Count eager PyTorch ops from their operands' sizes, on any device, ``meta`` included.

An eager op reads each operand from memory and writes its result back, so its traffic follows from
its operands alone; nothing has to be computed for it. A dispatch mode sees every op, inside
autograd's backward threads too, below autograd and above the device.

The rules, in the order they are tried:

1. views, allocations and metadata move nothing and are no launch;
2. ops that only write (``fill_``, ``copy_`` into its target, factories, ``out=``) do not read
   what they overwrite;
3. ops that pick rows (``embedding``, ``gather``, ``index``) read what they pick;
4. everything else reads each distinct operand once and writes each new or mutated tensor once.

This is the op's *requested* traffic at op level: a softmax over long rows may really read its
input more than once; lesson 06 looks inside.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils.flop_counter import flop_registry

from course_utils.meter.traffic import ArgumentTraffic, Launch, Traffic

aten = torch.ops.aten

_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_NOTHING_MOVES = {"lift_fresh", "_local_scalar_dense", "is_same_size", "sym_size", "record_stream"}
_OVERWRITE_SELF = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_",
                   "exponential_", "resize_", "set_"}  # fmt: skip
_DATA_MOVEMENT = {"clone", "_to_copy", "copy_", "copy", "fill_", "fill", "zero_", "cat", "stack"}

# Ops that read only what their index names: argument positions of (source, index).
_PICKS = {"embedding": (0, 1), "index_select": (0, 2), "gather": (0, 2), "index": (0, 1)}

# Composite kernels: FLOPs per input element, counted step by step with the course's convention.
_FLOPS_PER_INPUT_ELEMENT = {
    "_softmax": 5,  # max, subtract, exp, sum, divide
    "_safe_softmax": 5,
    "_log_softmax": 5,  # max, subtract, exp, sum, subtract the log
    "_softmax_backward_data": 4,  # grad·y, sum, subtract, multiply
    "_log_softmax_backward_data": 4,
    "native_layer_norm": 8,  # mean, subtract, square, sum, subtract, scale by rstd, weight, bias
    "_fused_rms_norm": 4,  # square, sum, scale by the reciprocal root, weight
    "cumsum": 1,
    "cumprod": 1,
    "native_dropout": 2,  # compare with the keep probability, scale
}
# Reductions that old PyTorch versions do not tag as such.
_REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin", "var",
               "std", "var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp", "all",
               "any", "count_nonzero"}  # fmt: skip


class CountingMode(TorchDispatchMode):
    """The dispatch mode behind a Meter: hands every counted op to ``on_launch``."""

    def __init__(self, on_launch: Callable[[Launch], None]) -> None:
        super().__init__()
        self.on_launch = on_launch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile run under the meter instead of silently falling back to eager."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prims", "prim", "_c10d_functional"):
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
        if key is None:
            result = func(*args, **kwargs)
            launch = count_op(func, args, kwargs, result)
            if launch is not None:
                self.on_launch(launch)
            return result
        with self:
            return func._op_dk(key, *args, **kwargs)


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


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes a tensor really owns: broadcast (stride 0) dimensions count once."""
    if tensor.layout != torch.strided:
        return sum(tensor_bytes(part) for part in _sparse_parts(tensor))
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = math.prod(size if stride != 0 else min(size, 1) for size, stride in sizes)
    return elements * tensor.element_size()


def count_op(func: Any, args: tuple, kwargs: dict, result: Any) -> Launch | None:
    """Count one op after it ran.

    Args:
        func: the ``OpOverload`` that ran.
        args: its positional arguments.
        kwargs: its keyword arguments.
        result: what it returned.

    Returns:
        The launch, or None when nothing moved.
    """
    name = func._schema.name.split("::")[-1]
    if name in _NOTHING_MOVES or name in _ALLOCATIONS:
        return None
    named = _named_tensors(func, args, kwargs)
    outputs = [t for t in _flatten(result) if isinstance(t, torch.Tensor)]
    mutated = {n for n, _, is_write, _ in named if is_write}
    inputs_memory = {_memory(t) for _, t, _, _ in named}
    if not mutated and outputs and all(_memory(t) in inputs_memory for t in outputs):
        return None  # a view
    if not mutated and not outputs:
        return None

    arguments: dict[str, ArgumentTraffic] = {}
    seen_reads: set[Any] = set()
    for arg_name, tensor, is_write, is_out in named:
        size = tensor_bytes(tensor)
        read = size
        if is_write and (is_out or name in _OVERWRITE_SELF):
            read = 0
        elif name in _PICKS:
            read = _picked_bytes(name, args, tensor, outputs)
        region = _region(tensor)
        if region in seen_reads:
            read = 0  # x * x loads x once
        elif read:
            seen_reads.add(region)
        written = size if is_write else 0
        _add(arguments, arg_name, tensor, read, written)
    for index, tensor in enumerate(outputs):
        if _memory(tensor) in inputs_memory:
            continue
        label = "out" if len(outputs) == 1 else f"out{index}"
        _add(arguments, label, tensor, 0, tensor_bytes(tensor))

    flops, note = _flops(func, name, args, kwargs, result, named, outputs)
    total = Traffic.total(arguments.values())
    traffic = Traffic(
        total.bytes_read,
        total.bytes_written,
        total.compulsory_read,
        total.compulsory_written,
        flops,
    )
    if traffic.bytes == 0 and flops == 0:
        return None  # empty tensors
    return Launch(
        name=name.rstrip("_") if name.endswith("_") and not name.startswith("__") else name,
        kind="torch",
        traffic=traffic,
        arguments=arguments,
        notes=(note,) if note else (),
    )


def _add(arguments: dict, name: str, tensor: torch.Tensor, read: int, written: int) -> None:
    if name in arguments:
        name = f"{name}[{sum(k.split('[')[0] == name for k in arguments)}]"
    arguments[name] = ArgumentTraffic(
        bytes_read=read,
        bytes_written=written,
        compulsory_read=read,
        compulsory_written=written,
        nbytes=tensor_bytes(tensor),
    )


def _named_tensors(func, args, kwargs) -> list[tuple[str, torch.Tensor, bool, bool]]:
    """List every tensor operand as (name, tensor, is written, is an out= argument)."""
    found = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in kwargs:
            value = kwargs[argument.name]
        elif position < len(args) and not argument.kwarg_only:
            value = args[position]
        else:
            continue
        alias = argument.alias_info
        is_write = alias is not None and alias.is_write
        for tensor in _flatten(value):
            if isinstance(tensor, torch.Tensor):
                found.append((argument.name, tensor, is_write, is_write and argument.kwarg_only))
    return found


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def _sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def _memory(tensor: torch.Tensor) -> Any:
    # The storage object, not its address: meta tensors have none, and empty ones share null.
    if tensor.layout != torch.strided:
        return id(tensor)
    return tensor.untyped_storage()._cdata


def _region(tensor: torch.Tensor) -> Any:
    if tensor.layout != torch.strided:
        return id(tensor)
    return (_memory(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _picked_bytes(name: str, args: tuple, tensor: torch.Tensor, outputs: list) -> int:
    source_position, _ = _PICKS[name]
    if tensor is args[source_position] and outputs:
        return outputs[0].numel() * tensor.element_size()
    return tensor_bytes(tensor)


def _flops(func, name, args, kwargs, result, named, outputs) -> tuple[int, str]:
    packet = func.overloadpacket
    formula = flop_registry.get(packet)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result)), ""
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        query, _key, value = args[:3]
        return _attention_flops(query, args[1], value), ""
    floats = [t for _, t, _, _ in named if t.is_floating_point() or t.is_complex()]
    base = name.rstrip("_")
    if base in _FLOPS_PER_INPUT_ELEMENT and floats:
        return _FLOPS_PER_INPUT_ELEMENT[base] * floats[0].numel(), ""
    if name in _DATA_MOVEMENT or base in _DATA_MOVEMENT or not floats:
        return 0, ""
    tags = getattr(func, "tags", [])
    if torch.Tag.pointwise in tags or _inplace_twin_is_pointwise(func, name):
        written = outputs or [t for _, t, is_write, _ in named if is_write]
        return max(t.numel() for t in written), ""
    reduction_tag = getattr(torch.Tag, "reduction", None)
    if base in _REDUCTIONS or (reduction_tag is not None and reduction_tag in tags):
        return floats[0].numel(), ""
    if name in _PICKS or base in ("slice_backward", "select_backward", "scatter", "index_put"):
        return 0, ""
    return 0, f"FLOPs of {name} are not counted: the meter has no rule for it"


def _inplace_twin_is_pointwise(func, name: str) -> bool:
    # mul_ carries the tag only in some PyTorch versions; mul carries it in all.
    if not name.endswith("_"):
        return False
    twin = getattr(aten, name.rstrip("_"), None)
    overload = getattr(twin, func._overloadname, None) if twin is not None else None
    return overload is not None and torch.Tag.pointwise in overload.tags


def _attention_flops(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    *batch, n_q, d = query.shape
    n_k, d_v = key.shape[-2], value.shape[-1]
    return 2 * math.prod(batch) * n_q * n_k * (d + d_v)


def _implementation_key(func: Any, args: tuple, kwargs: dict) -> Any:
    """Name the dispatch key under which a custom op's Python implementation is registered."""
    for value in _flatten([list(args), list(kwargs.values())]):
        if isinstance(value, torch.Tensor):
            backend = {"cpu": "CPU", "cuda": "CUDA"}.get(value.device.type)
            keys = [backend, "CompositeExplicitAutograd"] if backend else []
            for key in (getattr(torch._C.DispatchKey, name) for name in keys):
                if hasattr(func, "_op_dk") and func.has_kernel_for_dispatch_key(key):
                    return key
            return None
    return None
