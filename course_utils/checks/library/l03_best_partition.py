"""best_partition: which ops of a small program share a kernel, so that the fewest trips are made?

What a plan moves is counted, and the best plan is found by trying all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from course_utils.checks.expression import UnreadableError, shown
from course_utils.checks.question_task import Number, Question, QuestionTask, Slip

Plan = Sequence[Collection[str]]
"""The ops of each kernel, in the order in which the kernels run."""


class PlanError(ValueError):
    """A plan that no GPU can run.

    Attributes:
        kind: what is wrong with it, as the name of a slip.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Graph:
    """A program of element-wise ops and of reductions, over tensors of one size.

    Attributes:
        inputs: the names of the tensors that are given.
        ops: for each op, which names its result's too, what it takes.
        outputs: the ops whose results are asked for.
        totals: the ops that make one number of all elements, known only when a kernel has ended.
    """

    inputs: Collection[str]
    ops: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    totals: Collection[str] = ()

    def moved(self, plan: Plan) -> tuple[list[str], list[str]]:
        """Return what is read and what is written, once for each trip, in alphabetical order.

        A kernel reads once what it takes from outside. A result is written once, if it is asked
        for or if a kernel reads it that has not made it.

        Raises:
            PlanError: a kernel takes what nobody has made yet; or an op is missing.
        """
        made: set[str] = set()
        reads: list[str] = []
        for kernel in plan:
            here = set(kernel) - set(self.totals)
            taken = {operand for op in kernel for operand in self.ops[op]} - here
            for operand in sorted(taken - made - set(self.inputs)):
                if operand in kernel:
                    raise PlanError("total_in_the_same_kernel", f"`{operand}` is used too early")
                raise PlanError("too_early", f"`{operand}` is used before it is there")
            reads += taken
            made |= set(kernel)
        if missing := sorted(set(self.ops) - made):
            names = " and ".join(f"`{op}`" for op in missing)
            raise PlanError("left_out", f"no kernel does {names}")
        writes = (set(reads) | set(self.outputs)) - set(self.inputs)
        return self._whole(reads), self._whole(writes)

    def trips(self, plan: Plan) -> int:
        """Count the trips of a plan; a single number is none.

        Raises:
            PlanError: as `moved`.
        """
        return sum(len(tensors) for tensors in self.moved(plan))

    @cached_property
    def best(self) -> Plan:
        """The plan with the fewest trips; of those the first with the fewest kernels."""
        return min(self._plans(), key=self.trips)

    @property
    def fewest_trips(self) -> int:
        """The trips of the best plan."""
        return self.trips(self.best)

    @cached_property
    def fewest_kernels(self) -> int:
        """The kernels of the shortest plan."""
        return len(next(self._plans()))

    def _plans(self) -> Iterator[Plan]:
        """Every plan, short ones first: each total splits once, and one kernel more is tried."""
        sizes = range(1, len(self.ops) + 1)
        subsets = [ops for size in sizes for ops in itertools.combinations(self.ops, size)]
        for kernels in range(1, len(self.totals) + 3):
            yield from filter(self._runs, itertools.product(subsets, repeat=kernels))

    def _runs(self, plan: Plan) -> bool:
        try:
            self.moved(plan)
        except PlanError:
            return False
        return True

    def _whole(self, tensors: Collection[str]) -> list[str]:
        return sorted(tensor for tensor in tensors if tensor not in self.totals)


@dataclass(frozen=True)
class Partition(Question):
    """A plan to find.

    Attributes:
        graph: what is to be done.
    """

    _: KW_ONLY
    graph: Graph

    def truth(self) -> Plan:
        """Find a best plan."""
        return self.graph.best

    def judge(self, answer: Any) -> Slip | str | None:
        """Count the trips of a plan, and compare what it moves with that of the slips' plans."""
        plan = self._plan(answer)
        mine, found = self._outcome(plan)
        for slip in self.slips:
            if mine == self._outcome(slip.value)[0]:
                return replace(slip, says=f"{found}{slip.says}")
        trips = self.graph.trips(plan)
        if trips == self.graph.fewest_trips:
            return None
        return f"that is possible, and makes {trips} trips, but fewer are enough{self._why(*mine)}"

    def _outcome(self, plan: Plan) -> tuple[Any, str]:
        """What a plan moves, or why it cannot run: to compare, and in words before a slip's."""
        try:
            return self.graph.moved(plan), ""
        except PlanError as error:
            return error.kind, f"{error}: "

    def _why(self, reads: Sequence[str], writes: Sequence[str]) -> str:
        parts = (
            ("read more than once", [name for name in reads if reads.count(name) > 1]),
            ("written and read again", {*reads} & {*writes}),
        )
        return "".join(
            f"; {words}: {', '.join(sorted(set(names)))}" for words, names in parts if names
        )

    def _plan(self, answer: Any) -> Plan:
        """Read an answer: a list of kernels, each a list of ops."""
        kinds = list | tuple | set | frozenset
        if not isinstance(answer, list | tuple) or not all(isinstance(k, kinds) for k in answer):
            first = list(self.graph.ops)[:2]
            raise UnreadableError(
                f"a list of kernels is wanted, each a list of ops, such as [{first}, ...]; "
                f"that is {shown(answer)}"
            )
        known = {op.casefold(): op for op in self.graph.ops}
        plan = []
        for kernel in answer:
            names = [str(name).strip().casefold() for name in kernel]
            if unknown := [name for name in names if name not in known]:
                raise UnreadableError(
                    f"{shown(unknown[0])} is no op here; there are {', '.join(known)}"
                )
            plan.append([known[name] for name in names])
        return [kernel for kernel in plan if kernel]


