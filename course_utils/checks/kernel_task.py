"""Tasks whose answer is a function that launches kernels: write one, or repair one.

The answer is judged in this order, and the first thing that is wrong is what the reader is told:
was it attempted; is the result right; did the kernel compute it; did every lane stay inside its own
tensor; did each element get one writer; how many bytes were asked for; does it compile for real
GPUs; and, on a GPU, is it right and fast there.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import torch

from course_utils.checks import diagnosis, hardware, isolation
from course_utils.checks.accuracy import Wrong, as_results, find_wrong
from course_utils.checks.base import Task
from course_utils.checks.draw import Case, Draw
from course_utils.checks.observe import Observation, observe, warm_up, who_stored
from course_utils.checks.variants import (
    Alternative,
    Mistake,
    definition_of,
    has_hole,
    is_empty,
    is_kernel,
    kernels_of,
    line_like,
    numbers_of,
    same_code,
)
from course_utils.checks.verdict import (
    FAILED,
    NOT_ATTEMPTED,
    PASSED,
    Reached,
    Step,
    Verdict,
    Where,
)

ATTEMPTED = "attempted"
RIGHT = "right answer"
KERNEL = "the kernel does the work"
INSIDE = "every lane inside its tensor"
WRITERS = "one writer for each element"
BUDGET = "bytes within the budget"
COMPILES = "compiles for real GPUs"
NATIVE = "right and fast on this GPU"
STEPS = (ATTEMPTED, RIGHT, KERNEL, INSIDE, WRITERS, BUDGET, COMPILES, NATIVE)


PATIENCE = 10.0
"""Seconds after which an answer that is known to be wrong is tried no further."""


@dataclass(frozen=True)
class Failure:
    """The first thing that is wrong with an answer.

    Attributes:
        step: at which step.
        problem: in plain words.
        key: the same for two answers that fail in the same way; compared with mistakes.
        seen: what was observed in the case that shows it.
        wrong: for wrong results, how.
        line: a line to look at.
    """

    step: str
    problem: str
    key: tuple[Any, ...]
    seen: Observation
    wrong: Wrong | None = None
    line: str | None = None


@dataclass(frozen=True)
class KernelTask(Task):
    """Write a kernel and the function that launches it.

    Attributes:
        solution: the right answer's functions, kernels first, the answer last.
        reference: the same in plain PyTorch, for tensors of any floating dtype; called in float64
            for what is right, and in float32 for the error that is usual.
        cases: draws the arguments that the answer is tried with; a small ordinary case first.
        budget: the bytes that kernels may ask for, of the arguments of one case; None for no limit.
        mistakes: wrong versions that people write.
        alternatives: right versions in another style.
        results: names of the results, where there are several.
        result_like: whose dtype the result has; the first tensor's by default.
        slack: how much more error than usual is allowed.
        in_place: positions of arguments that the answer is meant to change.
        example: arguments of a real size for the GPU, or None to go without timing.
        ops: PyTorch's ops that the answer may use beside its kernels.
        ratio: time that is allowed on a GPU, in times of copying as many bytes as the budget says.
    """

    _: KW_ONLY
    solution: Sequence[Any]
    reference: Callable[..., Any]
    cases: Callable[[Draw], Iterable[Case]]
    budget: Callable[..., int] | None
    mistakes: Sequence[Mistake] = ()
    alternatives: Sequence[Alternative] = ()
    results: tuple[str, ...] = ()
    result_like: Callable[..., Any] | None = None
    slack: float = 1.0
    in_place: tuple[int, ...] = ()
    example: Callable[[Draw], Case] | None = None
    ops: frozenset[str] = frozenset()
    ratio: float = 1.5

    kind: ClassVar[str] = "kernel"

    def judge(self, answer: Any, seed: int, time_limit: float) -> Verdict:
        """Judge a function; see the module's text for the order."""
        if answer is None or answer is Ellipsis:
            return self.verdict(NOT_ATTEMPTED)
        if not callable(answer) or is_kernel(answer):
            return self._no_function(answer)
        if self.untouched(answer):
            return self.verdict(NOT_ATTEMPTED)
        warm_up()
        try:
            (verdict, requests), printed = isolation.run(
                lambda: self._judge_here(answer, seed), time_limit
            )
        except isolation.TookTooLongError as error:
            return self._stopped(
                f"it did not end within {error.seconds:g} seconds, and was stopped. Is there a "
                f"loop that never ends, one over single elements, or a grid of a program each?",
                error.printed,
            )
        except isolation.DiedError as error:
            return self._stopped(
                f"the process that ran it ended {error.cause}. A check runs in a process of its "
                f"own, so your notebook is unharmed",
                error.printed,
            )
        except isolation.FailedError as error:
            last = str(error).strip().splitlines()[-1]
            return self._stopped(f"the check could not judge this answer: {last}", "")
        verdict = replace(verdict, printed=printed)
        if verdict.state != PASSED:
            return verdict
        verdict = hardware.judge_compiled(self, verdict, requests)
        if verdict.state == PASSED:
            verdict = hardware.judge_native(self, answer, verdict, seed)
        return verdict

    def untouched(self, answer: Callable[..., Any]) -> bool:
        """Tell whether an answer is still as the exercise gave it."""
        return is_empty(answer) or any(is_empty(k) for k in kernels_of(answer).values())

    # -- in the process of the check ------------------------------------------------------------

    def _judge_here(self, answer: Callable[..., Any], seed: int) -> tuple[Verdict, list[Any]]:
        seen = self._observe_all(answer, seed)
        if self._nothing_done(answer, seen):
            return self.verdict(NOT_ATTEMPTED), []
        failure = self.first_failure(seen)
        if failure is not None:
            return self._failed(answer, seen, failure), []
        return self._passed(seen), hardware.requests_of(seen)

    def _observe_all(self, answer: Callable[..., Any], seed: int) -> list[Observation]:
        """Observe every case; of an answer that is slow and wrong, those that there is time for."""
        begin, seen = time.monotonic(), []
        for case in self.cases(Draw(seed)):
            seen.append(observe(answer, case))
            slow = time.monotonic() - begin > PATIENCE
            if slow and self.first_failure(seen) is not None:
                break
        return seen

    def _nothing_done(self, answer: Callable[..., Any], seen: Sequence[Observation]) -> bool:
        """Whether holes are left, in the kernels too, and no kernel has stored anything."""
        kernels = kernels_of(answer).values()
        stored = any(launch.traffic.bytes_written for s in seen for launch in s.kernels)
        left = any(map(has_hole, kernels)) if kernels else has_hole(answer)
        return left and not stored

    def first_failure(self, seen: Sequence[Observation]) -> Failure | None:
        """Return the first thing that is wrong in any of the cases; None if all is right."""
        steps = (
            self._wrong_result,
            self._no_kernel,
            self._left_its_tensor,
            self._several_writers,
            self._too_many_bytes,
        )
        for step in steps:
            for observation in seen:
                if observation.refused:
                    continue
                failure = step(observation)
                if failure is not None:
                    return failure
        return None

    def expected(self, case: Case, precision: torch.dtype) -> Any:
        """Return what the reference makes of a case's arguments in this precision."""
        arguments = [
            value.to(precision) if torch.is_tensor(value) and value.is_floating_point() else value
            for value in case.arguments
        ]
        return self.reference(*arguments, **case.keywords)

    def yardstick(self, case: Case) -> Any:
        """Return what PyTorch makes of a case in float32, in the dtype of the result."""
        like = (self.result_like or _first_tensor)(*case.arguments)
        likes = as_results(like)
        results = as_results(self.expected(case, torch.float32))
        likes = likes if len(likes) == len(results) else likes * len(results)
        rounded = tuple(
            result.to(like.dtype) if result.is_floating_point() else result
            for result, like in zip(results, likes, strict=True)
        )
        return rounded if len(rounded) > 1 else rounded[0]

    def find_wrong(self, got: Any, case: Case) -> Wrong | None:
        """Compare a result with what is right."""
        exact = self.expected(case, torch.float64)
        return find_wrong(got, exact, self.yardstick(case), self.results, self.slack)

    def _wrong_result(self, seen: Observation) -> Failure | None:
        if seen.raised is not None:
            problem = f"it raised {seen.raised} ({seen.case.name})"
            if seen.raised.advice:
                problem += f". {seen.raised.advice}"
            key = (RIGHT, seen.raised.kind)
            return Failure(RIGHT, problem, key, seen, line=seen.raised.line)
        wrong = self.find_wrong(seen.result, seen.case)
        if wrong is None:
            return None
        return Failure(RIGHT, f"{wrong.problem} ({seen.case.name})", (RIGHT,), seen, wrong)

    def _no_kernel(self, seen: Observation) -> Failure | None:
        names = self._parameters()
        if changed := self._changed(seen):
            problem = (
                f"it changes {changed}, which belongs to its caller: write to memory of your own"
            )
            return Failure(KERNEL, problem, (KERNEL, "changed"), seen)
        if seen.shared is not None and seen.shared not in self.in_place:
            word = names[seen.shared] if seen.shared < len(names) else "an argument"
            problem = f"the result shares the memory of {word}: allocate a tensor of its own"
            return Failure(KERNEL, problem, (KERNEL, "shared"), seen)
        if not any(torch.is_tensor(r) and r.numel() for r in as_results(seen.result)):
            return None  # nothing to do for an empty result
        if not seen.kernels:
            problem = "no Triton kernel was launched: PyTorch computed the result"
            return Failure(KERNEL, problem, (KERNEL, "no kernel"), seen)
        ops = [launch for launch in seen.computing_ops if launch.name not in self.ops]
        # What may be refused may also be copied into another form first.
        if ops and not seen.case.refusable:
            words = ", ".join(sorted({launch.name for launch in ops}))
            problem = (
                f"PyTorch's {words} ran inside your function and moved "
                f"{sum(op.traffic.bytes for op in ops):,} bytes: that work belongs in the kernel"
            )
            return Failure(KERNEL, problem, (KERNEL, "torch", words), seen)
        if not any(launch.traffic.bytes_written for launch in seen.kernels):
            problem = "your kernel stores nothing, so the result is not its work"
            return Failure(KERNEL, problem, (KERNEL, "stores nothing"), seen)
        return None

    def _changed(self, seen: Observation) -> str:
        """Name the arguments that were changed and should not have been."""
        names = self._parameters()
        changed = [i for i in seen.changed if i not in self.in_place]
        return " and ".join(names[i] if i < len(names) else "an argument" for i in changed)

    def _left_its_tensor(self, seen: Observation) -> Failure | None:
        return self._finding(seen, INSIDE, ("outside",))

    def _several_writers(self, seen: Observation) -> Failure | None:
        if seen.unstored and any(torch.is_tensor(r) for r in as_results(seen.result)):
            problem = (
                f"{seen.unstored:,} numbers of the result were stored by no kernel, and are right "
                f"only because of what stood there before ({seen.case.name})"
            )
            return Failure(WRITERS, problem, (WRITERS, "unstored", seen.unstored), seen)
        return self._finding(seen, WRITERS, ("two writers", "race"))

    def _finding(self, seen: Observation, step: str, kinds: tuple[str, ...]) -> Failure | None:
        found = [finding for finding in seen.findings if finding.kind in kinds]
        if not found:
            return None
        first = found[0]
        problem = f"{first.message.rstrip('.')} ({seen.case.name})."
        if first.kind == "outside":
            problem += (
                " On a GPU this reads or overwrites what belongs to others,"
                " even where the result is right"
            )
        key = (step, tuple(sorted((f.kind, f.argument, f.distance or 0, f.count) for f in found)))
        line = f"line {first.line}: {first.source}" if first.line else None
        return Failure(step, problem, key, seen, line=line)

    def _too_many_bytes(self, seen: Observation) -> Failure | None:
        if self.budget is None or seen.case.refusable:
            return None
        allowed = self.budget(*seen.case.arguments, **seen.case.keywords)
        if seen.nbytes <= allowed:
            return None
        # What each argument cost, since the total alone does not say where to look.
        parts = ", ".join(
            f"{name if launch.kind == 'triton' else f'{launch.name} by PyTorch'}: "
            f"{argument.bytes_read:,} read, {argument.bytes_written:,} written"
            for launch in seen.launches
            for name, argument in launch.arguments.items()
            if argument.bytes
        )
        problem = (
            f"{seen.nbytes:,} bytes were asked for, and {allowed:,} are enough "
            f"({seen.case.name}; {parts})"
        )
        return Failure(BUDGET, problem, (BUDGET, seen.read, seen.nbytes), seen)

    # -- words ------------------------------------------------------------------------------------

    def _failed(
        self, answer: Callable[..., Any], seen: Sequence[Observation], failure: Failure
    ) -> Verdict:
        mistake = diagnosis.explain(self, seen, failure)
        where = self._where(answer, failure)
        functions = (*kernels_of(answer).values(), answer)
        line = line_like(self.solution, mistake, functions) if mistake else None
        line = line or failure.line or (where.line if where else None)
        return self.verdict(
            FAILED,
            steps=steps_until(failure.step),
            problem=failure.problem,
            where=where,
            mistake=mistake.name if mistake else None,
            likely=mistake.says if mistake else None,
            line=line,
            hint=self.hint_for(mistake),
            notes=self._besides(failure),
        )

    def _besides(self, failure: Failure) -> tuple[str, ...]:
        """Say what else is wrong where the numbers are: it may well be their cause."""
        seen = failure.seen
        if failure.step != RIGHT or seen.raised is not None:
            return ()
        notes = []
        if not seen.kernels:
            notes.append("no Triton kernel was launched")
        if changed := self._changed(seen):
            notes.append(f"it also changes {changed}, which belongs to its caller")
        outside = (finding for finding in seen.findings if finding.kind == "outside")
        notes += [f"besides: {finding.message}" for finding in itertools.islice(outside, 1)]
        return tuple(notes)

    def hint_for(self, mistake: Mistake | None) -> str | None:
        """Return what to think about: where the mistake is known, that says enough."""
        if mistake is not None:
            return mistake.hint or None
        return self.hints[0] if self.hints else None

    def _where(self, answer: Callable[..., Any], failure: Failure) -> Where | None:
        wrong = failure.wrong
        if wrong is None or wrong.index is None:
            return None
        names = self.results or ("result",)
        element = f"{names[wrong.output]}[{', '.join(map(str, wrong.index))}]"
        store = who_stored(answer, failure.seen.case, wrong.output, wrong.index)
        found: dict[str, str] = {}
        if store is not None:
            program = store.program[: max(_dimensions(failure.seen), 1)]
            found["program"] = ", ".join(map(str, program))
            found["lane"] = ", ".join(map(str, store.lanes))
            found["line"] = f"line {store.line.number}: {store.line.text}"
        return Where(
            failure.seen.case.name,
            element,
            f"{wrong.expected:.6g}",
            f"{wrong.got:.6g}",
            wrong.wrong,
            wrong.total,
            **found,
        )

    def _passed(self, seen: Sequence[Observation]) -> Verdict:
        # The case that moves most shows best what the kernel does.
        largest = max((s for s in seen if not s.refused), key=lambda s: s.nbytes)
        tensors = [t for t in (*largest.case.arguments, *as_results(largest.result))
                   if torch.is_tensor(t)]  # fmt: skip
        flops = sum(launch.traffic.flops for launch in largest.kernels)
        budget = largest.nbytes
        if self.budget is not None:
            budget = self.budget(*largest.case.arguments, **largest.case.keywords)
        reached = Reached(
            largest.case.name,
            largest.nbytes,
            budget,
            largest.nbytes / max(t.nbytes for t in tensors),
            flops,
            flops / largest.nbytes if largest.nbytes else 0.0,
        )
        refused = [s.case.name for s in seen if s.refused]
        notes = (f"refused, as it may: {'; '.join(refused)}",) if refused else ()
        counted = "no limit"
        if self.budget is not None:
            counted = f"{reached.nbytes:,} of {reached.budget:,}"
        details = {RIGHT: f"{len(seen)} cases, against float64", BUDGET: counted}
        before = STEPS[: STEPS.index(COMPILES)]
        steps = tuple(Step(name, True, details.get(name, "")) for name in before)
        return self.verdict(PASSED, steps=steps, reached=reached, notes=notes)

    def _no_function(self, answer: Any) -> Verdict:
        what = "the kernel itself" if is_kernel(answer) else f"a {type(answer).__name__}"
        problem = (
            f"the check was given {what}; it wants the function {self.name}, "
            f"which launches the kernel: checks.check_{self.name}({self.name})"
        )
        return self.verdict(FAILED, steps=steps_until(ATTEMPTED), problem=problem)

    def _stopped(self, problem: str, printed: str) -> Verdict:
        return self.verdict(
            FAILED, steps=steps_until(RIGHT), problem=problem, printed=printed[-2000:]
        )

    def _parameters(self) -> list[str]:
        return list(inspect.signature(self.solution[-1]).parameters)


