"""What to compile of the shelf (`course_utils.kernels`): every kernel, with example arguments.

A module of the shelf says itself how its kernels are launched, in a list of that name:

    COMPILE_EXAMPLES = [
        (gelu_kernel, ["*fp32", "*fp32", 2**20], {"BLOCK": 1024}),
        (gelu_kernel, ["*bf16", "*bf16", 2**20], {"BLOCK": 1024, "num_warps": 8}),
    ]

Each entry is (kernel, arguments, tile sizes and options by name), as for
`course_utils.compiler.compile_for`; types stand for tensors, so that importing the module makes
none. Where a lesson exports several kernels, later cells extend the list (``+=``). The tests
compile every entry for every generation of GPU in the table, and fail for a kernel without entry.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from course_utils import gpus
from course_utils.compiler.request import describe, is_jit

LIST = "COMPILE_EXAMPLES"


@dataclass(frozen=True)
class Example:
    """One entry: a kernel and how it is launched.

    Attributes:
        module: the shelf's module, such as "elementwise".
        kernel: the function under ``@triton.jit``.
        args: its arguments.
        meta: tile sizes and options.
    """

    module: str
    kernel: Any
    args: Sequence[Any] | Mapping[str, Any]
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name for it, such as "elementwise.gelu_kernel(*fp32, *fp32, 1048576, BLOCK=1024)"."""
        args = self.args.values() if isinstance(self.args, Mapping) else self.args
        words = [str(value) for value in args]
        words += [f"{key}={value}" for key, value in self.meta.items()]
        return f"{self.module}.{self.kernel.__name__}({', '.join(words)})"


def examples(package: str = "course_utils.kernels") -> list[Example]:
    """Return the examples of all modules of the shelf; none where there is no shelf yet.

    Raises:
        ValueError: a kernel has no example, or an entry is not as described above.
    """
    try:
        shelf = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return []
    found = []
    for info in pkgutil.iter_modules(shelf.__path__):
        if not info.name.startswith("_"):
            found += of_module(importlib.import_module(f"{package}.{info.name}"))
    return found


def of_module(module: ModuleType) -> list[Example]:
    """Return the examples of one module; see `examples`."""
    short = module.__name__.rpartition(".")[2]
    found = []
    for entry in getattr(module, LIST, ()):
        if not (isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[2], Mapping)):
            raise ValueError(
                f"{module.__name__}.{LIST} has an entry that is not (kernel, arguments, mapping of "
                f"tile sizes and options): {entry!r}."
            )
        found.append(Example(short, *entry))
    # A helper is compiled with the kernel that calls it.
    compiled = {
        function.name
        for example in found
        for function in describe(example.kernel, example.args, (9, 0), example.meta).functions
    }
    missing = [
        name
        for name, value in vars(module).items()
        if is_jit(value) and value.fn.__module__ == module.__name__ and name not in compiled
    ]
    if missing:
        raise ValueError(
            f"{module.__name__} has no example for {', '.join(missing)}: add (kernel, arguments, "
            f"tile sizes) to its {LIST}, in the lesson's cell that is exported."
        )
    return found


def generations() -> list[gpus.GPU]:
    """Return one NVIDIA GPU of the table for each compute capability.

    Of the GPUs of one generation all have the same limits (the table takes them from the
    capability), so one stands for all.
    """
    first: dict[tuple[int, int], gpus.GPU] = {}
    for gpu in gpus.GPUS.values():
        if gpu.compute_capability is not None:
            first.setdefault(gpu.compute_capability, gpu)
    return [first[capability] for capability in sorted(first)]
