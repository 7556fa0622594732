"""trips_of: count the trips of a function with the meter."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from course_utils import Meter
from course_utils.checks.draw import Case, Draw
from course_utils.checks.function_task import FunctionTask
from course_utils.checks.variants import Alternative, Mistake
from course_utils.examples import chain, residual_block

# What the first op on `meta` imports takes seconds, and each check would import it anew.
chain(torch.empty(1, device="meta"))


def trips_of(function, x):
    with Meter() as meter:
        function(x)
    return meter.trips(x)


def reference(function, x: torch.Tensor) -> float:
    """Bytes that ``function(x)`` moves, in passes over x."""
    with Meter() as meter:
        function(x)
    return meter.traffic.bytes / x.nbytes


def narrow(x: torch.Tensor) -> torch.Tensor:
    """A conversion and an op in 16 bits: trips that are no whole number."""
    return F.relu(x.to(torch.bfloat16))


def row_sums(x: torch.Tensor) -> torch.Tensor:
    """A product of matrices and a reduction; only a matrix can go in."""
    return (x @ x.t()).sum(1)


def views(x: torch.Tensor) -> torch.Tensor:
    """No launch at all."""
    return x.view(-1)[::2]


def filled(x: torch.Tensor) -> torch.Tensor:
    """One write without a read, and one op in place."""
    return torch.ones_like(x).add_(x)


def above_zero(x: torch.Tensor) -> torch.Tensor:
    """What moves depends on the numbers in x."""
    return x[x > 0].exp()


def cases(draw: Draw) -> Iterator[Case]:
    """Programs of many kinds, over vectors, matrices, halves, and a tensor with gaps."""
    n = draw.integer(2000, 4000)
    yield Case(f"the chain over {n:,} floats", (chain, torch.empty(n, device="meta")))
    yield Case(
        f"the residual block over {n:,} floats", (residual_block, torch.empty(n, device="meta"))
    )
    yield Case("a conversion to bfloat16, then relu", (narrow, torch.empty(n, device="meta")))
    half = torch.empty(n, device="meta", dtype=torch.bfloat16)
    yield Case(f"the chain over {n:,} bfloat16 numbers", (chain, half))
    yield Case("a conversion of what is bfloat16 already, then relu", (narrow, half))
    rows, columns = draw.integer(20, 40), draw.integer(50, 90)
    matrix = torch.empty(rows, columns, device="meta")
    yield Case(f"row sums of x @ x.t(), x of {rows} by {columns}", (row_sums, matrix))
    yield Case("the softmax of a matrix on the CPU", (lambda x: x.softmax(1), draw.normal(9, 31)))
    yield Case("exp of the numbers above zero, on the CPU", (above_zero, draw.normal(n)))
    gaps = draw.normal(2 * n)[::2]  # on the CPU: on `meta` a copy of it would lose the gaps
    yield Case("relu, x with gaps between its numbers", (F.relu, gaps))
    yield Case("ones_like(x).add_(x), x with gaps between its numbers", (filled, gaps))
    yield Case(
        "x.contiguous(), x a transposed matrix", (torch.Tensor.contiguous, draw.normal(9, 31).t())
    )
    yield Case("views alone", (views, torch.empty(n, device="meta")))


ENTER = "    with Meter() as meter:\n        function(x)\n"
RETURN = "return meter.trips(x)"


def over_a_vector_of_my_own(function, x):
    values = torch.empty(x.numel(), device="meta")
    with Meter() as meter:
        function(values)
    return meter.trips(values)


def over_a_tensor_of_that_shape(function, x):
    values = torch.empty(x.shape, device="meta")
    with Meter() as meter:
        function(values)
    return meter.trips(values)


def by_launch(function, x):
    meter = Meter()
    with meter:
        function(x)
    return sum(launch.trips(x) for launch in meter.launches)


def by_reads_and_writes(function, x):
    with Meter() as meter:
        result = function(x)
    del result
    launches = [launch.traffic for launch in meter.launches]
    moved = sum(launch.bytes_read + launch.bytes_written for launch in launches)
    return moved / (x.numel() * x.element_size())


TASK = FunctionTask(
    "trips_of",
    "01",
    "Count the trips of a function",
    minutes=8,
    difficulty=1,
    place=2,
    hints=(
        "Open a meter, call the function inside, and ask the meter afterwards. The lesson does so "
        "in its cell `count-trips`.",
        "What is called before the `with` block or after it is not counted. The trips are the "
        "bytes read and written, divided by the bytes of `x`.",
        "`with Meter() as meter:`, below it `function(x)`, and after the block `return "
        "meter.trips(x)`.",
    ),
    solution=(trips_of,),
    reference=reference,
    cases=cases,
    mistakes=(
        Mistake(
            "reads_only",
            [(RETURN, "return meter.traffic.bytes_read / x.nbytes")],
            says="only what is read is counted; what is written back moves too",
        ),
        Mistake(
            "writes_only",
            [(RETURN, "return meter.traffic.bytes_written / x.nbytes")],
            says="only what is written is counted; what is read moves too",
        ),
        Mistake(
            "bytes_for_trips",
            [(RETURN, "return meter.traffic.bytes")],
            says="those are bytes; a trip is one pass over x, so divide by the bytes of x",
        ),
        Mistake(
            "elements_for_bytes",
            [(RETURN, "return meter.traffic.bytes / x.numel()")],
            says="the bytes are divided by the number of elements of x, not by its bytes",
        ),
        Mistake(
            "four_bytes_each",
            [(RETURN, "return meter.traffic.bytes / (4 * x.numel())")],
            says="every element of x is taken to have 4 bytes; in bfloat16 it has 2: `x.nbytes`",
        ),
        Mistake(
            "launches_for_trips",
            [(RETURN, "return len(meter.launches)")],
            says="those are the launches; one launch makes several trips, or less than one",
        ),
        Mistake(
            "two_trips_a_launch",
            [(RETURN, "return 2 * len(meter.launches)")],
            says="every launch is taken to make two trips; some read two tensors, some read none, "
            "some write less than x",
        ),
        Mistake(
            "trips_of_the_result",
            [("        function(x)", "        y = function(x)"), (RETURN, "return meter.trips(y)")],
            says="the bytes are measured in passes over the result, not over x",
        ),
        Mistake(
            "called_outside",
            [(ENTER, "    function(x)\n    with Meter() as meter:\n        pass\n")],
            says="no call of the function is counted: it has to be called inside the `with` block",
        ),
        Mistake(
            "called_twice",
            [(ENTER, ENTER + "        function(x)\n")],
            says="the function is called twice inside the `with` block, so all counts double",
        ),
        Mistake(
            "rounded",
            [(RETURN, "return round(meter.trips(x))")],
            says="the trips are rounded; a launch may well make half a trip",
        ),
        Mistake(
            "cut_off",
            [(RETURN, "return int(meter.trips(x))")],
            says="the trips are cut off to a whole number; a launch may well make half a trip",
        ),
        Mistake(
            "first_launch_only",
            [(RETURN, "return meter.launches[0].trips(x)")],
            says="only the first launch is counted, and where there is none that fails",
        ),
        Mistake(
            "last_launch_only",
            [(RETURN, "return meter.launches[-1].trips(x)")],
            says="only the last launch is counted, and where there is none that fails",
        ),
        Mistake(
            "vector_of_its_own",
            functions=(over_a_vector_of_my_own,),
            says="the function is given a new vector of float32 in place of x: count it over x "
            "itself, whose shape and dtype may be others",
        ),
        Mistake(
            "float32_of_its_own",
            functions=(over_a_tensor_of_that_shape,),
            says="the function is given a new float32 tensor in place of x: count it over x "
            "itself, whose dtype may be another",
        ),
        Mistake(
            "copied_inside",
            [("        function(x)", "        function(x.contiguous())")],
            says="`contiguous()` inside the `with` block copies an x with gaps, and the copy is "
            "counted: give the function x itself",
        ),
        Mistake(
            "copied_before",
            [(ENTER, "    x = x.contiguous()\n" + ENTER)],
            says="x is made contiguous first, so that the function sees another tensor: what it "
            "moves can depend on the strides of x",
        ),
        Mistake(
            "bytes_of_the_storage",
            [(RETURN, "return meter.traffic.bytes / x.untyped_storage().nbytes()")],
            says="the bytes of the storage are those of the gaps too: `x.nbytes` is without them",
        ),
        Mistake(
            "empty_on_meta",
            [("        function(x)", '        function(torch.empty_like(x, device="meta"))')],
            says="the function is given a tensor without numbers in place of x: what it moves can "
            "depend on the numbers in x",
        ),
        Mistake(
            "not_returned",
            [(RETURN, "print(meter.trips(x))")],
            says="the function ends without returning its result",
        ),
    ),
    alternatives=(
        Alternative("a_division", [(RETURN, "return meter.traffic.bytes / x.nbytes")]),
        Alternative("launch_by_launch", functions=(by_launch,)),
        Alternative("reads_and_writes", functions=(by_reads_and_writes,)),
        Alternative("called_before_too", [(ENTER, "    function(x)\n" + ENTER)]),
    ),
)