@dataclass(frozen=True)
class RepairTask(KernelTask):
    """Repair a broken kernel: one of the task's own mistakes, which the reader begins with.

    Attributes:
        broken: the name of that mistake.
    """

    _: KW_ONLY
    broken: str = ""

    kind: ClassVar[str] = "repair"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.broken not in {mistake.name for mistake in self.mistakes}:
            raise ValueError(f"{self.name}: {self.broken!r} is none of its mistakes")

    def untouched(self, answer: Callable[..., Any]) -> bool:
        """Tell whether an answer is empty, or still the broken version."""
        return super().untouched(answer) or self._is_broken_one(answer)

    def _is_broken_one(self, answer: Callable[..., Any]) -> bool:
        (broken,) = (m for m in self.mistakes if m.name == self.broken)
        theirs = [definition_of(f) for f in (*kernels_of(answer).values(), answer)]
        given = broken.source(self.solution)
        mine = "\n".join(ast.unparse(d) for d in theirs if d is not None)
        if not same_code(mine, given):
            return False
        # The same code over another number, or over a constexpr, is a change too.
        numbers = numbers_of(broken.build(self.solution))
        functions = (*kernels_of(answer).values(), answer)
        used = {name: value for f in functions for name, value in numbers_of(f).items()}
        pairs = ((used.get(name, value), value) for name, value in numbers.items())
        return all(type(mine) is type(given) and mine == given for mine, given in pairs)


def steps_until(failed: str) -> tuple[Step, ...]:
    """Return the steps as they stand when one of them has failed."""
    at = STEPS.index(failed)
    return tuple(
        Step(name, True if i < at else False if i == at else None)
        for i, name in enumerate(STEPS)
        if name != NATIVE or i <= at
    )


def _first_tensor(*arguments: Any) -> torch.Tensor:
    return next(a for a in arguments if torch.is_tensor(a))


def _dimensions(seen: Observation) -> int:
    """How many dimensions the grids have that are longer than 1."""
    grids = [launch.grid for launch in seen.kernels if launch.grid]
    return max((sum(1 for size in grid if size > 1) for grid in grids), default=1)
