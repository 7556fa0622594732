"""attainable: the height of the roof at an intensity."""

from __future__ import annotations

from collections.abc import Iterator

from course_utils import gpus, models
from course_utils.checks.draw import Case, Draw
from course_utils.checks.function_task import FunctionTask
from course_utils.checks.variants import Alternative, Mistake


def attainable(intensity, peak, bandwidth):
    return min(peak, intensity * bandwidth)


def reference(intensity: float, peak: float, bandwidth: float) -> float:
    """The roofline in FLOP/s."""
    return models.attainable(intensity, peak, bandwidth)


def cases(draw: Draw) -> Iterator[Case]:
    """Left and right of the ridge on several GPUs, near it, on it, and at the ends."""
    for key, dtype in (("h200", "fp32"), ("t4", "fp16"), ("rtx4090", "bf16")):
        gpu = gpus.gpu(key)
        peak, bandwidth, ridge = gpu.peak[dtype], gpu.bandwidth, gpu.ridge(dtype)
        for words, share in (
            ("far left of", draw.number(0.01, 0.1)),
            ("a little left of", draw.number(0.7, 0.95)),
            ("a little right of", draw.number(1.05, 1.4)),
            ("far right of", draw.number(5, 20)),
        ):
            intensity = round(share * ridge, 3)
            name = f"{intensity:g} FLOP/byte, {words} the ridge of {dtype} on the {gpu.name}"
            yield Case(name, (intensity, peak, bandwidth))
    yield Case("an intensity of 0, as a copy has", (0.0, 1e12, 2e11))
    yield Case("an intensity on the ridge", (8, 1600, 200))
    yield Case("2.4 FLOP/byte, and a ridge at 2.5", (2.4, 5, 2))


RETURN = "return min(peak, intensity * bandwidth)"


def by_cases(intensity, peak, bandwidth):
    ridge = peak / bandwidth
    if intensity < ridge:
        return intensity * bandwidth
    return peak


def by_time(intensity, peak, bandwidth):
    seconds_to_compute = intensity / peak
    seconds_to_move = 1 / bandwidth
    return intensity / max(seconds_to_compute, seconds_to_move)


def ridge_upside_down(intensity, peak, bandwidth):
    ridge = bandwidth / peak
    if intensity < ridge:
        return intensity * bandwidth
    return peak


def ridge_cut_off(intensity, peak, bandwidth):
    ridge = peak // bandwidth
    if intensity < ridge:
        return intensity * bandwidth
    return peak


def one_after_the_other(intensity, peak, bandwidth):
    seconds_to_compute = intensity / peak
    seconds_to_move = 1 / bandwidth
    return intensity / (seconds_to_compute + seconds_to_move)


TASK = FunctionTask(
    "attainable",
    "02",
    "The height of the roof",
    minutes=5,
    difficulty=1,
    place=2,
    hints=(
        "There are two limits: what the arithmetic can do, and what the memory can feed. The "
        "lower one decides.",
        "Every byte brings `intensity` FLOPs, and `bandwidth` bytes come in a second. Multiply, "
        "and you have the FLOP/s that the memory can feed.",
        "`return min(...)`, of the peak and of that product.",
    ),
    solution=(attainable,),
    reference=reference,
    cases=cases,
    mistakes=(
        Mistake(
            "the_higher_limit",
            [(RETURN, "return max(peak, intensity * bandwidth)")],
            says="the higher of the two limits is returned; the lower one decides: memory left of "
            "the ridge, arithmetic right of it",
        ),
        Mistake(
            "no_roof",
            [(RETURN, "return intensity * bandwidth")],
            says="the peak is left out: right of the ridge the arithmetic sets the limit",
        ),
        Mistake(
            "no_slope",
            [(RETURN, "return peak")],
            says="the memory is left out: left of the ridge it cannot feed the arithmetic",
        ),
        Mistake(
            "divided",
            [(RETURN, "return min(peak, bandwidth / intensity if intensity else 0)")],
            says="the bandwidth is divided by the intensity; each byte brings `intensity` FLOPs, "
            "so multiply",
        ),
        Mistake(
            "divided_and_not_by_zero",
            [(RETURN, "return min(peak, bandwidth / intensity)")],
            says="the bandwidth is divided by the intensity, which fails for a copy; each byte "
            "brings `intensity` FLOPs, so multiply",
        ),
        Mistake(
            "upside_down",
            [(RETURN, "return min(peak, intensity / bandwidth)")],
            says="the intensity is divided by the bandwidth; FLOP/byte times bytes/s are FLOP/s",
        ),
        Mistake(
            "peak_and_bandwidth_swapped",
            [(RETURN, "return min(bandwidth, intensity * peak)")],
            says="peak and bandwidth have changed places: the intensity scales the bandwidth",
        ),
        Mistake(
            "ridge_upside_down",
            functions=(ridge_upside_down,),
            says="the ridge is upside down: it is peak / bandwidth, in FLOP/byte",
        ),
        Mistake(
            "ridge_cut_off",
            functions=(ridge_cut_off,),
            says="the ridge is made a whole number, by `//` or by rounding; it is peak / "
            "bandwidth as it stands",
        ),
        Mistake(
            "nothing_at_once",
            functions=(one_after_the_other,),
            says="the times to move and to compute are added up; a GPU does both at once, so that "
            "the longer one decides",
        ),
        Mistake(
            "in_intensity",
            [(RETURN, "return min(peak / bandwidth, intensity)")],
            says="that is an intensity in FLOP/byte; multiply by the bandwidth to get FLOP/s",
        ),
        Mistake(
            "share_of_the_peak",
            [(RETURN, "return min(1, intensity * bandwidth / peak)")],
            says="that is a share of the peak; asked for are FLOP/s",
        ),
        Mistake(
            "in_teraflops",
            [(RETURN, "return min(peak, intensity * bandwidth) / 1e12")],
            says="that is in TFLOP/s; asked for are FLOP/s, in which the peak is given too",
        ),
        Mistake(
            "eight_bits",
            [(RETURN, "return min(peak, intensity * bandwidth / 8)")],
            says="the bandwidth is divided by 8, as if it were in bits: it is in bytes/s",
        ),
        Mistake(
            "four_bytes_a_number",
            [(RETURN, "return min(peak, intensity * bandwidth / 4)")],
            says="the bandwidth is divided by 4: intensity is FLOPs per byte, not per number",
        ),
        Mistake(
            "not_returned",
            [(RETURN, "print(min(peak, intensity * bandwidth))")],
            says="the function ends without returning its result",
        ),
    ),
    alternatives=(
        Alternative("by_cases", functions=(by_cases,)),
        Alternative("by_time", functions=(by_time,)),
        Alternative(
            "ridge_first", [(RETURN, "return bandwidth * min(intensity, peak / bandwidth)")]
        ),
        Alternative("sorted", [(RETURN, "return sorted([intensity * bandwidth, peak])[0]")]),
    ),
)
