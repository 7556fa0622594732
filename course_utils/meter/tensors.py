"""What a tensor occupies: its own bytes, and the memory it shares with its views.

Everything here reads metadata only, so it works on any device, ``meta`` included.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes a tensor really owns: broadcast (stride 0) dimensions count once.

    A sparse tensor owns its indices and its values; a subclass that wraps other tensors (a nested
    tensor, a quantised weight) owns what those own.
    """
    parts = _parts(tensor)
    if parts is not None:
        return sum(tensor_bytes(part) for part in parts)
    if not _has_strides(tensor):
        return tensor.numel() * tensor.element_size()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = math.prod(size if stride != 0 else min(size, 1) for size, stride in sizes)
    return elements * tensor.element_size()


def memory_of(tensor: torch.Tensor) -> frozenset[Any]:
    """Name the storages a tensor lives in; two tensors that share one name share memory."""
    parts = _parts(tensor)
    if parts is not None:
        return frozenset().union(*(memory_of(part) for part in parts))
    if tensor.layout != torch.strided:
        return frozenset((id(tensor),))
    # The storage object, not its address: meta tensors have none, and empty ones share null.
    return frozenset((tensor.untyped_storage()._cdata,))


def region_of(tensor: torch.Tensor) -> Any:
    """Name the exact elements a tensor shows; equal names are the same elements in order."""
    if _parts(tensor) is not None or not _has_strides(tensor):
        return id(tensor)
    place = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return (memory_of(tensor), *place)


def _has_strides(tensor: torch.Tensor) -> bool:
    # oneDNN's layout hides its strides, and nested tensors in the strided layout have none.
    return tensor.layout == torch.strided and not tensor.is_nested


def _parts(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """List the plain tensors that another kind of tensor is made of; None for a plain one."""
    if is_traceable_wrapper_subclass(tensor):
        names = tensor.__tensor_flatten__()[0]
        return [part for part in (getattr(tensor, n) for n in names) if part is not None]
    layout = tensor.layout
    if layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None
