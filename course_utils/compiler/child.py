"""The process that compiles: reads requests, answers with what the compiler made or said.

Run as ``python -m course_utils.compiler.child FOLDER`` by `course_utils.compiler.process`, which
sets the environment (no interpreter, no GPU) and the folder for temporary files. Requests come in
on standard input, answers go out on standard output; what the compiler prints goes to standard
error. Without work for a while, or when the parent is gone, it ends.

This is the only file that touches Triton's compiler from inside. Of what is not public it uses
`create_function_from_signature` and `JITFunction._pack_args`, which decide what a launch compiles
(types, divisibility by 16, ones), so that it is decided here as in a launch.
"""

from __future__ import annotations
import __future__

import contextlib
import importlib
import io
import os
import select
import shutil
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any

from course_utils.compiler.pipe import TRITON_FOLDER, receive, send
from course_utils.compiler.request import ALIGNMENT, Function, Request, Value, load_member

IDLE_SECONDS = 120


def main(folder: Path) -> None:
    """Answer requests until there are no more."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    # The compiler and its tools print; standard output carries answers only.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Before the first request, so that it does not count as its time.
    importlib.import_module("triton.compiler")
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            request = receive(requests.read)
        except EOFError:
            return
        send(answers, "started")
        send(answers, answer(request, folder))


def _end_with(parent: int) -> None:
    """End this process when the parent is gone, whatever it is doing: nobody waits for it."""
    while os.getppid() == parent:
        time.sleep(1)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    os._exit(0)


def answer(request: Request, folder: Path) -> dict[str, Any]:
    """Compile, and return what came of it: what was made, or the errors and what caused them."""
    start = time.perf_counter()
    # A folder of its own: Python remembers files by name.
    with tempfile.TemporaryDirectory(dir=folder) as sources:
        try:
            result = _compile(request, Path(sources))
        except Exception as error:
            result = {"ok": False, "errors": _errors(error)}
    shutil.rmtree(folder / TRITON_FOLDER, ignore_errors=True)
    return {**result, "seconds": time.perf_counter() - start}


def _errors(error: BaseException | None) -> list[tuple[str, str]]:
    """Return type and text of an error and of those that caused it, the deepest last."""
    chain = []
    while error is not None:
        chain.append((type(error).__name__, str(error)))
        error = error.__cause__
    return chain


def _compile(request: Request, folder: Path) -> dict[str, Any]:
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    rebuilt = _Rebuilt(request, folder)
    kernel = rebuilt.function(0)
    arguments = {name: rebuilt.value(value) for name, value in request.arguments}
    options = dict(request.options)
    target = GPUTarget("cuda", request.capability, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, left = bind(**arguments, **options)
    parsed, signature, constexprs, attributes = kernel._pack_args(
        backend, options, bound, specialization, left
    )
    source = ASTSource(kernel, signature, constexprs, attributes)
    knobs.compilation.always_compile = True  # what Triton keeps has no log of ptxas
    knobs.nvidia.dump_ptxas_log = True  # printed; it says how many bytes are spilled
    log = io.StringIO()
    with contextlib.redirect_stdout(log), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = triton.compile(source, target=target, options=parsed.__dict__)
    return {
        "ok": True,
        "ttgir": made.asm["ttgir"],
        "ptx": made.asm["ptx"],
        "cubin": made.asm["cubin"],
        "ptxas": log.getvalue(),
        "signature": [(name, str(kind)) for name, kind in signature.items()],
        "num_warps": made.metadata.num_warps,
        "num_stages": made.metadata.num_stages,
        "num_ctas": made.metadata.num_ctas,
        "shared_memory": made.metadata.shared,
        "tensor_memory": getattr(made.metadata, "tmem_size", None) or 0,
        "triton": triton.__version__,
    }


class _Rebuilt:
    """The functions and values of a request, made anew in this process."""

    def __init__(self, request: Request, folder: Path) -> None:
        self._functions: list[Any] = [None] * len(request.functions)
        self._sources = request.functions
        self._folder = folder

    def function(self, index: int) -> Any:
        """Return a function under ``@triton.jit``, made at the first call."""
        if self._functions[index] is None:
            self._functions[index] = self._make(index)
        return self._functions[index]

    def _make(self, index: int) -> Any:
        import triton

        source: Function = self._sources[index]
        # Triton asks Python for the source, and Python looks for it in the file. The name tells
        # course_utils.compiler.ttgir which function a line belongs to.
        path = self._folder / f"{index}_{source.name}.py"
        path.write_text(source.source, encoding="utf-8")
        flags = __future__.annotations.compiler_flag if source.future_annotations else 0
        code = compile(source.source, str(path), "exec", flags=flags, dont_inherit=True)
        scope = {name: self.value(value) for name, value in source.names}
        scope["__name__"] = "kernel"
        exec(code, scope)
        plain = scope[source.name]
        if source.kind == "constexpr":
            return triton.constexpr_function(plain)
        return triton.jit(plain, **dict(source.options)) if source.options else triton.jit(plain)

    def value(self, value: Value) -> Any:
        """Return what a described value stands for."""
        import triton.language as tl

        kind, *content = value
        match kind:
            case "constant":
                return content[0]
            case "pointer":
                return _Tensor(*content)
            case "descriptor":
                return self._descriptor(*content)
            case "tuple":
                return tuple(self.value(item) for item in content[0])
            case "constexpr":
                return tl.constexpr(self.value(content[0]))
            case "dtype":
                return tl.dtype(content[0])
            case "function":
                return self.function(content[0])
            case "module":
                return importlib.import_module(content[0])
            case "member":
                return load_member(*content)
            case "namespace":
                name, members = content
                module = types.ModuleType(name)
                module.__dict__.update((key, self.value(member)) for key, member in members)
                return module
            case _:
                return _placeholder(*content)

    def _descriptor(self, base: Value, itemsize: int, *lists: tuple[int, ...]) -> Any:
        from triton.tools.tensor_descriptor import TensorDescriptor

        tensor = _Tensor(*base[1:], itemsize)
        return TensorDescriptor(tensor, *map(list, lists))


class _Dtype:
    """What Triton needs of a tensor's dtype: PyTorch's name of it, for descriptors the size."""

    def __init__(self, name: str, itemsize: int) -> None:
        self._name = f"torch.{name}"
        self.itemsize = itemsize

    def __str__(self) -> str:
        return self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dtype) and other._name == self._name


class _Tensor:
    """What Triton needs of a tensor argument: its dtype, and whether its address is aligned."""

    def __init__(self, dtype: str, aligned: bool, itemsize: int = 0) -> None:
        self.dtype = _Dtype(dtype, itemsize)
        self._address = ALIGNMENT if aligned else 1
        self._itemsize = itemsize

    def data_ptr(self) -> int:
        return self._address

    def element_size(self) -> int:
        return self._itemsize


def _placeholder(kind: str, words: str) -> Any:
    """Stand in for something that could not be sent; Triton refuses it as it would the original."""
    members = {"__repr__": lambda self: words, "__doc__": None}
    if kind == "call":
        members["__call__"] = lambda self, *args, **kwargs: None
    cls = type(words, (), members)
    return cls if kind == "class" else cls()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    finally:
        # The parent does it too, unless it is gone.
        shutil.rmtree(sys.argv[1], ignore_errors=True)
