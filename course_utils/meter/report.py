"""Turn launches into tables: plain text for terminals, HTML for notebooks.

Bytes are written in decimal units (1 MB = 10^6 bytes), as memory bandwidth is.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from course_utils.meter.traffic import ArgumentTraffic, Launch, Traffic, nbytes_of
from course_utils.meter.warps import OPERATIONS, GlobalRequests, SharedRequests

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_HEAD = ("launch", "reads", "writes", "trips", "FLOPs", "FLOP/B")
_MOST_ROWS = 60  # a loop of a thousand launches is still a table one can read
_ARGUMENT_HEAD = ("launch", "argument", "reads", "writes", "trips", "reuse", "masked lanes")
_WARP_HEAD = ("launch", "array", "access", "requests", "sectors/request", "useful", "bank conflict")


def format_bytes(count: float) -> str:
    """Write a number of bytes with three to four significant digits: 1.074 GB."""
    return _scaled(count, 1000, _UNITS, " ")


def format_flops(count: float) -> str:
    """Write a number of FLOPs in thousands (k), millions (M), ...: 5.369 G."""
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P"), " ").rstrip()


def _scaled(count: float, base: int, units: Sequence[str], gap: str) -> str:
    size, power = float(count), 0
    while abs(size) >= base and power < len(units) - 1:
        size, power = size / base, power + 1
    digits = f"{size:.0f}" if power == 0 else f"{size:.4g}"
    return f"{digits}{gap}{units[power]}"


def reference_of(launches: Sequence[Launch], reference: Any = None) -> tuple[int, str]:
    """Choose what one trip is: the tensor given, or the largest tensor that was touched.

    Returns:
        Its bytes, and a description of it.
    """
    if reference is not None:
        size = nbytes_of(reference)
        return size, f"one trip = {format_bytes(size)}"
    arguments = [a for launch in launches for a in launch.arguments.values()]
    size = max((a.nbytes for a in arguments), default=0)
    return size, f"one trip = {format_bytes(size)}, the largest tensor touched" if size else ""


def summary_rows(launches: Sequence[Launch], size: int) -> list[tuple[str, ...]]:
    """Give one row a launch: name, reads, writes, trips, FLOPs, intensity."""
    return [(launch.name, *_cells(launch.traffic, size)) for launch in launches]


def _shortened(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leave out the middle of a long table, and say how much."""
    left_out = len(rows) - _MOST_ROWS
    if left_out <= 0:
        return rows
    gap = (f"... {left_out} more rows", *("" for _ in rows[0][1:]))
    return [*rows[: _MOST_ROWS - 10], gap, *rows[-10:]]


def _cells(traffic: Traffic, size: int) -> tuple[str, ...]:
    trips = f"{traffic.trips(size):.2f}" if size else "-"
    intensity = "inf" if math.isinf(traffic.intensity) else f"{traffic.intensity:.4g}"
    return (
        format_bytes(traffic.bytes_read),
        format_bytes(traffic.bytes_written),
        trips,
        format_flops(traffic.flops),
        intensity,
    )


def _argument_rows(launches: Sequence[Launch], size: int) -> list[tuple[str, ...]]:
    rows = []
    for launch in launches:
        name = launch.name
        for argument, traffic in launch.arguments.items():
            if traffic.bytes:
                rows.append((name, argument, *_argument_cells(traffic, size)))
                name = ""  # once per launch
    return rows


def _argument_cells(a: ArgumentTraffic, size: int) -> tuple[str, ...]:
    masked = a.masked_lanes_read + a.masked_lanes_written
    return (
        format_bytes(a.bytes_read),
        format_bytes(a.bytes_written),
        f"{a.trips(size):.2f}" if size else "-",
        f"{a.reuse:.4g}",
        str(masked) if masked else "",
    )


def _warp_rows(launches: Sequence[Launch]) -> list[tuple[str, ...]]:
    rows = []
    for launch in launches:
        name = launch.name
        memories = (launch.warps.global_memory, launch.warps.shared_memory) if launch.warps else ()
        for array, access in (item for memory in memories for item in memory.items()):
            for operation in OPERATIONS:
                requests = getattr(access, operation)
                if requests.requests:
                    rows.append((name, array, operation, *_warp_cells(requests)))
                    name = ""  # once per launch
    return rows


