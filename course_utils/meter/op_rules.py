"""The traffic and the FLOPs of one eager PyTorch op, from its operands' sizes.

An eager op reads each operand from memory and writes its result back, so its traffic follows from
its operands alone; nothing has to be computed for it. The rules, in the order they are tried:

1. views, allocations and metadata (``transpose_``, ``resize_``) move nothing and are no launch;
2. an operand that only lends its shape (``zeros_like(x)``) is not read;
3. what is only overwritten is not read: ``fill_``, the target of ``copy_``, ``out=``;
4. ops that pick elements (``embedding``, ``gather``, ``index``) read what they pick, and ops that
   place elements (``index_put_``, ``scatter_add_``) touch what they place;
5. everything else reads each distinct operand once and writes each new or mutated tensor once.

This is the op's *requested* traffic at op level: a softmax over long rows may really read its
input more than once; lesson 06 looks inside.

FLOPs follow the course's convention: 2·M·N·K for a product of matrices, one per element of the
result for an element-wise op (transcendentals, comparisons and selections too), one per input
element for a reduction; moving data costs none. Composite kernels are counted step by step
(``_FLOPS_PER_INPUT_ELEMENT``). Where there is no rule, the launch says so in a note.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from course_utils.meter.tensors import memory_of, region_of, tensor_bytes
from course_utils.meter.traffic import ArgumentTraffic, Launch, Traffic

aten = torch.ops.aten

# -- bytes: which operand is read and written, and how much of it -----------------------------

_NOTHING_MOVES = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "_efficientzerotensor", "lift_fresh", "_local_scalar_dense", "is_same_size", "sym_size",
    "record_stream", "_resize_output_", "sparse_resize_", "_coalesced_",
}  # fmt: skip

# Write-only ops: their self is a target.
_OVERWRITE_SELF = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
    "log_normal_", "geometric_", "cauchy_",
}  # fmt: skip

# Operands besides those of `*_like` and `new_*` that only lend their shape.
_SHAPE_ONLY = {
    "nll_loss_backward": "self",
    "nll_loss2d_backward": "self",
    "max_pool2d_with_indices_backward": "self",
    "avg_pool2d_backward": "self",
    "_adaptive_avg_pool2d_backward": "self",
}

# Ops that read only what an index names: the operand, and the number of elements picked.
_PICKS: dict[str, tuple[str, Callable[[_Call], int]]] = {
    "embedding": ("weight", lambda call: call.outputs[0].numel()),
    "_embedding_bag": ("weight", lambda call: _picked_rows(call)),
    "_embedding_bag_forward_only": ("weight", lambda call: _picked_rows(call)),
    "gather": ("self", lambda call: call.outputs[0].numel()),
    "index": ("self", lambda call: call.outputs[0].numel()),
    "index_select": ("self", lambda call: call.outputs[0].numel()),
    "take": ("self", lambda call: call.outputs[0].numel()),
    "nll_loss_forward": ("self", lambda call: call["target"].numel()),
    "nll_loss2d_forward": ("self", lambda call: call["target"].numel()),
}

# In-place ops that touch only the elements of self that an index names, and how many.
_PLACES: dict[str, Callable[[_Call], int]] = {
    "index_add_": lambda call: call["source"].numel(),
    "index_copy_": lambda call: call["source"].numel(),
    "index_fill_": lambda call: _filled_slices(call),
    "index_put_": lambda call: _placed_elements(call["self"], call["indices"]),
    "_index_put_impl_": lambda call: _placed_elements(call["self"], call["indices"]),
    "scatter_": lambda call: call["index"].numel(),
    "scatter_add_": lambda call: call["index"].numel(),
    "scatter_reduce_": lambda call: call["index"].numel(),
}
_ACCUMULATES = {"index_add", "scatter_add", "scatter_reduce"}

# -- FLOPs ------------------------------------------------------------------------------------

_FLOPS_PER_INPUT_ELEMENT = {
    "_softmax": 5,  # max, subtract, exp, sum, divide
    "_safe_softmax": 5,
    "_log_softmax": 5,  # max, subtract, exp, sum, subtract the log
    "_softmax_backward_data": 4,  # grad·y, sum, subtract, multiply
    "_log_softmax_backward_data": 4,
    "native_layer_norm": 8,  # mean, subtract, square, sum, subtract, scale by rstd, weight, bias
    # x-hat 2, gradient by weight 1, its two sums 3, dx 4, sums for weight and bias 3
    "native_layer_norm_backward": 13,
    "native_group_norm": 8,
    "_fused_rms_norm": 4,  # square, sum, scale by the reciprocal root, weight
    "_fused_rms_norm_backward": 9,  # x-hat 1, gradient by weight 1, its sum 2, dx 3, weight 2
    "mse_loss": 3,  # subtract, square, sum
    "cumsum": 1,
    "cumprod": 1,
    "native_dropout": 2,  # compare with the keep probability, scale
    "embedding_dense_backward": 1,  # each row of the gradient is added to its row
}
# Matrix products that PyTorch's own registry of formulas lacks: FLOPs from the operands' shapes.
_PRODUCTS: dict[str, Callable[[_Call], int]] = {
    "dot": lambda call: 2 * call["self"].numel(),
    "vdot": lambda call: 2 * call["self"].numel(),
    "mv": lambda call: 2 * call["self"].numel(),
    "addmv": lambda call: 2 * call["mat"].numel(),
    "_int_mm": lambda call: 2 * call["self"].numel() * call["mat2"].shape[1],
    "_scaled_dot_product_flash_attention_for_cpu": lambda call: sdpa_flop_count(
        call["query"].shape, call["key"].shape, call["value"].shape
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda call: sdpa_backward_flop_count(
        call["grad_out"].shape, call["query"].shape, call["key"].shape, call["value"].shape
    ),
}
# Reductions that old PyTorch versions do not tag as such.
_REDUCTIONS = {
    "sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin", "var", "std",
    "var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp", "all", "any",
    "count_nonzero", "nll_loss_forward", "nll_loss2d_forward",
}  # fmt: skip
# Ops that move, choose or draw numbers without computing any.
_NO_FLOPS = {
    "_embedding_bag", "_embedding_bag_forward_only", "_reshape_copy", "_to_copy", "_to_dense",
    "_to_sparse", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr", "_unique2", "argsort",
    "bernoulli", "cat", "cauchy", "clone", "constant_pad_nd", "copy", "dequantize", "embedding",
    "exponential", "fill", "flip", "full", "gather", "geometric", "index", "index_select",
    "log_normal", "masked_select", "multinomial", "nll_loss2d_backward", "nll_loss_backward",
    "nonzero", "normal", "put", "random", "repeat", "repeat_interleave", "roll", "select_backward",
    "slice_backward", "sort", "stack", "take", "to", "topk", "tril", "triu", "uniform", "zero",
}  # fmt: skip


@dataclass(frozen=True)
class _Operand:
    """A tensor that an op was given."""

    name: str
    tensor: torch.Tensor
    is_written: bool
    is_out: bool  # an out= argument


class _Call:
    """One call of an op: its arguments by name, its operands and its results."""

    def __init__(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        self.func = func
        self.args, self.kwargs, self.result = args, kwargs, result
        # The rules below are for PyTorch's own ops; another library's `add` may do anything.
        own = func.namespace in ("aten", "prims")
        self.name = func._schema.name.split("::")[-1] if own else func._schema.name
        # `mul_` and `_foreach_mul_` compute what `mul` computes.
        self.base = self.name.rstrip("_").removeprefix("_foreach_")
        self.is_foreach = self.name.startswith("_foreach_")
        self.values = {}
        self.operands: list[_Operand] = []
        for position, argument in enumerate(func._schema.arguments):
            if argument.name in kwargs:
                value = kwargs[argument.name]
            elif position < len(args) and not argument.kwarg_only:
                value = args[position]
            else:
                continue
            self.values[argument.name] = value
            alias = argument.alias_info
            is_written = alias is not None and alias.is_write
            is_out = is_written and argument.kwarg_only
            self.operands += [
                _Operand(argument.name, tensor, is_written, is_out)
                for tensor in flatten(value)
                if isinstance(tensor, torch.Tensor)
            ]
        self.outputs = [t for t in flatten(result) if isinstance(t, torch.Tensor)]
        self._correct_fused_optimizer()

    def __getitem__(self, argument: str) -> Any:
        return self.values[argument]

    def __contains__(self, argument: str) -> bool:
        return self.values.get(argument) is not None

    def _correct_fused_optimizer(self) -> None:
        # Their schemas say that the gradients are written; that is so only when they are unscaled.
        if self.name.startswith("_fused_") and "grads" in self and "grad_scale" not in self:
            self.operands = [
                _Operand(o.name, o.tensor, o.is_written and o.name != "grads", o.is_out)
                for o in self.operands
            ]

    @property
    def written(self) -> list[torch.Tensor]:
        return [o.tensor for o in self.operands if o.is_written]

    @property
    def floats(self) -> list[torch.Tensor]:
        tensors = [o.tensor for o in self.operands]
        return [t for t in tensors if t.is_floating_point() or t.is_complex()]


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
    if func._schema.name.split("::")[-1] in _NOTHING_MOVES or torch.Tag.inplace_view in func.tags:
        return None
    call = _Call(func, args, kwargs, result)
    if not call.written and not call.outputs:
        return None
    given = frozenset().union(*(memory_of(o.tensor) for o in call.operands))
    new = [(i, t) for i, t in enumerate(call.outputs) if not memory_of(t) <= given]
    if not call.written and not new:
        return None  # a view

    arguments: dict[str, ArgumentTraffic] = {}
    seen: set[Any] = set()
    for operand in call.operands:
        read, written = _bytes_moved(call, operand)
        region = region_of(operand.tensor)
        if region in seen:
            read = 0  # x * x loads x once
        elif read:
            seen.add(region)
        _add(arguments, operand.name, operand.tensor, read, written)
    for index, tensor in new:
        label = "out" if len(call.outputs) == 1 else f"out{index}"
        _add(arguments, label, tensor, 0, tensor_bytes(tensor))

    flops, note = _flops(call)
    total = Traffic.total(arguments.values())
    if total.bytes == 0 and flops == 0:
        return None  # empty tensors
    traffic = Traffic(
        total.bytes_read,
        total.bytes_written,
        total.compulsory_read,
        total.compulsory_written,
        flops,
    )
    name = call.name.split("::")[-1]
    return Launch(
        name=name if name.startswith("__") else name.rstrip("_"),
        kind="torch",
        traffic=traffic,
        arguments=arguments,
        notes=(note,) if note else (),
    )


def _bytes_moved(call: _Call, operand: _Operand) -> tuple[int, int]:
    """Say how many bytes of one operand are read and written."""
    tensor, name = operand.tensor, call.name
    size = tensor_bytes(tensor)
    if operand.is_written:
        if name in _PLACES and operand.name == "self":
            placed = _PLACES[name](call) * tensor.element_size()
            return (placed if _accumulates(call) else 0), placed
        is_target = operand.name == "self" and f"{call.base}_" in _OVERWRITE_SELF
        return (0 if operand.is_out or is_target else size), size
    if _only_lends_its_shape(call, operand):
        return 0, 0
    picked_from, elements = _PICKS.get(name, (None, None))
    if operand.name == picked_from and call.outputs:
        return elements(call) * tensor.element_size(), 0
    return size, 0


def _only_lends_its_shape(call: _Call, operand: _Operand) -> bool:
    if call.name.endswith("_like") or call.name.startswith("new_"):
        return operand.name == "self"
    return _SHAPE_ONLY.get(call.name) == operand.name


def _accumulates(call: _Call) -> bool:
    if call.base in _ACCUMULATES:
        return True
    return bool(call.values.get("accumulate")) or call.values.get("reduce") is not None


def _picked_rows(call: _Call) -> int:
    return call["indices"].numel() * call["weight"].shape[1]


def _filled_slices(call: _Call) -> int:
    target, dim = call["self"], call["dim"]
    if target.dim() == 0:
        return 1
    return target.numel() // max(target.shape[dim], 1) * call["index"].numel()


def _placed_elements(target: torch.Tensor, indices: list[torch.Tensor | None]) -> int:
    """Count the elements that ``target[indices] = ...`` names.

    A Boolean index names as many as it has true elements: the one count that needs the data.
    """
    shapes, dims_used = [], 0
    rest = 1
    for index in indices:
        if index is None:
            rest *= target.shape[dims_used]
            dims_used += 1
        elif index.dtype in (torch.bool, torch.uint8):
            with _disable_current_modes():
                shapes.append((int(index.count_nonzero()),))
            dims_used += index.dim()
        else:
            shapes.append(tuple(index.shape))
            dims_used += 1
    rest *= math.prod(target.shape[dims_used:])
    return math.prod(torch.broadcast_shapes(*shapes)) * rest


def _add(arguments: dict, name: str, tensor: torch.Tensor, read: int, written: int) -> None:
    if name in arguments:
        name = f"{name}[{sum(k.split('[')[0] == name for k in arguments)}]"
    size = tensor_bytes(tensor)
    arguments[name] = ArgumentTraffic(
        bytes_read=read,
        bytes_written=written,
        # An index may name a row twice, which is requested twice but compulsory once.
        compulsory_read=min(read, size),
        compulsory_written=min(written, size),
        nbytes=size,
    )


def flatten(value: Any) -> Iterator[Any]:
    """Walk through nested lists and tuples."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from flatten(item)
    else:
        yield value


