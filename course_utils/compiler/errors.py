"""What is wrong when a kernel does not compile: the useful line, where, and what to do about it."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

# What the compiler says (a pattern) and what to do. A name in the pattern can be used in the
# advice. The first that matches is taken. The tests provoke every one of them.
ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"range must be a power of 2",
        "The sides of a tile are powers of two. Take the next one, triton.next_power_of_2(n), and "
        "mask off the lanes from n on.",
    ),
    (
        r"arguments must be of type tl\.constexpr|Shape element \d+ must have type `constexpr",
        "The size of a tile has to be known when the kernel is compiled. Annotate the parameter "
        "with tl.constexpr (and pass an int).",
    ),
    (
        r"numel \(\d+\) exceeds triton maximum tensor numel \((?P<most>\d+)\)",
        "A tile has at most {most} elements. Take a smaller one, and more programs or a loop.",
    ),
    (
        r"Input shapes should have M >= (?P<m>\d+), N >= (?P<n>\d+) and K >= (?P<k>\d+)",
        "tl.dot multiplies an M x K tile by a K x N one, and K is too small here. Take K = {k} and "
        "fill up with zeros (a mask and other=0.0), or do without tl.dot: "
        "tl.sum(a[:, :, None] * b[None, :, :], axis=1).",
    ),
    (
        r"Both operands must be same dtype",
        "Convert one of them before tl.dot, such as b.to(a.dtype).",
    ),
    (
        r"Cannot access global variable (?P<name>\w+)",
        "A kernel sees no global numbers, since it would not notice when they change. Pass {name} "
        "as an argument, or make it a constant of the compiler: {name} = tl.constexpr(...).",
    ),
    (
        r"\w+'? is not defined",
        "Define the name above in the kernel, or make it an argument; mind the spelling.",
    ),
    (
        r"Cannot make_shape_compatible: incompatible dimensions at index (?P<axis>\d+)",
        "Tiles are combined element by element, and an axis of size 1 is repeated. Make axis {axis}"
        " equal, or add an axis: rows[:, None] and columns[None, :].",
    ),
    (
        r"Loop-carried variable (?P<name>\w+)",
        "{name} keeps its dtype and shape from one round of the loop to the next. Start it with "
        "those that it gets in the loop, and convert with .to(...) only after it.",
    ),
    (
        r"Boolean value of Tensor with more than one value",
        "An `if` decides for a whole program. To choose element by element, use "
        "tl.where(condition, a, b), or a mask.",
    ),
    (
        r"Unsupported ptr type|should be a pointer|cannot add pointers together",
        "tl.load and tl.store take addresses: a pointer argument plus offsets, such as x_ptr + "
        "offsets. Arithmetic is done with what tl.load returns.",
    ),
    (
        r"unsupported tensor index",
        "A tile lies spread over many threads, so it has no element to pick. Reduce it (tl.sum, "
        "tl.max), or load just the element that you need.",
    ),
    (
        r"Unsupported function referenced",
        "A kernel can call only what is in triton.language and functions under @triton.jit. For a "
        "function of PyTorch or NumPy take Triton's own, such as tl.exp; put @triton.jit above a "
        "function of yours.",
    ),
    (
        r"module 'triton\.language' has no attribute '(?P<name>\w+)'",
        "Triton has no tl.{name}. More functions are in triton.language.extra.libdevice, such as "
        "libdevice.tanh; others can be written with tl.exp and the like.",
    ),
    (
        r"'tensor' object has no attribute '(?P<name>\w+)'",
        "Tiles are not PyTorch tensors, and have no .{name}. Look for a function in triton."
        "language, such as tl.sum(x, axis=0).",
    ),
    (
        r"type fp8\w+ not supported in this architecture",
        "8-bit floats of this kind need compute capability 8.9 or more (L4, RTX 4090, H100).",
    ),
    (
        r"unsupported AST node type: (?:Break|Continue)",
        "A loop in a kernel runs all its rounds. Bound it beforehand, use `while`, or let a mask "
        "make the other rounds do nothing.",
    ),
    (
        r"`return` statements inside `while` or `for`",
        "Leave a kernel only outside of loops; let a mask make the rest do nothing.",
    ),
    (
        r"unsupported AST node type|tuple comprehensions",
        "Kernels are written in a part of Python: tiles, numbers, if, for, while, calls of "
        "@triton.jit functions. Imports, lists, dictionaries, try and with stay outside.",
    ),
    (
        r"Keyword argument (?P<name>\w+) was specified but unrecognised",
        "{name} is neither a parameter of the kernel nor an option of the compiler (num_warps, "
        "num_stages, num_ctas, maxnreg). Mind the spelling.",
    ),
    (
        r"num_warps must be a power of 2",
        "Give num_warps=1, 2, 4, 8, 16 or 32.",
    ),
    (
        r"'arith\.(?:extf|\w+fp\w*)' op operand #\d must be floating-point-like, but got "
        r"'tensor<[\dx]*xi8",
        "Below compute capability 8.0 (the T4) Triton cannot multiply integers with tl.dot. "
        "Convert the tiles to float16 before (exact for 8-bit integers), or choose another GPU.",
    ),
    (
        r"num_ctas > 1 requires",
        "Clusters of programs need compute capability 9.0. Leave num_ctas out.",
    ),
)
_ABORT = (
    "The compiler itself failed, which is a defect of Triton, not of the course. Simplify the "
    "kernel until it passes (fewer dimensions, another tile size or num_warps), or try another "
    "version of Triton."
)
_TIME = (
    "Mostly a tile is too large for its warps, or a loop is unrolled too often (tl.static_range). "
    "Take a smaller tile or more warps, or allow more time: compile_for(..., time_limit=...)."
)


class CompileError(Exception):
    """A kernel does not compile.

    Attributes:
        kernel: its name.
        gpu: the name of the GPU that it was compiled for.
        message: what the compiler says, one line.
        where: the lines of the source that it means, with a mark under the place; may be empty.
        advice: what to do; may be empty.
        details: all that the compiler said.
        constants: the kernel's constexpr parameters, such as tile sizes.
    """

    def __init__(
        self, kernel: str, gpu: str, message: str, where: str, advice: str, details: str
    ) -> None:
        super().__init__(kernel, gpu, message, where, advice, details)
        self.kernel = kernel
        self.gpu = gpu
        self.message = message
        self.where = where
        self.advice = advice
        self.details = details
        self.constants: Mapping[str, Any] = {}

    def __str__(self) -> str:
        parts = [f"{self.kernel} does not compile for the {self.gpu}: {self.message}"]
        if self.where:
            parts.append(self.where)
        if self.advice:
            parts.append(f"What to do: {self.advice}")
        return "\n".join(parts)


def refused(
    kernel: str, gpu: str, source: str, errors: list[tuple[str, str]], printed: str
) -> CompileError:
    """Make the error of a compilation that raised `errors` (type, text), the deepest last.

    ``source`` is the text of the kernel and its helpers: places elsewhere are not shown.
    """
    details = "\n\n".join([f"{kind}: {text}" for kind, text in errors] + [printed]).strip()
    message, where = _distil(errors, printed, source)
    return CompileError(kernel, gpu, message, where, advice(message), details)


def died(kernel: str, gpu: str, status: int, printed: str) -> CompileError:
    """Make the error of a compilation whose process ended with an exit status."""
    what = f"exit status {status}"
    if status < 0:
        try:
            what = signal.Signals(-status).name
        except ValueError:
            what = f"signal {-status}"
    message, where = _distil([("Abort", f"the compiler ended with {what}")], printed, "")
    known = advice(message)
    if what not in message:
        message = f"{message} (the compiler ended with {what})"
    return CompileError(kernel, gpu, message, where, known or _ABORT, printed.strip())


def timed_out(kernel: str, gpu: str, seconds: float) -> CompileError:
    """Make the error of a compilation that was stopped."""
    message = f"the compiler was stopped after {seconds:g} s"
    return CompileError(kernel, gpu, message, "", _TIME, "")


def advice(message: str) -> str:
    """Return what to do about a message of the compiler; empty if it is not a known one."""
    for pattern, text in ADVICE:
        match = re.search(pattern, message)
        if match:
            return text.format(**{key: value or "" for key, value in match.groupdict().items()})
    return ""


# "at 2:6:", the source up to the line, a mark under the column, the message.
_TRITON = re.compile(
    r"\A\s*at (\d+):(\d+):\n(?P<source>.*\n)(?P<mark>[ \t]*\^)(?P<text>\n.*|\Z)", re.S
)
# "/tmp/0_kernel.py:4:47: error: text", the line, a mark.
_MLIR = re.compile(r"^\S+?:\d+:\d+: error: (?P<text>.*)\n(?P<source>.*)\n(?P<mark>[ \t]*\^)$", re.M)
_LINES = (
    r"^\S+:\d+:\d+: error: (.*)$",
    r"^LLVM ERROR: (.*)$",
    r"^.*Assertion [`'].*$",
    r"^.*UNREACHABLE executed.*$",
    r"^ptxas.*?(?:error|fatal)\s*: (.*)$",
)
_LONG = 200  # characters, above which only the first sentence is kept
_WRAPPED = re.compile(r"\A\w*(?:Error|Exception)\((['\"])(.*)\1,?\)\Z", re.S)


def _distil(errors: list[tuple[str, str]], printed: str, source: str) -> tuple[str, str]:
    """Return the one useful line of all that was said, and the source lines that it is about."""
    where = ""
    text = ""
    # A helper's error comes inside its caller's, so the deepest knows best; but a place in Triton's
    # own library (tl.zeros, tl.sum) helps nobody.
    for _, said in reversed(errors):
        match = _TRITON.match(said)
        if match:
            if not where and match["source"].rstrip("\n").split("\n")[-1].strip() in source:
                where = _place(match)
            text = text or match["text"].strip()
        text = text or said.strip()
    if errors[-1][0] in ("RuntimeError", "Abort", "PTXASError") and not where:
        everything = f"{printed}\n{text}"
        match = _MLIR.search(everything)
        if match:
            return _one_line(match["text"]), _place(match)
        for pattern in _LINES:
            line = re.search(pattern, everything, re.M)
            if line:
                return _one_line(line[line.lastindex or 0]), ""
    return _one_line(text) or errors[-1][0], where


def _place(match: re.Match[str]) -> str:
    lines = match["source"].rstrip("\n").split("\n")
    return f"    {lines[-1]}\n    {match['mark']}"


def _one_line(text: str) -> str:
    wrapped = _WRAPPED.match(text.strip())
    text = wrapped[2] if wrapped else text
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    line = lines[0] if lines else ""
    line = re.sub(r", #ttg\.\w+<\{.*\}>", "", line)  # how a tile is laid out helps nobody here
    if len(line) > _LONG:
        line = line.partition(". ")[0].removesuffix(".") + "."
    quoted = re.fullmatch(r"(['\"])([^'\"]*)\1", line)  # a KeyError's text
    return quoted[2] if quoted else line


def in_words(values: Any) -> str:
    """Join names: "a", "a and b", "a, b and c"."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last
