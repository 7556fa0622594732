"""moves_nothing: of four lines that look alike, which one launches nothing?"""

from __future__ import annotations

import torch

from course_utils import Meter
from course_utils.checks.question_task import Choice, QuestionTask, Slip

LINES = {
    "order": {
        "A": "m.flip(0)",
        "B": "m.t().contiguous()",
        "C": "m.t()[::2]",
        "D": "m.roll(1, 0)",
    },
    "shape": {
        "A": "m.t().reshape(-1)",
        "B": "m.reshape(-1)",
        "C": "m.repeat(1, 1)",
        "D": "m.flatten().clone()",
    },
    "part": {
        "A": "m[[0, 2, 4]]",
        "B": "m[m > 0]",
        "C": "torch.cat([m[0:2], m[4:6]])",
        "D": "m[0:6:2]",
    },
    "memory": {
        "A": "m.to(torch.float32)",
        "B": "torch.zeros_like(m)",
        "C": "m.mul_(1)",
        "D": "m.to(torch.bfloat16)",
    },
}
"""Over ``m``, a contiguous matrix of float32."""


def launches(line: str) -> int:
    """Count the launches of a line."""
    m = torch.ones(64, 128)
    with Meter() as meter:
        eval(line, {"torch": torch, "m": m})
    return len(meter.launches)


def question(name: str, asks: str, why: dict[str, str]) -> Choice:
    """Ask for the one line that launches nothing."""

    def right() -> str:
        (option,) = (option for option, line in LINES[name].items() if not launches(line))
        return option

    slips = [
        Slip(f"{name}_{option.lower()}", option, f"`{LINES[name][option]}` {words}")
        for option, words in why.items()
    ]
    return Choice(name, asks, options=LINES[name], right=right, slips=slips)


TASK = QuestionTask(
    "moves_nothing",
    "01",
    "Find the line that moves nothing",
    minutes=6,
    difficulty=1,
    place=3,
    hints=(
        "A line moves nothing if its result can be described by a start, a shape and one stride "
        "for each dimension of the same memory.",
        "A stride is the same number of elements all along its dimension, and in PyTorch it is "
        "never below zero. A list or a mask of indices has no stride. A new tensor with given "
        "contents has to be written.",
        "Ask the meter: `with Meter() as meter:`, below it one of the lines over `m = "
        "torch.ones(512, 1024)`, then `len(meter.launches)`. Exactly one line of each group gives "
        "0.",
    ),
    questions=(
        question(
            "order",
            "another order of the same numbers, without a launch",
            {
                "A": "copies: the rows would run backwards, and PyTorch has no stride below zero",
                "B": "copies: `t()` alone is a view, but `contiguous()` then puts the numbers "
                "into their new order in memory",
                "D": "copies: the last row comes first and the others follow, and no single "
                "stride steps like that",
            },
        ),
        question(
            "shape",
            "another shape, without a launch",
            {
                "A": "copies: the columns, one after the other, have no single stride, so that "
                "`reshape` cannot describe them and has to write them anew",
                "C": "copies, even where it repeats everything only once: `repeat` always makes a "
                "new tensor; `expand` would not",
                "D": "copies: `flatten()` of this matrix is a view, but `clone()` makes a tensor "
                "of its own",
            },
        ),
        question(
            "part",
            "a part of it, without a launch",
            {
                "A": "copies the three rows: a list may name any rows in any order, so PyTorch "
                "does not look for a stride in it",
                "B": "compares every number, and then copies those that are chosen",
                "C": "copies: the slices are views, but `cat` writes them one behind the other",
            },
        ),
        question(
            "memory",
            "neither read nor written",
            {
                "B": "writes a zero to every place of the new tensor; `empty_like` would write "
                "nothing",
                "C": "reads and writes every number: PyTorch does not look at what it multiplies "
                "by, and in place saves memory, not traffic",
                "D": "reads every number and writes it with 2 bytes: another dtype is another "
                "tensor",
            },
        ),
    ),
)