def _warp_cells(r: GlobalRequests | SharedRequests) -> tuple[str, ...]:
    if isinstance(r, GlobalRequests):
        return str(r.requests), f"{r.sectors_per_request:.4g}", f"{r.useful_share:.0%}", ""
    worst = f" (worst {r.worst})" if r.worst != r.conflict_degree else ""
    return str(r.requests), "", "", f"{r.conflict_degree:.4g}{worst}"


def _branch_remarks(launches: Sequence[Launch]) -> list[str]:
    return [
        f"{launch.name}: {branch.divergent} of {branch.executions} times lanes of a warp went both "
        f"ways at `{branch.source}`"
        for launch in launches
        for branch in (launch.warps.branches if launch.warps else ())
        if branch.divergent
    ]


def to_text(
    launches: Sequence[Launch],
    total: Traffic,
    reference: Any = None,
    by_argument: bool = False,
    by_warp: bool = False,
) -> str:
    """Write the report as aligned plain text."""
    if not launches:
        return "Nothing moved: no launch was counted."
    if by_warp:
        rows = _shortened(_warp_rows(launches))
        if not rows:
            return "No warp was seen: that takes a CUDA kernel."
        return "\n".join([*_aligned([_WARP_HEAD, *rows], left=3), *_branch_remarks(launches)])
    size, meaning = reference_of(launches, reference)
    if by_argument:
        lines = _aligned([_ARGUMENT_HEAD, *_shortened(_argument_rows(launches, size))], left=2)
    else:
        rows = _shortened(summary_rows(launches, size))
        lines = _aligned([_HEAD, *rows, _total_row(launches, total, size)], left=1)
        lines.insert(-1, lines[1])
    return "\n".join([*lines, meaning, *_remarks(launches)])


def _aligned(rows: list[tuple[str, ...]], left: int) -> list[str]:
    """Write rows as lines, a rule below the first; as many columns as `left` says flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return lines


def _total_row(launches: Sequence[Launch], total: Traffic, size: int) -> tuple[str, ...]:
    count = len(launches)
    return (f"{count} launch{'es' if count != 1 else ''}", *_cells(total, size))


def _remarks(launches: Sequence[Launch]) -> list[str]:
    notes = dict.fromkeys(note for launch in launches for note in launch.notes)
    findings = [f"[{f.kind}] {f}" for launch in launches for f in launch.findings]
    return [f"note: {note}" for note in notes] + findings


def to_html(launches: Sequence[Launch], total: Traffic, reference: Any = None) -> str:
    """Write the report as a table, with the per-argument view folded below it."""
    if not launches:
        return "<p>Nothing moved: no launch was counted.</p>"
    size, meaning = reference_of(launches, reference)
    rows = _shortened(summary_rows(launches, size))
    parts = [
        _table(_HEAD, rows, _total_row(launches, total, size), caption=f"Counted; {meaning}"),
        "<details><summary>By argument</summary>",
        _table(_ARGUMENT_HEAD, _shortened(_argument_rows(launches, size))),
        "</details>",
    ]
    warp_rows = _shortened(_warp_rows(launches))
    if warp_rows:
        parts += [
            "<details><summary>By warp</summary>",
            _table(_WARP_HEAD, warp_rows),
            *(f"<p>{html.escape(remark)}</p>" for remark in _branch_remarks(launches)),
            "</details>",
        ]
    parts += [f"<p>{html.escape(remark)}</p>" for remark in _remarks(launches)]
    return "\n".join(parts)


def _table(head, rows, foot=None, caption: str = "") -> str:
    def line(cells, tag):
        return "<tr>" + "".join(
            f'<{tag} style="text-align:{"left" if i == 0 else "right"}">{html.escape(c)}</{tag}>'
            for i, c in enumerate(cells)
        ) + "</tr>"  # fmt: skip

    body = "\n".join(line(row, "td") for row in rows)
    footer = f"<tfoot>{line(foot, 'th')}</tfoot>" if foot else ""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead>{line(head, 'th')}</thead><tbody>{body}</tbody>{footer}</table>"
