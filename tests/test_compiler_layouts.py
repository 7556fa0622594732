"""The thread mapping: read from TTGIR, against Triton's own linear layouts, and drawn."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import compiler_kernels as kernels
import pytest
import torch

import course_utils
from course_utils import plots
from course_utils.compiler import Access, Owner, cache, compile_for, layouts, process, read_layout

BLOCKED = (
    "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], "
    "order = [1, 0]}>"
)
X = torch.empty(4096)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The compiler's results of these tests, and no older ones."""
    before = os.environ.get(cache.PATH_VARIABLE)
    os.environ[cache.PATH_VARIABLE] = str(tmp_path_factory.mktemp("compiled"))
    yield
    del os.environ[cache.PATH_VARIABLE]
    if before is not None:
        os.environ[cache.PATH_VARIABLE] = before


# --- Who owns which element ---------------------------------------------------------------------


def test_owners_of_a_blocked_tile_by_hand():
    """32 x 128 floats: four columns a thread, 16 threads in a row, two rows a warp."""
    layout = read_layout(BLOCKED, (32, 128))
    assert layout.owner(0, 0) == Owner(warp=0, lane=0, register=0)
    assert layout.owner(0, 3) == Owner(0, 0, 3)
    assert layout.owner(0, 4) == Owner(0, 1, 0)
    assert layout.owner(0, 63) == Owner(0, 15, 3)
    assert layout.owner(0, 64) == Owner(0, 0, 4)  # the row is longer than 16 threads
    assert layout.owner(1, 0) == Owner(0, 16, 0)
    assert layout.owner(2, 0) == Owner(1, 0, 0)
    assert layout.owner(7, 0) == Owner(3, 16, 0)
    assert layout.owner(8, 0) == Owner(0, 0, 8)  # four warps of two rows, then again
    assert layout.owner(31, 127) == Owner(3, 31, 31)
    assert (layout.num_warps, layout.elements_per_thread, layout.vector) == (4, 32, 4)
    assert layout.element(3, 31, 31) == (31, 127)
    assert str(layout) == (
        "32 × 128 tile: 1 × 4 elements per thread, 2 × 16 threads per warp, 4 × 1 warps per "
        "program, axis 1 first"
    )


def test_every_element_has_one_owner_where_the_tile_is_large_enough():
    layout = read_layout(BLOCKED, (32, 128))
    places = {owner for index in _indices(layout.shape) for owner in layout.owners(*index)}
    assert len(places) == 32 * 128 == 4 * 32 * 32


def test_a_small_tile_is_held_by_several_threads():
    layout = layouts.blocked([32], [1], [32], [4], [0])
    assert layout.owners(5) == tuple(Owner(warp, 5, 0) for warp in range(4))
    assert layout.owner(5) == Owner(0, 5, 0)
    assert layout.elements_per_thread == 1


def test_a_slice_leaves_an_axis_out():
    text = f"#ttg.slice<{{dim = 1, parent = {BLOCKED}}}>"
    rows = read_layout(text, (32,))
    assert rows.kind == "slice"
    assert rows.owner(1) == Owner(0, 16, 0) and rows.owner(2) == Owner(1, 0, 0)
    # All 16 threads of a row hold the row's number.
    assert [owner.lane for owner in rows.owners(0)] == list(range(16))


def test_aliases_and_linear_layouts_are_read():
    linear = (
        "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], "
        "[4, 0]], warp = [[16, 0], [0, 0]], block = []}>"
    )
    layout = read_layout("#linear1", (32, 8), {"#linear1": linear})
    assert layout.registers == ((0, 1), (8, 0))
    assert layout.element(1, 5, 3) == (16 ^ 8 ^ 1, 1 ^ 2)
    assert len(layout.owners(0, 0)) == 2  # one bit of the warp makes no difference
    assert read_layout("#ttg.some_other<{}>", (32, 8)) is None


def test_places_that_are_not_there_are_refused():
    layout = read_layout(BLOCKED, (32, 128))
    for index in ((32, 0), (0, -1), (0,)):
        with pytest.raises(IndexError, match=r"The tile is 32 × 128, which has no element"):
            layout.owner(*index)
    with pytest.raises(IndexError, match="There is no lane 32; there are 32, from 0 on"):
        layout.element(0, 32, 0)


def _indices(shape):
    return [(row, column) for row in range(shape[0]) for column in range(shape[1])]


# --- Against Triton ------------------------------------------------------------------------------

