"""ridges: where the roofline of three GPUs bends, from their datasheets."""

from __future__ import annotations

import math
from dataclasses import replace

from course_utils import gpus
from course_utils.checks.question_task import Number, QuestionTask, Slip


def question(key: str, dtype: str, itemsize: int) -> Number:
    """Ask for a ridge.

    Args:
        key: of the GPU, in `gpus.GPUS`; the question's name too.
        dtype: whose peak is meant.
        itemsize: bytes of one number of that dtype.
    """
    gpu = gpus.gpu(key)
    peak, bandwidth, ridge = gpu.peak[dtype], gpu.bandwidth, gpu.ridge(dtype)
    others = {gpu.ridge(other): other for other in gpu.peak}
    namesakes = [other for other in gpus.GPUS.values() if _first_name(other) == _first_name(gpu)]
    slips = [
        Slip(
            "upside_down",
            1 / ridge,
            "that is upside down: bytes per FLOP. The ridge is peak / bandwidth",
        ),
        *(
            Slip(
                f"peak_of_{other}",
                value,
                f"that is the ridge of {other}; asked for is that of {dtype}, which has a peak of "
                "its own",
                within=0.05,  # some are known from lesson 02, where they are rounded
            )
            for value, other in others.items()
        ),
        *(
            Slip(
                f"of_{other.key}",
                other.ridge(dtype),
                f"that is the ridge of the {other.name}; asked for is that of the {gpu.name}",
            )
            for other in namesakes
        ),
        Slip(
            "prefix",
            1e-3 * ridge,
            "TFLOP/s are divided by GB/s: 1 TFLOP/s is 10¹² FLOP/s, 1 GB/s is 10⁹ bytes/s",
        ),
        Slip("other_prefix", 1e3 * ridge, "a prefix is the wrong way round: 1 TB is 1000 GB"),
        *(
            Slip(
                f"binary_{prefixes}",
                factor * ridge,
                "a prefix is taken for a power of 1024: 1 T is 10¹², not 2⁴⁰, and 1 G is 10⁹, "
                "not 2³⁰",
            )
            for prefixes, factor in (
                ("tera_and_giga", 1.024),
                ("tera_above", 1.024**4),
                ("giga_below", 1.024**-3),
                ("tera_below", 1.024**-4),
            )
        ),
        Slip(
            "a_number",
            itemsize * ridge,
            f"those are FLOPs per number of {itemsize} bytes; the ridge is in FLOPs per byte",
        ),
        Slip(
            "product",
            peak * bandwidth,
            "the two limits are multiplied; divide them, so that the seconds cancel",
        ),
    ]
    wrong = [
        replace(slip, name=f"{key}_{slip.name}")
        for slip in slips
        if not math.isclose(slip.given, ridge)
    ]
    asks = f"the ridge of {dtype} on the {gpu.name}"
    return Number(key, asks, truth=lambda: ridge, unit="FLOP/byte", slips=wrong)


def _first_name(gpu: gpus.GPU) -> str:
    return gpu.name.split()[0]


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
        question("t4", "fp16", 2),
        question("a100_80gb", "tf32", 4),
        question("h100_sxm", "fp8", 1),
    ),
)
