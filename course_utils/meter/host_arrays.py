"""The arrays of one launch, brought to where Python can read and write their elements.

NumPy arrays are there already, and tensors on the CPU lend their memory. Of tensors on a GPU the
bytes that the launch can reach are copied to the host, once for all views of them, and back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class HostArray:
    """An array among the arguments.

    Attributes:
        name: of the argument; with an index, if it stands in a tuple.
        array: its elements.
        memory: arguments with an equal one lie in the same memory.
        start: bytes from where that memory begins, on a GPU, to the array's first element. Memory
            begins at a multiple of at least 256 bytes. A tensor keeps its place in its storage; a
            NumPy array gets memory of its own, since Numba copies it to the GPU by itself.
    """

    name: str
    array: np.ndarray
    memory: tuple[str, int]
    start: int

    @property
    def nbytes(self) -> int:
        """The bytes it owns; broadcast (stride 0) dimensions count once."""
        steps = zip(self.array.shape, self.array.strides, strict=True)
        return self.array.itemsize * math.prod(size if step else 1 for size, step in steps)


class HostArguments:
    """The arguments of one launch, with a `HostArray` for every array and tensor.

    Attributes:
        values: by name; tuples stay tuples.
        arrays: all of them in order.

    Raises:
        TypeError: for elements that Numba's simulator does not know, such as bfloat16.
        ValueError: for a tensor on `meta`.
    """

    def __init__(self, kernel: str, values: dict[str, Any]) -> None:
        self.kernel = kernel
        self.arrays: list[HostArray] = []
        self._windows: dict[int, _Window] = {}
        for name, value in values.items():
            self._look(name, value)
        self.values = {name: self._bring(name, value) for name, value in values.items()}

    def write_back(self) -> None:
        """Copy what the kernel changed to where the tensors are."""
        for window in self._windows.values():
            window.write_back()

    def _look(self, name: str, value: Any) -> None:
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                self._look(f"{name}[{index}]", item)
        elif isinstance(value, torch.Tensor):
            self._check(name, value)
            storage = value.untyped_storage()
            window = self._windows.setdefault(storage.data_ptr(), _Window(value))
            window.include(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
            raise TypeError(
                f"{self.kernel}: {name} has elements of type {value.dtype}, which cannot be "
                f"counted; give it an array of plain numbers"
            )

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.device.type == "meta":
            raise ValueError(
                f"the CUDA kernel {self.kernel} was launched on {name}, a `meta` tensor, which has "
                f"no memory to load from; give it a small CPU or CUDA tensor instead"
            )
        if _numpy_dtype(tensor) is None:
            raise TypeError(
                f"{self.kernel}: {name} is {tensor.dtype}, which NumPy, and so Numba's simulator, "
                f"does not have; use float16 or float32 here"
            )

    def _bring(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._bring(f"{name}[{i}]", item) for i, item in enumerate(value))
        if isinstance(value, torch.Tensor):
            window = self._windows[value.untyped_storage().data_ptr()]
            brought = HostArray(name, window.array(value), window.key, window.place(value))
        elif isinstance(value, np.ndarray):
            start, _ = np.lib.array_utils.byte_bounds(value)
            brought = HostArray(name, value, ("array", start), _address(value) - start)
        else:
            return value
        self.arrays.append(brought)
        return brought


class _Window:
    """The bytes of one storage that the arguments span."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.storage = tensor.untyped_storage()
        self.device = tensor.device
        self.start = self.end = self.place(tensor)
        self.key = ("storage", self.storage.data_ptr())
        self._host: np.ndarray | None = None

    def place(self, tensor: torch.Tensor) -> int:
        return tensor.storage_offset() * tensor.element_size()

    def include(self, tensor: torch.Tensor) -> None:
        start = self.place(tensor)
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        reach = sum((size - 1) * step for size, step in steps) + 1 if tensor.numel() else 0
        self.start = min(self.start, start)
        self.end = max(self.end, start + reach * tensor.element_size())

    @property
    def _on_device(self) -> torch.Tensor:
        """The window's bytes, where they are."""
        view = torch.empty(0, dtype=torch.uint8, device=self.device)
        return view.set_(self.storage, self.start, (self.end - self.start,), (1,))

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        """The elements of a tensor that the window includes."""
        if self._host is None:
            self._host = self._on_device.cpu().numpy()
        strides = [step * tensor.element_size() for step in tensor.stride()]
        offset = self.place(tensor) - self.start
        dtype = _numpy_dtype(tensor)
        return np.ndarray(tuple(tensor.shape), dtype, self._host, offset, strides)

    def write_back(self) -> None:
        if self.device.type != "cpu" and self._host is not None:
            self._on_device.copy_(torch.from_numpy(self._host))


def _numpy_dtype(tensor: torch.Tensor) -> np.dtype | None:
    try:
        return torch.empty(0, dtype=tensor.dtype).numpy().dtype
    except TypeError:
        return None


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
