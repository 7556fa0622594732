"""The report: a table of launches, one of arguments, as text and as HTML."""

import re
from html.parser import HTMLParser

import pytest
import torch
from meter_kernels import add, copy

from course_utils.examples import chain
from course_utils.meter import ArgumentTraffic, Finding, Launch, Meter, Traffic
from course_utils.meter.report import format_bytes, format_flops, reference_of, to_html, to_text


@pytest.fixture
def chained() -> tuple[Meter, torch.Tensor]:
    x = torch.ones(1_000_000, device="meta")
    with Meter() as meter:
        chain(x)
    return meter, x


def table_of(text: str) -> list[list[str]]:
    """Split a text table at its wide gaps, rules left out."""
    lines = [line for line in text.splitlines() if not set(line) <= {"-"}]
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_the_text_has_a_row_per_launch_and_a_total(chained):
    meter, x = chained
    row = ["4 MB", "4 MB", "2.00", "1 M", "0.125"]
    assert table_of(meter.report(x)) == [
        ["launch", "reads", "writes", "trips", "FLOPs", "FLOP/B"],
        ["mul", *row],
        ["add", *row],
        ["gelu", *row],
        ["mul", *row],
        ["add", *row],
        ["5 launches", "20 MB", "20 MB", "10.00", "5 M", "0.125"],
        ["one trip = 4 MB"],
    ]


def test_columns_are_aligned(chained):
    lines = chained[0].report().splitlines()
    table = [line for line in lines[:-1] if not set(line) <= {"-"}]
    assert len({len(line) for line in table}) == 1


def test_plain_text_is_the_repr(chained):
    meter, _ = chained
    assert repr(meter) == meter.report()


def test_a_trip_is_over_the_largest_tensor_unless_one_is_named(chained):
    meter, _ = chained
    assert meter.report().splitlines()[-1] == "one trip = 4 MB, the largest tensor touched"
    assert "5.00" in meter.report(8_000_000).splitlines()[-2]
    assert reference_of(meter.launches) == (
        4_000_000,
        "one trip = 4 MB, the largest tensor touched",
    )
    assert reference_of([]) == (0, "")
    with pytest.raises(TypeError, match="tensor, an array or a number of bytes"):
        meter.report("x")


def test_an_empty_meter_says_so():
    with Meter() as meter:
        torch.ones(3, device="meta").view(3)[0:0] * 2
    assert [launch.name for launch in meter.launches] == ["ones"]
    empty = Meter()
    assert repr(empty) == "Nothing moved: no launch was counted."
    assert empty._repr_html_() == "<p>Nothing moved: no launch was counted.</p>"
    assert empty.traffic == Traffic()
    assert empty.trips(4) == 0.0


def test_one_launch_is_singular():
    with Meter() as meter:
        torch.ones(3)
    assert "\n1 launch " in repr(meter)


def test_the_view_by_argument(device):
    x, out = torch.ones(100, device=device), torch.zeros(100, device=device)
    with Meter() as meter:
        add[(4,)](x, x, out, 100, BLOCK=32)
        copy[(4,)](x, out, 100, BLOCK=32)
    assert table_of(meter.report(x, by_argument=True)) == [
        ["launch", "argument", "reads", "writes", "trips", "reuse", "masked lanes"],
        ["add", "x_ptr", "400 B", "0 B", "1.00", "1", "28"],
        ["y_ptr", "400 B", "0 B", "1.00", "1", "28"],
        ["out_ptr", "0 B", "400 B", "1.00", "1", "28"],
        ["copy", "x_ptr", "400 B", "0 B", "1.00", "1", "28"],
        ["out_ptr", "0 B", "400 B", "1.00", "1", "28"],
        ["one trip = 400 B"],
    ]


def test_arguments_that_move_nothing_have_no_row_and_the_name_stays():
    moved = ArgumentTraffic(bytes_read=4, compulsory_read=2, nbytes=4)
    launch = Launch("kernel", "triton", moved, {"idle": ArgumentTraffic(), "x": moved})
    rows = table_of(to_text([launch], moved, by_argument=True))
    assert rows[1] == ["kernel", "x", "4 B", "0 B", "1.00", "2"]