REFERENCE = """
import json, sys
from triton._C.libtriton import gluon_ir, ir
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.experimental.gluon.language import _layouts as gluon

context = ir.context()
ir.load_dialects(context)
make_backend(GPUTarget("cuda", 90, 32)).load_dialects(context)
builder = gluon_ir.GluonOpBuilder(context)
answers = []
for kind, shape, numbers in json.load(sys.stdin):
    if kind == "mma":
        layout = gluon.NVMMADistributedLayout([2, 0], numbers, [16, 8])
    else:
        layout = gluon.BlockedLayout(*numbers)
        if kind != "blocked":
            layout = gluon.SliceLayout(int(kind), layout)
    found = builder.to_linear_layout(layout._to_ir(builder), shape)
    answers.append([found.reg_bases, found.lane_bases, found.warp_bases])
print(json.dumps(answers))
"""


def split(total, rank, chance):
    """Powers of two, one for each axis, with this product."""
    parts = [1] * rank
    while total > 1:
        parts[chance.randrange(rank)] *= 2
        total //= 2
    return parts


def test_layouts_are_as_triton_understands_them():
    """Random encodings, with what Triton itself makes of them (Gluon's to_linear_layout)."""
    chance = random.Random(0)
    cases = []
    for _ in range(300):
        rank = chance.choice([1, 2, 2, 3])
        order = chance.sample(range(rank), rank)
        numbers = [
            split(2 ** chance.randint(0, 4), rank, chance),
            split(32, rank, chance),
            split(2 ** chance.randint(0, 3), rank, chance),
            order,
        ]
        shape = [2 ** chance.randint(0, 7) for _ in range(rank)]
        kinds = ["blocked", *map(str, range(rank))] if rank > 1 else ["blocked"]
        kind = chance.choice(kinds)
        if kind != "blocked":
            del shape[int(kind)]
        cases.append((kind, shape, numbers))
    for _ in range(50):
        warps = split(2 ** chance.randint(0, 3), 2, chance)
        shape = [2 ** chance.randint(4, 7), 2 ** chance.randint(3, 7)]
        cases.append(("mma", shape, warps))
    environment = process.environment("/nowhere")
    result = subprocess.run(
        [sys.executable, "-P", "-c", REFERENCE],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    for case, (registers, lanes, warps) in zip(cases, json.loads(result.stdout), strict=True):
        layout = ours(*case)
        # Registers that would repeat an element are there in some versions of Triton only.
        assert layout.registers == tuple(tuple(o) for o in registers if any(o)), case
        assert layout.lanes == tuple(map(tuple, lanes)), case
        assert layout.warps == tuple(map(tuple, warps)), case


def ours(kind, shape, numbers):
    def text(values):
        return f"[{', '.join(map(str, values))}]"

    if kind == "mma":
        warps = text(numbers)
        return read_layout(
            f"#ttg.nvidia_mma<{{versionMajor = 2, versionMinor = 0, warpsPerCTA = {warps}, "
            "instrShape = [16, 8]}>",
            shape,
        )
    names = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    content = ", ".join(f"{name} = {text(v)}" for name, v in zip(names, numbers, strict=True))
    blocked = f"#ttg.blocked<{{{content}}}>"
    if kind == "blocked":
        return read_layout(blocked, shape)
    return read_layout(f"#ttg.slice<{{dim = {kind}, parent = {blocked}}}>", shape)


# --- Accesses of compiled kernels ---------------------------------------------------------------


def test_accesses_of_gelu():
    made = compile_for(kernels.gelu_kernel, [X, X, 4096], "h200", BLOCK=1024)
    load, store = made.accesses
    assert (load.kind, load.argument, load.bits) == ("load", "x_ptr", 32)
    assert (store.kind, store.argument) == ("store", "out_ptr")
    assert (load.function, load.line, store.line) == ("gelu_kernel", 4, 5)
    assert load.layout.shape == (1024,)
    assert load.layout.parameters["sizePerThread"] == (4,)
    assert load.layout.owner(5) == Owner(warp=0, lane=1, register=1)
    assert load.layout.owner(512) == Owner(0, 0, 4)
    # 32 threads of 16 bytes: 512 bytes in a row, every sector used in full.
    assert load.instruction()[1] == [(4,), (5,), (6,), (7,)]
    assert (load.vector, load.sectors()) == (4, 16)
    assert made.access("store") is store and made.access("load", "x_ptr") is load
    with pytest.raises(ValueError, match=r"no load out_ptr\. Its accesses are: load x_ptr, st"):
        made.access("load", "out_ptr")


def test_half_the_width_needs_twice_the_elements():
    half = X.to(torch.bfloat16)
    made = compile_for(kernels.gelu_kernel, [half, half, 4096], "t4", BLOCK=1024)
    assert made.access("load").layout.parameters["sizePerThread"] == (8,)
    assert (made.access("load").bits, made.access("load").vector) == (16, 8)


def test_each_side_of_a_transposition_follows_its_own_addresses():
    made = compile_for(kernels.transpose_kernel, [X, X, 256], "a100", M=32, N=64)
    load, store = made.access("load"), made.access("store")
    assert (load.layout.fastest, store.layout.fastest) == (1, 0)
    assert load.sectors() == store.sectors() == 16
    assert made.shared_memory == 32 * 64 * 4  # in between the tile is passed on there


def test_a_loop_is_followed_back_to_the_argument():
    made = compile_for(kernels.loop_kernel, [X, X, 16], "a100", BLOCK=256)
    kinds = {(access.kind, access.argument) for access in made.accesses}
    assert ("store", "out_ptr") in kinds
    assert {argument for kind, argument in kinds if kind != "store"} == {"x_ptr"}


def test_sectors_of_a_bad_mapping():
    """Neighbouring threads a row apart: each four bytes cost a sector of 32."""
    for threads, warps, sectors in (((32, 1), (1, 4), 32), ((1, 32), (4, 1), 4)):
        layout = layouts.blocked((32, 32), (1, 1), threads, warps, (1, 0))
        assert Access("load", "x_ptr", 32, layout, "").sectors() == sectors


def test_one_instruction_loads_at_most_16_bytes_for_a_thread():
    layout = layouts.blocked((1024,), (16,), (32,), (2,), (0,))
    assert layout.vector == 16
    vectors = {bits: Access("load", "x", bits, layout, "").vector for bits in (8, 16, 32, 64)}
    assert vectors == {8: 16, 16: 8, 32: 4, 64: 2}
    # Threads that are 64 bytes apart use half of each sector that they touch.
    access = Access("load", "x", 32, layout, "")
    assert access.instruction()[1] == [(16,), (17,), (18,), (19,)]
    assert access.sectors() == 32


def test_an_unknown_layout_is_said():
    access = Access("load", "x_ptr", 32, None, "#ttg.some_other<{}>")
    for use in (lambda: access.vector, access.sectors, lambda: plots.layout_chart(access)):
        with pytest.raises(ValueError, match=r"not known here: #ttg\.some_other"):
            use()


# --- The chart ----------------------------------------------------------------------------------


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [
        axes.get_title("left") for axes in figure.axes
    ]


def test_the_chart_names_warps_and_threads():
    layout = layouts.blocked([1024], [4], [32], [4], [0])
    figure = plots.layout_chart(Access("load", "x_ptr", 32, layout, ""))
    shown = words(figure)
    assert [shown.count(f"warp {warp}") for warp in range(4)] == [2, 2, 2, 2]
    assert [str(lane) for lane in range(32)] == [t.get_text() for t in figure.axes[1].texts[:32]]
    assert (
        "load x_ptr: 1024 elements of 32 bits, 4 warps; on the left each row's first element"
        in shown
    )
    assert any("32 threads × 16 bytes, 16 sectors, 100 % used" in w for w in shown)
    assert {"0", "896"} <= {t.get_text() for t in figure.axes[0].texts}


def test_the_chart_shows_what_is_wasted():
    layout = layouts.blocked((32, 32), (1, 1), (32, 1), (1, 4), (1, 0))
    figure = plots.layout_chart(Access("load", "x_ptr", 32, layout, ""))
    assert any("32 sectors, 12.5 % used" in w for w in words(figure))
    assert "first 8 of 32 rows" in figure.axes[1].get_xlabel()


@pytest.mark.parametrize("shape", [(32,), (64,), (2**16,), (256, 128), (4, 4), (2, 8, 16)])
def test_tiles_of_all_sizes_can_be_drawn(shape):
    rank = len(shape)
    ones = [1] * rank
    threads, warps = [*ones[1:], 32], [8, *ones[1:]] if rank > 1 else [8]
    layout = layouts.blocked(shape, ones, threads, warps, list(reversed(range(rank))))
    figure = plots.layout_chart(Access("store", None, 16, layout, ""))
    image = plots.png(figure)
    assert image == plots.png(plots.layout_chart(Access("store", None, 16, layout, "")))
    renderer = figure.canvas.get_renderer()
    for axes in figure.axes:
        for text in [*axes.texts, axes.title, axes._left_title, axes.xaxis.label]:
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text.get_text()
            assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, text.get_text()


def test_the_package_is_found_lazily():
    assert course_utils.compiler.compile_for is compile_for
    assert Path(course_utils.compiler.__file__).name == "__init__.py"