GRAPH = Graph(
    inputs=("x", "w"),
    ops={
        "gelu": ("x",),
        "mean": ("gelu",),
        "centre": ("gelu", "mean"),
        "gain": ("centre", "w"),
        "shift": ("gelu", "w"),
    },
    outputs=("gain", "shift"),
    totals=("mean",),
)

ONE_EACH = [[op] for op in GRAPH.ops]
BEST = [["gelu", "mean"], ["gelu", "centre", "gain", "shift"]]

TASK = QuestionTask(
    "best_partition",
    "03",
    "The best partition",
    minutes=12,
    difficulty=2,
    place=2,
    points=3,
    hints=(
        "Where must one kernel end and another begin? Only where a number is needed that is known "
        "when all elements have been read.",
        "Each kernel pays for what it takes from outside and for what is used outside. What the "
        "second kernel needs of the first can be written and read, or it can be computed again "
        "from x.",
        "Two kernels will do. Compare what `h` costs the second one by either way, in trips. And "
        "`w` need be read only once: put the ops that use it into one kernel.",
    ),
    questions=(
        Partition(
            "kernels",
            "the ops of each kernel",
            graph=GRAPH,
            aliases=(
                BEST,
                (("mean", "gelu"), ("shift", "gain", "centre", "gelu")),
                [{"gelu", "mean"}, {"gelu", "centre", "gain", "shift"}],
                [["GELU", " mean "], [], ["gelu", "shift", "centre", "gain"]],
            ),
            slips=(
                Slip(
                    "one_op_a_kernel",
                    ONE_EACH,
                    "every op is a kernel of its own, as in eager PyTorch: what one writes, the "
                    "next reads",
                ),
                Slip(
                    "total_in_the_same_kernel",
                    [list(GRAPH.ops)],
                    "the mean is made and used in one kernel, but it is known only when the last "
                    "element has been read, and no kernel can hold all of them while it waits",
                ),
                Slip(
                    "too_early",
                    [["centre", "gain"], ["gelu", "mean", "shift"]],
                    "a kernel takes a result that no kernel before it has made",
                ),
                Slip(
                    "left_out",
                    [["gelu", "mean"], ["gelu", "centre", "gain"]],
                    "both results are asked for, and all that they need",
                ),
                Slip(
                    "stored_between",
                    [["gelu", "mean"], ["centre", "gain", "shift"]],
                    "the first kernel writes the result of gelu and the second reads it: two "
                    "trips, where reading x again and computing gelu again is one",
                ),
                Slip(
                    "shift_too_soon",
                    [["gelu", "mean", "shift"], ["gelu", "centre", "gain"]],
                    "both kernels read w: shift in the first one, gain in the second",
                ),
                Slip(
                    "shift_too_soon_and_stored",
                    [["gelu", "mean", "shift"], ["centre", "gain"]],
                    "both kernels read w; and the first writes the result of gelu, which the "
                    "second could compute again from x",
                ),
                Slip(
                    "shift_alone",
                    [["gelu", "mean"], ["gelu", "centre", "gain"], ["gelu", "shift"]],
                    "a third kernel reads x and w once more; shift can share the second, which "
                    "has both",
                ),
                Slip(
                    "mean_alone",
                    [["gelu"], ["mean"], ["centre", "gain", "shift"]],
                    "the mean has a kernel of its own, which reads what another has just had in "
                    "its registers",
                ),
            ),
        ),
        Number(
            "trips",
            "the fewest trips that a plan can make",
            truth=lambda: GRAPH.fewest_trips,
            unit="trips",
            aliases=("5 trips", 5.0, "1 + 4"),
            slips=(
                Slip(
                    "all_in_one",
                    4,
                    "that would be one kernel: x and w in, two results out. But the mean is "
                    "needed before the first result can be written",
                ),
                Slip(
                    "one_too_many",
                    6,
                    "possible, but there is a plan with fewer trips: do the kernels share a "
                    "tensor through memory, or do both read w?",
                ),
                Slip(
                    "two_too_many",
                    7,
                    "possible, but there is a plan with fewer trips: what can be computed again "
                    "need not be written and read, and w need be read only once",
                ),
                Slip(
                    "eager",
                    lambda: GRAPH.trips(ONE_EACH),
                    "those are the trips of eager PyTorch, a kernel for each op",
                ),
                Slip(
                    "forgot_an_output",
                    3,
                    "too few for even a single kernel, which has two tensors to read and two to "
                    "write",
                ),
            ),
        ),
    ),
)