def test_findings_and_notes_are_below_the_table():
    finding = Finding("race", "kernel, line 2: something", "kernel", "x")
    traffic = Traffic(bytes_read=4)
    launch = Launch("k", "triton", traffic, findings=(finding,), notes=("a note",))
    lines = to_text([launch, launch], Traffic.total([traffic, traffic])).splitlines()
    assert lines[-3:] == ["note: a note", *["[race] kernel, line 2: something"] * 2]
    assert lines.count("note: a note") == 1
    html = to_html([launch], traffic)
    assert "<p>note: a note</p>" in html
    assert "<p>[race] kernel, line 2: something</p>" in html


def test_a_long_table_leaves_out_its_middle():
    launches = [
        Launch(f"op{i}", "torch", t := ArgumentTraffic(bytes_read=4, nbytes=4), {"x": t})
        for i in range(1000)
    ]
    total = Traffic.total(launch.traffic for launch in launches)
    for by_argument in (False, True):
        names = [row[0] for row in table_of(to_text(launches, total, by_argument=by_argument))]
        assert names[1:51] == [f"op{i}" for i in range(50)]
        assert names[51] == "... 940 more rows"
        assert names[52:62] == [f"op{i}" for i in range(990, 1000)]
    assert names[62] == "one trip = 4 B, the largest tensor touched"
    first, second = read(to_html(launches, total))
    assert len(first) == 1 + 61 + 1 and len(second) == 1 + 61
    assert first[-1][:2] == ["1000 launches", "4 kB"]
    assert "more rows" not in to_text(launches[:60], total)


def test_infinite_intensity_and_no_reference():
    launch = Launch("k", "triton", Traffic(flops=5))
    assert table_of(to_text([launch], launch.traffic))[1] == ["k", "0 B", "0 B", "-", "5", "inf"]


class Reader(HTMLParser):
    """Collects a page's tables as lists of rows, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tables, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1].append(data)


def read(html: str) -> list[list[list[str]]]:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader.tables


def test_the_html_has_the_same_cells_as_the_text(chained):
    meter, _ = chained
    launches, arguments = read(meter._repr_html_())
    assert launches == table_of(meter.report())[:-1]
    assert len(arguments) == 1 + 5 * 2
    assert arguments[1][:4] == ["mul", "self", "4 MB", "0 B"]
    assert arguments[2][:4] == ["out", "0 B", "4 MB", "1.00"]  # an empty cell has no data
    html = meter._repr_html_()
    assert "<caption>Counted; one trip = 4 MB, the largest tensor touched</caption>" in html
    assert "<summary>By argument</summary>" in html


def test_html_is_escaped():
    traffic = ArgumentTraffic(bytes_read=4, nbytes=4)
    finding = Finding("race", "<script>alert(1)</script> & more", "k", "x")
    launch = Launch("<lambda>", "torch", traffic, {"a<b": traffic}, None, (finding,), ("n < 3",))
    html = to_html([launch], traffic)
    assert "<lambda>" not in html and "&lt;lambda&gt;" in html
    assert "a&lt;b" in html
    assert "<script>" not in html and "&amp; more" in html
    assert "n &lt; 3" in html
    read(html)


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1 kB"), (400012, "400 kB"),
        (1_073_741_824, "1.074 GB"), (42_683_334_656, "42.68 GB"), (40 * 2**28, "10.74 GB"),
        (10**15, "1 PB"), (1.5, "2 B"),
    ],
)  # fmt: skip
def test_bytes_are_written_in_decimal_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    "count, text", [(0, "0"), (999, "999"), (5368709120, "5.369 G"), (2 * 8192**3, "1.1 T")]
)
def test_flops_are_written_in_thousands(count, text):
    assert format_flops(count) == text
