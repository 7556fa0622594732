"""Which known mistake explains a wrong answer? Said only where it explains all that was seen.

Each mistake is run on the same inputs as the answer. If it gives the same wrong numbers in every
case, or leaves the tensors at the same places, or moves the same bytes, then it is named; where
none does, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from course_utils.checks.accuracy import as_results
from course_utils.checks.observe import Observation, observe
from course_utils.checks.variants import Mistake, Variant

if TYPE_CHECKING:
    from course_utils.checks.kernel_task import Failure, KernelTask

# Two wrong results are the same if they lie this much closer to each other than to the truth.
_SAME = 0.05


def explain(task: KernelTask, seen: Sequence[Observation], failure: Failure) -> Mistake | None:
    """Return the known mistake that explains a failure; None if none does.

    Args:
        task: the task with its mistakes.
        seen: what the answer did in every case.
        failure: the first thing that is wrong with it.
    """
    tile = _tile_of(failure.seen)
    # Where a right answer fails in the same way with this tile, the tile explains it.
    right = Variant("right").build(task.solution, **tile)
    if _alike(task, failure, failure.seen, observe(right, failure.seen.case)):
        return None
    for mistake in task.mistakes:
        if mistake.refused:
            continue
        wrong = mistake.build(task.solution, **tile)
        # The case that failed first: most mistakes drop out here.
        if not _alike(task, failure, failure.seen, observe(wrong, failure.seen.case)):
            continue
        theirs = [observe(wrong, s.case) for s in seen]
        other = task.first_failure(theirs)
        if other is None or other.step != failure.step:
            continue
        if all(_alike(task, failure, a, b) for a, b in zip(seen, theirs, strict=True)):
            return mistake
    return None


def _tile_of(seen: Observation) -> dict[str, Any]:
    """Return BLOCK and its like, so that a mistake is tried with tiles of the answer's size."""
    return {
        name: value
        for call in seen.calls
        for name, value in call.arguments.items()
        if name.isupper() and isinstance(value, int)
    }


def _alike(task: KernelTask, failure: Failure, mine: Observation, other: Observation) -> bool:
    """Whether two answers did the same in a case, as far as the step that failed can tell."""
    from course_utils.checks import kernel_task as steps

    if (mine.raised is None) != (other.raised is None):
        return False
    if mine.raised is not None and other.raised is not None:
        return str(mine.raised) == str(other.raised)
    if bool(mine.kernels) != bool(other.kernels) or mine.unstored != other.unstored:
        return False
    if _kinds(mine) != _kinds(other) or not _same_results(task, mine, other):
        return False
    if failure.step == steps.RIGHT:
        return True
    if failure.step == steps.BUDGET:
        return (mine.read, mine.nbytes) == (other.read, other.nbytes)
    return _first_key(task, failure.step, mine) == _first_key(task, failure.step, other)


def _kinds(seen: Observation) -> set[str]:
    return {finding.kind for finding in seen.findings}


def _first_key(task: KernelTask, step: str, seen: Observation) -> tuple[Any, ...] | None:
    failure = task.first_failure([seen])
    return failure.key if failure is not None and failure.step == step else None


def _same_results(task: KernelTask, mine: Observation, other: Observation) -> bool:
    exacts = as_results(task.expected(mine.case, torch.float64))
    results = as_results(mine.result), as_results(other.result)
    if len(results[0]) != len(results[1]):
        return False
    for a, b, exact in zip(*results, exacts, strict=False):
        if not torch.is_tensor(a) or not torch.is_tensor(b):
            if a is not b and type(a) is not type(b):
                return False
            continue
        if a.shape != b.shape or a.dtype != b.dtype or not _same_numbers(a, b, exact):
            return False
    return True


def _same_numbers(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> bool:
    a, b = a.detach().double(), b.detach().double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return False
    others = ~finite
    if not torch.equal(a[others].nan_to_num(7e77), b[others].nan_to_num(7e77)):
        return False
    if a.shape != exact.shape:
        return bool(torch.allclose(a[finite], b[finite]))
    finite &= exact.isfinite()
    if not bool(finite.any()):
        return True
    apart = (a - b)[finite].abs().max()
    away = (a - exact)[finite].abs().max()
    return bool(apart <= _SAME * away)