def _flops(call: _Call) -> tuple[int, str]:
    """Return an op's FLOPs, or 0 and a note saying that there is no rule."""
    note = f"FLOPs of {call.name} are not counted: the meter has no rule for it"
    formula = flop_registry.get(call.func.overloadpacket)
    if formula is not None or call.name in _PRODUCTS:
        if any(t.layout != torch.strided for t in (*call.outputs, *call.floats)):
            return 0, note  # the formulas would count a sparse operand's zeros
        try:
            if formula is None:
                return _PRODUCTS[call.name](call), ""
            return int(formula(*call.args, **call.kwargs, out_val=call.result)), ""
        except Exception:  # PyTorch's formulas assert shapes they know; the op itself ran
            return 0, note
    if not call.floats or call.base in _NO_FLOPS or _only_lends_its_shape(call, call.operands[0]):
        return 0, ""
    if f"{call.base}_" in _PLACES:
        return (_PLACES[f"{call.base}_"](call) if _accumulates(call) else 0), ""
    if call.base in _FLOPS_PER_INPUT_ELEMENT:
        return _FLOPS_PER_INPUT_ELEMENT[call.base] * call.floats[0].numel(), ""
    if _has_tag(call.base, "pointwise"):
        sizes = [t.numel() for t in call.outputs or call.written]
        return (sum(sizes) if call.is_foreach else max(sizes)), ""
    if call.base in _REDUCTIONS or _has_tag(call.base, "reduction"):
        if call.name in _PICKS:
            return _PICKS[call.name][1](call), ""
        inputs = call.floats if call.is_foreach else call.floats[:1]
        return sum(t.numel() for t in inputs), ""
    return 0, note


@functools.lru_cache(maxsize=1024)
def _has_tag(base: str, tag: str) -> bool:
    # Tags are not on every overload: in-place, out= and foreach variants often lack them.
    wanted = getattr(torch.Tag, tag, None)  # `reduction` is newer than torch 2.11
    packet = getattr(aten, base, None) if base.isidentifier() else None
    if packet is None or wanted is None:
        return False
    return any(wanted in getattr(packet, name).tags for name in packet.overloads())
