"""name_the_mistake: from a symptom to what causes it."""

from __future__ import annotations

from course_utils.checks.question_task import Choice, QuestionTask, Slip

# The mistakes, and what each looks like: the answer to whoever chooses it wrongly.
MISTAKES = {
    "no mask": (
        "no mask at the tail",
        "without a mask, lanes beyond the end read or change what lies behind the tensor; "
        "results inside it stay right",
    ),
    "short grid": (
        "a grid that is one program short",
        "a grid that is too short leaves the end of the result unwritten, for some sizes only",
    ),
    "two writers": (
        "two programs store to one place",
        "two writers give another result in each run on a GPU, and the same one in the interpreter",
    ),
    "no other": (
        "a masked load without `other` feeds a reduction",
        "masked lanes spoil a reduction's result, at widths that are no power of two",
    ),
    "narrow sum": (
        "the accumulator has 16 bits",
        "a sum in 16 bits gets worse as rows get longer, and is right for short ones",
    ),
    "32-bit offset": (
        "offsets of 32 bits",
        "32-bit offsets are right up to 2³¹ elements, and reach in front of the tensor beyond",
    ),
    "tf32": (
        "a product in tf32",
        "tf32 shows on a GPU's tensor cores alone, as an error of almost 10⁻³ in float32 products",
    ),
    "global": (
        "a Python global in the kernel",
        "a global number is accepted by the interpreter; the compiler refuses it with a message",
    ),
    "wrong stride": (
        "the stride of another tensor",
        "a wrong stride is right for square matrices, and wrong for all others",
    ),
}

SYMPTOMS = {
    "a": ("1024 numbers right, 4096 right, 1500 right up to number 1023", "short grid"),
    "b": ("every test passes; in a training run, now and then, another layer's weights change",
          "no mask"),
    "c": ("right for 64 by 64 and 512 by 512, wrong for 64 by 512", "wrong stride"),
    "d": ("the laptop says yes, the cluster's job ends before its first launch", "global"),
    "e": ("a histogram: right here, on the GPU some counts are missing, each time others",
          "two writers"),
    "f": ("a row's minimum is right for 128 columns, and 0 for 100 columns of positive numbers",
          "no other"),
    "g": ("a kernel adds up 512 probabilities to 1.000, and 60,000 to 0.87", "narrow sum"),
    "h": ("a loss in float32 agrees with PyTorch to six digits here, and to three on an A100",
          "tf32"),
}  # fmt: skip


def _question(letter: str) -> Choice:
    symptom, right = SYMPTOMS[letter]
    slips = [
        Slip(
            f"{letter}_{name.replace(' ', '_').replace('-', '_')}",
            name,
            f'"{name}" would look different: {looks}',
        )
        for name, (_, looks) in MISTAKES.items()
        if name != right
    ]
    options = {name: words for name, (words, _) in MISTAKES.items()}
    return Choice(letter, symptom, options=options, right=right, slips=slips)


TASK = QuestionTask(
    "name_the_mistake",
    "05",
    "Name the mistake",
    minutes=10,
    difficulty=2,
    place=6,
    points=3,
    hints=(
        "Ask of each symptom: for which sizes does it show, and on which machine?",
        "Wrong on a GPU alone: something that the interpreter does one after the other, exactly, "
        "or without a compiler. Wrong at some sizes alone: an edge.",
        "Two of them are about the end of a tensor (a, b), three about GPU and interpreter "
        "(d, e, h), and three about shapes and lengths (c, f, g).",
    ),
    questions=[_question(letter) for letter in SYMPTOMS],
)
