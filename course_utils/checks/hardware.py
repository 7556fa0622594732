"""Would it run on a real GPU? It is compiled for some, and where there is one, it runs there."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

import course_utils
from course_utils import gpus
from course_utils.checks.accuracy import as_results
from course_utils.checks.draw import Draw
from course_utils.checks.observe import Observation, copy_of
from course_utils.checks.verdict import FAILED, Step, Verdict
from course_utils.compiler import CompileError
from course_utils.compiler.compile import compile_request
from course_utils.compiler.request import Request, describe

if TYPE_CHECKING:
    from course_utils.checks.kernel_task import KernelTask

GPUS = ("t4", "h200")
"""The oldest generation that the course runs on, and a new one: both ends of what differs."""
TIME_LIMIT = 60.0
MOST_KERNELS = 4
_GUARD = 4096  # elements of NaN on both sides of an input on the GPU

Job = tuple[str, Request | str]
"""A GPU, and what to compile for it; or why that could not be said."""


def requests_of(seen: Sequence[Observation]) -> list[Job]:
    """Describe, for each GPU, each kernel as it was launched in the first case that did."""
    first: dict[tuple[Any, ...], Any] = {}
    for observation in seen:
        for call in observation.calls:
            key = (getattr(call.kernel, "fn", call.kernel), _dtypes(call.arguments))
            first.setdefault(key, call)
    # One dtype of each kernel says enough about its shape; float32 comes first.
    chosen = list({key[0]: call for key, call in reversed(first.items())}.values())
    jobs: list[Job] = []
    for name in GPUS:
        capability = gpus.gpu(name).compute_capability
        for call in chosen[:MOST_KERNELS]:
            try:
                assert capability is not None
                request = describe(call.kernel, call.arguments, capability, call.options)
                jobs.append((name, request))
            except (TypeError, ValueError) as error:
                jobs.append((name, str(error)))
    return jobs


def _dtypes(arguments: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(value.dtype if torch.is_tensor(value) else None for value in arguments.values())


def judge_compiled(task: KernelTask, verdict: Verdict, jobs: Sequence[Job]) -> Verdict:
    """Compile an answer's kernels, and fail the verdict where one does not compile or fit."""
    from course_utils.checks import kernel_task

    if not jobs:
        return _with_step(verdict, Step(kernel_task.COMPILES, None, "no kernel was launched"))
    with ThreadPoolExecutor(2) as pool:
        obstacles = list(pool.map(_obstacle, jobs))
    problem = next((text for text in obstacles if text), None)
    if problem is None:
        names = " and ".join(gpus.gpu(name).name for name in GPUS)
        return _with_step(verdict, Step(kernel_task.COMPILES, True, names))
    mistake = next((m for m in task.mistakes if m.refused and re.search(m.refused, problem)), None)
    # The compiler's message: what is wrong, the line with a caret below it, what to do.
    message, _, advice = problem.partition("What to do: ")
    first, *lines = message.rstrip().splitlines()
    return replace(
        verdict,
        state=FAILED,
        steps=kernel_task.steps_until(kernel_task.COMPILES),
        problem="the interpreter runs it, but a GPU's compiler refuses. " + first,
        mistake=mistake.name if mistake else None,
        likely=mistake.says if mistake else None,
        line=textwrap.dedent("\n".join(lines)) or None,
        reached=None,
        hint=advice.strip() or task.hint_for(mistake),
    )


def _obstacle(job: Job) -> str | None:
    name, request = job
    if isinstance(request, str):
        return request
    try:
        compiled = compile_request(request, gpus.gpu(name), time_limit=TIME_LIMIT)
    except CompileError as error:
        return str(error)
    fit = compiled.fits(name)
    return None if fit else str(fit)


def judge_native(
    task: KernelTask, answer: Callable[..., Any], verdict: Verdict, seed: int
) -> Verdict:
    """On a machine with a GPU, run the answer there too, and time it; elsewhere say so."""
    from course_utils.checks import kernel_task

    if course_utils.machine().mode != "gpu":
        return verdict
    failed = partial(
        replace,
        verdict,
        state=FAILED,
        steps=kernel_task.steps_until(kernel_task.NATIVE),
        reached=None,
    )
    for case in task.cases(Draw(seed + 1)):
        arguments = [_guarded(value) for value in case.arguments]
        try:
            result = answer(*arguments, **case.keywords)
            torch.cuda.synchronize()
        except (ValueError, TypeError, NotImplementedError) as error:
            if case.refusable:
                continue
            return failed(problem=f"on this GPU it raised {error!r} ({case.name})")
        except Exception as error:
            return failed(problem=f"on this GPU it raised {error!r} ({case.name})")
        on_host = tuple(r.cpu() if torch.is_tensor(r) else r for r in as_results(result))
        wrong = task.find_wrong(on_host if len(on_host) > 1 else on_host[0], case)
        if wrong is not None:
            return failed(
                problem=f"right when counted, but on this GPU {wrong.problem} ({case.name})",
                notes=("what differs between the two is the subject of lesson 05",),
            )
    return _timed(task, answer, verdict, failed)


def _timed(
    task: KernelTask,
    answer: Callable[..., Any],
    verdict: Verdict,
    failed: Callable[..., Verdict],
) -> Verdict:
    """Time an answer at a real size beside a copy of as many bytes."""
    from course_utils import bench
    from course_utils.checks import kernel_task

    if task.example is None or task.budget is None:
        return _with_step(verdict, Step(kernel_task.NATIVE, True, "not timed"))
    case = task.example(Draw(0))
    arguments = [copy_of(value, "cuda") for value in case.arguments]
    nbytes = task.budget(*arguments, **case.keywords)
    source = torch.empty(nbytes // 2, dtype=torch.uint8, device="cuda")
    copy = bench.time(partial(torch.empty_like(source).copy_, source))
    mine = bench.time(lambda: answer(*arguments, **case.keywords))
    assert copy and mine
    share = copy.milliseconds / mine.milliseconds
    words = (
        f"{bench.format_time(mine.milliseconds)} on {course_utils.machine().name}, "
        f"{share:.0%} of the speed of a copy ({case.name})"
    )
    if share < 1 / task.ratio:
        return failed(
            problem=(
                f"right, but slow: {words}; at least {1 / task.ratio:.0%} are wanted. Does each "
                "program have enough to do, and do neighbouring lanes read neighbours?"
            )
        )
    reached = verdict.reached
    if reached is not None:
        rate = reached.intensity * nbytes / (mine.milliseconds * 1e-3)
        reached = replace(reached, measured=words, rate=rate)
    return replace(
        _with_step(verdict, Step(kernel_task.NATIVE, True, f"{share:.0%} of a copy")),
        reached=reached,
    )


def _guarded(value: Any) -> Any:
    """Copy a tensor to the GPU, with NaN on both sides of its memory, so that reading it shows."""
    if not torch.is_tensor(value) or not value.is_floating_point():
        return copy_of(value, "cuda")
    storage = value.untyped_storage()
    size = storage.nbytes() // value.element_size()
    flat = torch.empty(0, dtype=value.dtype).set_(storage, 0, (size,), (1,))
    guarded = torch.full((size + 2 * _GUARD,), float("nan"), dtype=value.dtype, device="cuda")
    guarded[_GUARD : _GUARD + size] = flat.cuda()
    return guarded.as_strided(value.shape, value.stride(), _GUARD + value.storage_offset())


def _with_step(verdict: Verdict, step: Step) -> Verdict:
    return replace(verdict, steps=(*verdict.steps, step))
