"""ridges: where the roofline of three GPUs bends, from their datasheets."""

from __future__ import annotations

from course_utils import gpus
from course_utils.checks.question_task import Number, QuestionTask, Slip


def question(name: str, key: str, dtype: str, other: str, itemsize: int) -> Number:
    """Ask for a ridge.

    Args:
        name: the question's.
        key: of the GPU, in `gpus.GPUS`.
        dtype: whose peak is meant.
        other: the dtype whose peak stands beside it in the exercise.
        itemsize: bytes of one number of that dtype.
    """
    gpu = gpus.gpu(key)
    peak, bandwidth = gpu.peak[dtype], gpu.bandwidth
    slips = (
        Slip(
            f"{name}_upside_down",
            bandwidth / peak,
            "that is upside down: bytes per FLOP. The ridge is peak / bandwidth",
        ),
        Slip(
            f"{name}_other_peak",
            gpu.ridge(other),
            f"that is the ridge of {other}; asked for is that of {dtype}, which has a peak of its "
            "own",
        ),
        Slip(
            f"{name}_prefix",
            peak / 1e12 / (bandwidth / 1e9),
            "TFLOP/s are divided by GB/s: 1 TFLOP/s is 10¹² FLOP/s, 1 GB/s is 10⁹ bytes/s",
        ),
        Slip(
            f"{name}_other_prefix",
            peak / 1e9 / (bandwidth / 1e12),
            "a prefix is the wrong way round: 1 TB is 1000 GB",
        ),
        Slip(
            f"{name}_binary_prefix",
            peak / (bandwidth * 1.024**3),
            "the bandwidth is taken in powers of 1024; 1 GB/s is 10⁹ bytes/s",
        ),
        Slip(
            f"{name}_a_number",
            itemsize * peak / bandwidth,
            f"those are FLOPs per number of {itemsize} bytes; the ridge is in FLOPs per byte",
        ),
        Slip(
            f"{name}_product",
            peak * bandwidth,
            "the two limits are multiplied; divide them, so that the seconds cancel",
        ),
    )
    asks = f"the ridge of {dtype} on the {gpu.name}"
    return Number(name, asks, truth=lambda: gpu.ridge(dtype), unit="FLOP/byte", slips=slips)


TASK = QuestionTask(
    "ridges",
    "02",
    "Where three roofs bend",
    minutes=5,
    difficulty=1,
    place=3,
    hints=(
        "The ridge is the intensity at which both limits are the same. Both count in seconds, "
        "which cancel.",
        "FLOP/s divided by bytes/s are FLOP/byte. Take the peak of the data type that is asked "
        "for, and write both limits without prefixes: 1 T is 10¹², 1 G is 10⁹.",
        'For the first: `"65e12 / 320e9"`. A text like that is worked out by the check.',
    ),
    questions=(
        question("t4", "t4", "fp16", "fp32", 2),
        question("a100", "a100_80gb", "bf16", "fp32", 2),
        question("rtx4090", "rtx4090", "fp32", "bf16", 4),
    ),
)
