"""The card that shows a verdict: plain text for terminals and files, HTML for notebooks."""

from __future__ import annotations

import base64
import html
import re
import textwrap
from collections.abc import Iterator

import course_utils
from course_utils import gpus, models, records
from course_utils.checks.verdict import NOT_ATTEMPTED, PASSED, Reached, Step, Verdict, Where

_WIDTH = 96
_MARKS = {True: "✓", False: "✗", None: "·"}
_WORDS = {True: "passed", False: "failed", None: "not reached"}
# The border of a card, beside which the state always stands in words.
_COLOURS = {PASSED: "#2e7d32", NOT_ATTEMPTED: "#757575"}
_FAILED_COLOUR = "#c62828"
_MOST_PRINTED = 2000
_CODE = ("Look at", "Your code printed")


def to_text(verdict: Verdict) -> str:
    """Write a verdict as plain text."""
    lines = [heading(verdict)]
    lines += [f"  {_MARKS[step.passed]} {_step(step)}" for step in verdict.steps]
    for label, words in _parts(verdict):
        body = words.splitlines() if label in _CODE else _wrapped(words)
        lines += [f"{label}:", *(f"    {line}" for line in body)]
    return "\n".join(lines)


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH - 4, break_on_hyphens=False)


def to_html(verdict: Verdict) -> str:
    """Write a verdict as HTML, for a notebook."""
    colour = _COLOURS.get(verdict.state, _FAILED_COLOUR)
    steps = "".join(
        '<li><span aria-hidden="true" style="display:inline-block;width:1.2em;text-align:center">'
        f"{_MARKS[step.passed]}</span> "
        f'<span style="position:absolute;clip-path:inset(50%)">{_WORDS[step.passed]}: </span>'
        f"{html.escape(_step(step))}</li>"
        for step in verdict.steps
    )
    rows = "".join(
        '<tr><th scope="row" style="text-align:left;vertical-align:top;white-space:nowrap;'
        'padding-right:1em">'
        f'{html.escape(label)}</th><td style="text-align:left">{_cell(label, words)}</td></tr>'
        for label, words in _parts(verdict)
    )
    picture = _picture(verdict.task, verdict.reached) if verdict.reached else ""
    return (
        f'<div style="border-left:4px solid {colour};padding:0 0.8em;position:relative">'
        f"<p><strong>{html.escape(heading(verdict))}</strong></p>"
        + (f'<ul style="list-style:none;padding-left:0">{steps}</ul>' if steps else "")
        + (f"<table>{rows}</table>" if rows else "")
        + picture
        + "</div>"
    )


def heading(verdict: Verdict) -> str:
    """Write the first line of a card: the task, and how it stands."""
    if verdict.state == NOT_ATTEMPTED:
        return f"{verdict.task}: {NOT_ATTEMPTED}"
    points = f"{verdict.points} of {verdict.points_possible} points" if verdict.steps else ""
    seconds = f"{verdict.seconds:.1f} s" if verdict.seconds else ""
    inside = ", ".join(part for part in (points, seconds) if part)
    return f"{verdict.task}: {verdict.state}{f' ({inside})' if inside else ''}"


def _step(step: Step) -> str:
    return f"{step.name}: {step.detail}" if step.detail else step.name


def _parts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Give what a card says beside its steps: a label, and words or lines."""
    if verdict.problem:
        yield "What is wrong", _sentence(verdict.problem)
    if verdict.where is not None:
        yield "Where", _where(verdict.where)
    if verdict.likely:
        yield "Likely mistake", _sentence(verdict.likely)
    if verdict.line:
        yield "Look at", verdict.line
    if verdict.hint:
        yield "Think about", _sentence(verdict.hint)
    if verdict.reached is not None:
        yield "Reached", _reached(verdict.reached)
    for note in verdict.notes:
        yield "Note", _sentence(note)
    if verdict.printed.strip():
        yield "Your code printed", _shortened(verdict.printed.strip())


def _where(where: Where) -> str:
    words = f"{where.element} is {where.got}, and should be {where.expected}"
    if where.program is None:
        return f"{words}; no kernel stored there"
    lane = f"lane {where.lane}" if where.lane else "its only lane"
    return f"{words}; stored by {lane} of program {where.program}"


def _reached(reached: Reached) -> str:
    words = (
        f"{reached.nbytes:,} bytes asked for ({reached.case}), {reached.trips:.2f} trips; "
        f"{reached.budget:,} are allowed; {reached.intensity:.3g} FLOP/byte"
    )
    return f"{words}. {reached.measured or _roof(reached)}"


def _roof(reached: Reached) -> str:
    """Say where a kernel stands on the roofline of a GPU that is not here."""
    gpu = _gpu()
    peak, bandwidth = gpu.peak["fp32"], gpu.bandwidth
    limit = models.bound(reached.intensity, peak, bandwidth)
    least = models.roofline_time(reached.flops, reached.nbytes, peak, bandwidth)
    what = "bandwidth" if limit == "memory" else "arithmetic"
    return f"On one {gpu.name}, {what} sets the limit: no less than {least * 1e6:.3g} µs"


def _picture(task: str, reached: Reached) -> str:
    """Draw the roofline with the kernel on it, as an image for HTML."""
    from course_utils import plots

    kind = "predicted" if reached.rate is None else "measured"
    point = plots.Point(task, reached.intensity, reached.rate, kind, "ours")
    figure = plots.roofline(_gpu(), "fp32", [point])
    data = base64.b64encode(plots.png(figure)).decode("ascii")
    words = f"Where {task} can be at best" if reached.rate is None else f"What {task} reached here"
    caption = html.escape(f"{words}: {reached.intensity:.3g} FLOP per byte.")
    return (
        f'<img src="data:image/png;base64,{data}" alt="{caption}" style="max-width:100%;width:'
        f'{figure.get_size_inches()[0] * 96:.0f}px"><p>{caption}</p>'
    )


def _gpu() -> gpus.GPU:
    """The GPU of this machine, where the table lists it; else the one that the records are of."""
    return course_utils.machine().gpu or gpus.gpu(records.REFERENCE)


def _sentence(words: str) -> str:
    words = words.strip()
    # Not the name of a variable, such as x or out_ptr; "a" is an article where a noun follows.
    if re.match(r"[a-z]{2,}\b|a (?!is\b)[^\W_]", words):
        words = words[0].upper() + words[1:]
    return words if words.endswith((".", "?", "!", ":", "`")) else words + "."


def _shortened(text: str) -> str:
    if len(text) <= _MOST_PRINTED:
        return text
    half = _MOST_PRINTED // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"


def _cell(label: str, words: str) -> str:
    escaped = html.escape(words, quote=False)
    if label in _CODE:
        return f'<pre style="white-space:pre-wrap;margin:0">{escaped}</pre>'
    return re.sub("`([^`]+)`", r"<code>\1</code>", escaped)
