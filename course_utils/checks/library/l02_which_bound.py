"""which_bound: is it memory, arithmetic or the launch that sets the time?"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from course_utils import Meter, gpus, models, records
from course_utils.checks.question_task import Choice, QuestionTask, Slip

OPTIONS = {
    "memory": "moving the bytes takes longest",
    "compute": "the arithmetic takes longest",
    "launches": "it is over before the next op can be launched",
}
ALSO = {
    "memory-bound": "memory",
    "bandwidth-bound": "memory",
    "bandwidth": "memory",
    "compute-bound": "compute",
    "launch-bound": "launches",
    "launch": "launches",
}


def product(rows: int) -> Callable[[], object]:
    """A product of some rows with a weight matrix of 8192 × 8192, in bfloat16."""
    x, weight = (
        torch.empty(count, 8192, device="meta", dtype=torch.bfloat16) for count in (rows, 8192)
    )
    return lambda: x @ weight


def gelu() -> object:
    """A GELU of 2²⁸ float32 numbers."""
    return F.gelu(torch.empty(2**28, device="meta"))


def tiny_add() -> object:
    """The sum of two vectors of 1024 float32 numbers."""
    x, y = (torch.empty(1024, device="meta") for _ in "xy")
    return x + y


def bound(program: Callable[[], object], gpu: gpus.GPU, dtype: str) -> str:
    """What the roofline says, unless a launch takes longer than all that it allows for."""
    with Meter() as meter:
        program()
    moved, peak = meter.traffic, gpu.peak[dtype]
    launch = records.load(records.REFERENCE).row("launch", "add_8").milliseconds * 1e-3
    if models.roofline_time(moved.flops, moved.bytes, peak, gpu.bandwidth) < launch:
        return "launches"
    return models.bound(moved.intensity, peak, gpu.bandwidth)


def question(
    name: str, asks: str, program: Callable[[], object], key: str, dtype: str, why: dict[str, str]
) -> Choice:
    """Ask what sets the time of a program on a GPU; ``why`` says it of each wrong option."""
    gpu = gpus.gpu(key)
    slips = [Slip(f"{name}_not_{option}", option, words) for option, words in why.items()]
    return Choice(
        name,
        f"{asks}, {gpu.name}",
        options=OPTIONS,
        also=ALSO,
        right=lambda: bound(program, gpu, dtype),
        slips=slips,
    )


LONG = "it moves or computes so much that one launch is nothing beside it"
RIDGES = [gpus.gpu(key).ridge("bf16") for key in ("h200", "rtx5090")]

TASK = QuestionTask(
    "which_bound",
    "02",
    "Which bound?",
    minutes=8,
    difficulty=2,
    place=4,
    hints=(
        "Work out the intensity of each program, and hold it beside the ridge of that GPU in that "
        "data type. Only a program that moves and computes next to nothing is held up by its "
        "launch.",
        "A product of a few rows with a large matrix reads the whole matrix. With bfloat16 its "
        "intensity is M·N·K / (M·K + K·N + M·N); if M is much smaller than N and K, that is "
        "nearly M.",
        f"The ridges of bfloat16 are {RIDGES[0]:.0f} on the H200 and {RIDGES[1]:.0f} on the "
        "RTX 5090. The intensity of each product is below its number of rows.",
    ),
    questions=(
        question(
            "gelu",
            "GELU of 2²⁸ float32 numbers",
            gelu,
            "rtx4090",
            "fp32",
            {
                "compute": "a GELU counts as one FLOP for 8 bytes, and even at its real cost it "
                "hides behind them: the point is far left of the ridge",
                "launches": LONG,
            },
        ),
        question(
            "rows_16",
            "16 rows times a matrix of 8192 × 8192, bfloat16",
            product(16),
            "h200",
            "bf16",
            {
                "compute": "a product of matrices need not be compute-bound: here each number of "
                "the large matrix is used for 16 rows only, so the intensity is about 16",
                "launches": "it reads a matrix of 8192 × 8192, and that takes longer than a launch",
            },
        ),
        question(
            "rows_1024",
            "1024 rows times that matrix, bfloat16",
            product(1024),
            "h200",
            "bf16",
            {
                "memory": "each number of the large matrix is used for 1024 rows, so the "
                "intensity is far right of the ridge",
                "launches": LONG,
            },
        ),
        question(
            "rows_192",
            "192 rows times that matrix, bfloat16",
            product(192),
            "h200",
            "bf16",
            {
                "compute": "close, but the intensity is a little below 192, and the ridge of bf16 "
                "on this GPU is above that",
                "launches": "it reads a matrix of 8192 × 8192, and that takes longer than a launch",
            },
        ),
        question(
            "rows_192_5090",
            "192 rows times that matrix, bfloat16",
            product(192),
            "rtx5090",
            "bf16",
            {
                "memory": "the intensity is the same on every GPU, but the ridge is not: that of "
                "bf16 is lower on this one, and the program stands to its right",
                "launches": LONG,
            },
        ),
        question(
            "tiny_add",
            "sum of two vectors of 1024 float32 numbers",
            tiny_add,
            "h200",
            "fp32",
            {
                "memory": "it is left of the ridge, but 12 KB are moved in nanoseconds, and a "
                "launch takes microseconds: the roofline does not show that",
                "compute": "1024 additions are nothing beside a launch of some microseconds",
            },
        ),
    ),
)
