"""Compile kernels for GPUs that are not here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from course_utils import gpus
from course_utils.compiler import assembly, cache, errors, process
from course_utils.compiler.compiled import Compilations, Compiled
from course_utils.compiler.errors import CompileError
from course_utils.compiler.request import Request, describe

TIME_LIMIT = 120.0  # seconds
PROCESSES = 2


def compile_for(
    kernel: Any,
    args: Sequence[Any] | Mapping[str, Any],
    gpu: gpus.GPU | str,
    *,
    time_limit: float = TIME_LIMIT,
    use_cache: bool = True,
    **meta: Any,
) -> Compiled:
    """Compile a Triton kernel for an NVIDIA GPU, which need not be here.

    As a launch would: ``kernel[grid](*args, **meta)``. The compiler runs in another process, in
    interpreter mode too, and what it made is kept on disk for the next time.

    Args:
        kernel: a function under ``@triton.jit``.
        args: the kernel's arguments in order, or by name as a mapping: example tensors (CPU, CUDA
            or ``meta``; only dtype and alignment matter), numbers, None. In the place of a value
            its type may stand, as text: "*fp32" (a pointer, aligned to 16 bytes as a fresh tensor
            is), "*bf16:4" (aligned to 4), "i32", "i32:16" (divisible by 16), "i32:1" (equal to 1),
            "i64", "fp32". As in a launch, the code depends on whether integers are 1 or divisible
            by 16, since vector loads need to know.
        gpu: a GPU of the table, or its name.
        time_limit: seconds, after which the compiler is stopped.
        use_cache: False compiles anew.
        meta: more parameters by name (``BLOCK=1024``), and options of the compiler: num_warps (4),
            num_stages (3), num_ctas (1), maxnreg.

    Raises:
        CompileError: the kernel does not compile, the compiler aborted or took too long. The
            message says what is wrong, where, and what to do.
        TypeError, ValueError: arguments or GPU are not as described above.
    """
    if isinstance(gpu, str):
        gpu = gpus.gpu(gpu)
    if gpu.compute_capability is None:
        raise ValueError(
            f"compile_for() compiles for NVIDIA's GPUs, but {gpu.name} is from {gpu.vendor}. "
            "Choose another, such as 'h200'."
        )
    request = describe(kernel, args, gpu.compute_capability, meta)
    return compile_request(request, gpu, time_limit=time_limit, use_cache=use_cache)


def compile_request(
    request: Request, gpu: gpus.GPU, *, time_limit: float = TIME_LIMIT, use_cache: bool = True
) -> Compiled:
    """Compile what `describe` has described, for the GPU that it was described for.

    Raises:
        CompileError: as `compile_for`.
    """
    import triton  # a kernel exists, so it is imported already

    name = cache.key(request, triton.__version__, process.tools())
    result = cache.load(name) if use_cache else None
    if result is None:
        result = _run(request, gpu, time_limit)
        cache.store(name, result)
    registers, stack, spill_stores, spill_loads = assembly.read_ptxas(result["ptxas"])
    return Compiled(
        kernel=request.name,
        gpu=gpu,
        signature=dict(result["signature"]),
        constants=request.constants,
        num_warps=result["num_warps"],
        num_stages=result["num_stages"],
        num_ctas=result["num_ctas"],
        registers=registers,
        stack=stack,
        spill_stores=spill_stores,
        spill_loads=spill_loads,
        shared_memory=result["shared_memory"],
        tensor_memory=result["tensor_memory"],
        ttgir=result["ttgir"],
        ptx=result["ptx"],
        cubin=result["cubin"],
        triton=result["triton"],
        seconds=result["seconds"],
    )


def _run(request: Request, gpu: gpus.GPU, time_limit: float) -> dict[str, Any]:
    try:
        result, printed = process.run(request, time_limit)
    except process.StoppedError:
        failure = errors.timed_out(request.name, gpu.name, time_limit)
    except process.DiedError as error:
        failure = errors.died(request.name, gpu.name, error.status, error.printed)
    else:
        if result["ok"]:
            return result
        source = "\n".join(function.source for function in request.functions)
        failure = errors.refused(request.name, gpu.name, source, result["errors"], printed)
    failure.constants = request.constants
    raise failure


def compile_all(
    jobs: Iterable[tuple[Any, Sequence[Any] | Mapping[str, Any], Mapping[str, Any]]],
    on: Iterable[gpus.GPU | str],
    *,
    processes: int = PROCESSES,
    time_limit: float = TIME_LIMIT,
) -> Compilations:
    """Compile several kernels for several GPUs, in a few processes side by side.

    Args:
        jobs: (kernel, args, meta) each, as for `compile_for`.
        on: the GPUs.
        processes: how many at most.
        time_limit: seconds for each.

    Returns:
        The results, job by job and for each in the order of the GPUs; a `CompileError` where a
        kernel does not compile.

    Raises:
        TypeError, ValueError: as `compile_for`.
    """
    targets = list(on)
    pairs = [(job, gpu) for job in jobs for gpu in targets]

    def one(pair: tuple[Any, Any]) -> Compiled | CompileError:
        (kernel, args, meta), gpu = pair
        try:
            return compile_for(kernel, args, gpu, time_limit=time_limit, **meta)
        except CompileError as error:
            return error

    workers = max(1, min(processes, len(pairs), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        return Compilations(pool.map(one, pairs))
