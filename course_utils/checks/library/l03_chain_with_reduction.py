"""chain_with_reduction: how few kernels, how few trips, if everyone needs the maximum?"""

from __future__ import annotations

from course_utils.checks.library.l03_best_partition import Graph
from course_utils.checks.question_task import Choice, Number, QuestionTask, Slip

OPS = {
    "scale": ("x",),
    "gelu": ("scale",),
    "max": ("gelu",),
    "divide": ("gelu", "max"),
    "tanh": ("divide",),
}
WHOLE = Graph(inputs=("x",), ops=OPS, outputs=("tanh",), totals=("max",))
# A row's maximum is one number for many, and never leaves the program that has the row.
ROWS = Graph(inputs=("x",), ops={**OPS, "divide": ("gelu",)}, outputs=("tanh",))
ONE_EACH = [[op] for op in OPS]


TASK = QuestionTask(
    "chain_with_reduction",
    "03",
    "A reduction in the middle",
    minutes=10,
    difficulty=2,
    place=3,
    points=3,
    hints=(
        "Ask of every op: what must be known before its first result can be written? And of every "
        "tensor: can it wait on the chip?",
        "The largest of 2²⁸ numbers is known after all have been read, and no kernel can hold "
        "them meanwhile. A row of 1024 numbers fits into the registers of one program.",
        "Over everything, the first kernel need store nothing but the maximum: how does the second "
        "come by h with the fewest trips? Over rows, everything that a row's results need is in "
        "registers at once: list what still has to come in and go out.",
    ),
    questions=(
        Number(
            "kernels",
            "fewest kernels, maximum over all",
            truth=lambda: WHOLE.fewest_kernels,
            unit="kernels",
            slips=(
                Slip(
                    "kernels_one_kernel",
                    1,
                    "one kernel cannot do it: the maximum is known when the last number has been "
                    "read, and the first result needs it already",
                ),
                Slip(
                    "kernels_max_alone",
                    3,
                    "the maximum needs no kernel of its own: the kernel that computes h has every "
                    "number in a register once",
                ),
                Slip(
                    "kernels_eager",
                    len(OPS),
                    "that is a kernel for each op; scale and gelu can share one",
                ),
                Slip(
                    "kernels_one_saved",
                    len(OPS) - 1,
                    "more than two ops can share a kernel: only the maximum makes one kernel end "
                    "and another begin",
                ),
            ),
        ),
        Number(
            "trips",
            "fewest trips over x, maximum over all",
            truth=lambda: WHOLE.fewest_trips,
            unit="trips",
            slips=(
                Slip(
                    "trips_one_kernel",
                    2,
                    "that would be one kernel, x in and y out; the maximum stands in its way",
                ),
                Slip(
                    "trips_stored",
                    4,
                    "possible: h is written by the first kernel and read by the second. But what "
                    "the second kernel needs can be had with one trip less",
                ),
                Slip(
                    "trips_max_alone",
                    5,
                    "possible: h is written, and read once for the maximum and once for the rest. "
                    "But the kernel that computes h can take the maximum as it goes, and h need "
                    "not be stored at all",
                ),
                Slip(
                    "trips_eager",
                    lambda: WHOLE.trips(ONE_EACH),
                    "those are the trips of PyTorch's ops, one after the other",
                ),
            ),
        ),
        Number(
            "row_trips",
            "fewest trips over x, maximum of each row of 1024",
            truth=lambda: ROWS.fewest_trips,
            unit="trips",
            slips=(
                Slip(
                    "row_trips_read_twice",
                    3,
                    "a row of 1024 numbers fits into the registers of one program, which need not "
                    "read it again",
                ),
                Slip(
                    "row_trips_stored",
                    4,
                    "a row of 1024 numbers fits into the registers of one program: h need not be "
                    "stored, and x need not be read again",
                ),
                Slip("row_trips_one_way", 1, "that is x in alone, or y out alone; both move"),
                Slip(
                    "row_trips_eager",
                    lambda: WHOLE.trips(ONE_EACH),
                    "those are the trips of PyTorch's ops, one after the other",
                ),
            ),
        ),
        Choice(
            "store",
            "when is storing h faster than computing it again",
            options={
                "A": "never, since it makes one trip more",
                "B": "if computing h takes longer than that trip",
                "C": "if x is very large",
                "D": "if the maximum is asked for as well as y",
            },
            right="B",
            slips=(
                Slip(
                    "store_never",
                    "A",
                    "fewer trips are faster only as long as the arithmetic hides behind them: a "
                    "costly function shows, as the second and the third GELU of the lesson's long "
                    "chains do",
                ),
                Slip(
                    "store_large",
                    "C",
                    "arithmetic and trips both grow with x, so that which of them takes longer "
                    "stays the same",
                ),
                Slip(
                    "store_maximum_too",
                    "D",
                    "the maximum is one number, and is stored in any case: the second kernel "
                    "reads it",
                ),
            ),
        ),
    ),
)
