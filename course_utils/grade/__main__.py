"""The command `python -m course_utils.grade`; the package's docstring says what it does."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

GRADED, NOT_GRADED = 0, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade a notebook, print the report, and return the exit status."""
    chosen = _parser().parse_args(arguments)
    from course_utils.grade import GradeError, grade
    from course_utils.runtime import SetupError

    try:
        _check_place(chosen.json)
        limit = {} if chosen.time_limit is None else {"time_limit": chosen.time_limit}
        report = grade(chosen.notebook, chosen.lesson, **limit)
    except (GradeError, SetupError) as error:
        return _refuse(str(error))
    if chosen.json is not None:
        try:
            report.write(chosen.json)
        except OSError as error:
            return _refuse(f"{chosen.json} cannot be written: {error.strerror}")
    with contextlib.suppress(AttributeError):  # a stream that is not text of its own
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    print(report.text, end="")
    return GRADED


def _check_place(path: Path | None) -> None:
    """Say before the work is done that its result would have no place."""
    from course_utils.grade import GradeError

    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise GradeError(f"{path} cannot be written: name a file in a folder that is there")


def _refuse(why: str) -> int:
    print(f"could not be graded: {' '.join(why.split())}", file=sys.stderr)
    return NOT_GRADED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.grade",
        description="Grade an exercise notebook, also one that lost nbgrader's metadata.",
    )
    parser.add_argument("notebook", type=Path, help="the notebook that was handed in")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write Gradescope's JSON there")
    parser.add_argument("--lesson", metavar="NN", help="the lesson, if it cannot be told")
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="SECONDS",
        help="for all cells together, and for each answer (60)",
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


if __name__ == "__main__":
    # Before torch is imported: forks compute on the CPU, on one thread.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    sys.exit(main())
