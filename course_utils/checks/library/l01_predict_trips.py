"""predict_trips: what four snippets move, before the meter says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from course_utils import Meter
from course_utils.checks.question_task import Number, QuestionTask, Slip
from course_utils.meter import Traffic

SNIPPETS = {
    "a": "torch.relu(x + 1) * x",
    "b": "x.view(1024, 1024).t().contiguous().view(-1) + 1",
    "c": "x.to(torch.bfloat16).exp()",
    "d": "x.add_(1).clamp_(min=0).sum()",
}
"""Over ``x``, a vector of 2²⁰ float32 numbers."""


def traffic(snippet: str) -> tuple[Traffic, int]:
    """What a snippet moves, and the bytes of x."""
    x = torch.empty(2**20, device="meta")
    with Meter() as meter:
        eval(snippet, {"torch": torch, "x": x})
    return meter.traffic, x.nbytes


def trips(snippet: str) -> Callable[[], float]:
    """Count reads and writes."""

    def count() -> float:
        moved, one_pass = traffic(snippet)
        return moved.trips(one_pass)

    return count


def reads(snippet: str) -> Callable[[], float]:
    """Count as who forgets the writes."""

    def count() -> float:
        moved, one_pass = traffic(snippet)
        return moved.bytes_read / one_pass

    return count


def writes(snippet: str) -> Callable[[], float]:
    """Count as who forgets the reads."""

    def count() -> float:
        moved, one_pass = traffic(snippet)
        return moved.bytes_written / one_pass

    return count


def question(name: str, *slips: Slip) -> Number:
    """Ask for the trips of a snippet."""
    snippet = SNIPPETS[name]
    count = trips(snippet)
    scaled = (
        Slip(
            "bytes_per_number",
            lambda: 4 * count(),
            "those are bytes for each number of x; a trip is a whole pass, whatever the bytes",
        ),
        Slip(
            "numbers",
            lambda: 2**20 * count(),
            "those are the trips times the 2²⁰ numbers of x; a trip is one pass over all of them",
        ),
        Slip(
            "bytes",
            lambda: 2**22 * count(),
            "those are bytes; a trip is one pass over the 2²² bytes of x",
        ),
    )
    named = [replace(slip, name=f"{name}_{slip.name}") for slip in (*slips, *scaled)]
    return Number(name, f"trips of `{snippet}`", truth=count, unit="trips", slips=named)


TASK = QuestionTask(
    "predict_trips",
    "01",
    "Predict the trips of four snippets",
    minutes=8,
    difficulty=1,
    place=1,
    hints=(
        "Take the launches one by one. Each reads every tensor that it is given, once, and writes "
        "what it makes. A view is no launch.",
        "`x` itself is one trip, and so is every result of its size. A tensor with 2 bytes a "
        "number is half a trip. An op in place reads and writes like any other.",
        "a: an addition, a relu, and a product of two different tensors. b: only `contiguous()` "
        "and `+` are launches. c: the conversion reads float32 and writes bfloat16. d: the sum "
        "writes one number.",
    ),
    questions=(
        question(
            "a",
            Slip("second_operand", 6, "the product reads two tensors: relu's result, and x again"),
            Slip(
                "reads_only",
                reads(SNIPPETS["a"]),
                "that counts what is read; each op writes its result as well",
            ),
            Slip(
                "writes_only",
                writes(SNIPPETS["a"]),
                "that counts one trip a launch; each op reads its operands and writes its result",
            ),
            Slip(
                "fused",
                2,
                "that is what one fused kernel would need: PyTorch launches three ops one after "
                "the other, and every result between them goes to memory and back",
            ),
        ),
        question(
            "b",
            Slip(
                "views_move",
                10,
                "the views and the transpose are counted as passes; they only describe the same "
                "bytes anew, and launch nothing",
            ),
            Slip(
                "transpose_moves",
                6,
                "one pass too many: `view` and `t()` move nothing; only `contiguous()` moves what "
                "the transpose has put out of order",
            ),
            Slip(
                "one_op",
                reads(SNIPPETS["b"]),
                "two trips are one launch, or the reads of two: after a transpose `contiguous()` "
                "is a launch too, and each reads and writes",
            ),
            Slip(
                "nothing",
                0,
                "the views move nothing, but `contiguous()` after a transpose has to copy, and "
                "the addition is an op like any other",
            ),
        ),
        question(
            "c",
            Slip(
                "all_wide",
                4,
                "bfloat16 numbers have 2 bytes, half of what those of x have: writing them is "
                "half a trip over x",
            ),
            Slip(
                "only_exp",
                1,
                "the conversion is a launch of its own: it reads x and writes the narrow numbers",
            ),
            Slip(
                "only_the_conversion",
                reads(SNIPPETS["c"]),
                "a trip is missing: the conversion reads x and writes half of its bytes, and then "
                "exp reads and writes that half",
            ),
            Slip(
                "exp_wide", 3.5, "exp is counted in float32; what it reads and writes is bfloat16"
            ),
            Slip(
                "conversion_wide",
                3,
                "half a trip too many: the conversion writes bfloat16, which is half a trip",
            ),
            Slip(
                "wide_or_narrow",
                2,
                "neither launch is like the other: the conversion reads 4 bytes a number and "
                "writes 2, exp reads 2 and writes 2",
            ),
            Slip(
                "narrow_trips",
                5,
                "those are passes over the narrow tensor; asked for are passes over x, of twice "
                "its bytes",
            ),
        ),
        question(
            "d",
            Slip("sum_writes_all", 6, "the sum writes one number, not a whole tensor"),
            Slip(
                "in_place_is_free",
                1,
                "in place saves memory, not traffic: every number still has to come to the chip "
                "and go back",
            ),
            Slip(
                "reads_only",
                reads(SNIPPETS["d"]),
                "that counts the reads; ops in place write back what they read",
            ),
            Slip(
                "writes_only",
                writes(SNIPPETS["d"]),
                "that counts what is written; each of the three launches reads the whole tensor "
                "too",
            ),
            Slip("no_sum", 4, "the sum is missing: it reads the whole tensor"),
        ),
    ),
)
