"""The fourteen lessons, in order: the one list from which the course map and README are made.

Pure data: importing this module imports nothing else of the course.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lesson:
    """One lesson of the course.

    Attributes:
        number: 0 to 13; the order of the course.
        name: the part of the notebook's file name after the number.
        title: the lesson's title, for people.
        question: the question that the lesson answers.
        minutes: reading and running time, exercises not included; 30 to 90.
        prerequisites: numbers of the lessons to have done before this one; always smaller.
    """

    number: int
    name: str
    title: str
    question: str
    minutes: int
    prerequisites: tuple[int, ...]

    @property
    def slug(self) -> str:
        """The notebook's file name without its suffix, such as `03_fusion`."""
        return f"{self.number:02d}_{self.name}"

    @property
    def notebook(self) -> str:
        """The notebook's file name, such as `03_fusion.ipynb`."""
        return f"{self.slug}.ipynb"

    @property
    def exercises(self) -> str:
        """The notebook of its exercises, from the course's folder, whether it is there or not."""
        return f"exercises/{self.slug}/{self.notebook}"


LESSONS: tuple[Lesson, ...] = (
    Lesson(
        0,
        "start_here",
        "Start here",
        "Is my machine ready, and how do I work through this?",
        30,
        (),
    ),
    Lesson(
        1,
        "from_op_to_kernel",
        "From op to kernel",
        "What does one line of PyTorch make the GPU do?",
        45,
        (0,),
    ),
    Lesson(
        2,
        "roofline",
        "The roofline",
        "How fast could it possibly be?",
        45,
        (1,),
    ),
    Lesson(
        3,
        "fusion",
        "Fusion",
        "What is the highest-leverage move?",
        45,
        (1, 2),
    ),
    Lesson(
        4,
        "first_triton_kernels",
        "First Triton kernels",
        "How do I write the fused kernel myself?",
        70,
        (3,),
    ),
    Lesson(
        5,
        "when_kernels_go_wrong",
        "When kernels go wrong",
        "How do I find out why it is wrong?",
        90,
        (4,),
    ),
    Lesson(
        6,
        "reductions",
        "Reductions",
        "What if each output needs a whole row?",
        60,
        (4,),
    ),
    Lesson(
        7,
        "cuda_execution_model",
        "The CUDA execution model",
        "What is the machine really doing?",
        60,
        (2,),
    ),
    Lesson(
        8,
        "tiled_matmul",
        "Tiled matrix multiplication",
        "How does a tile turn bandwidth into arithmetic?",
        60,
        (7,),
    ),
    Lesson(
        9,
        "triton_matmul",
        "Matrix multiplication in Triton",
        "How close to cuBLAS do I get, in how little code?",
        60,
        (4, 8),
    ),
    Lesson(
        10,
        "online_softmax",
        "Online softmax",
        "Can a softmax be computed without seeing the row?",
        45,
        (6,),
    ),
    Lesson(
        11,
        "flash_attention",
        "FlashAttention",
        "How does attention never write its score matrix?",
        60,
        (9, 10),
    ),
    Lesson(
        12,
        "flash_attention_2",
        "FlashAttention-2",
        "How is it kept busy, and trained through?",
        60,
        (11,),
    ),
    Lesson(
        13,
        "when_to_stop",
        "When to stop",
        "Which kernel should I not write?",
        45,
        (6, 9, 12),
    ),
)


def lesson(which: int | str) -> Lesson:
    """The lesson with this number (3, "3", "03") or name ("fusion", "03_fusion").

    Raises:
        KeyError: there is no such lesson; the message lists those there are.
    """
    text = str(which).removesuffix(".ipynb")
    for entry in LESSONS:
        if text in (str(entry.number), f"{entry.number:02d}", entry.name, entry.slug):
            return entry
    known = ", ".join(entry.slug for entry in LESSONS)
    raise KeyError(f"there is no lesson {which!r}; the lessons are {known}")
