"""Lesson 05's table "The interpreter is not the GPU": each row is a test.

On the left what the interpreter does (always under a meter, so on a machine with a GPU as well), in
the middle what the compiler makes of the same kernel, on the right what was recorded on a GPU. With
a GPU the kernels that can do no harm also run natively.

When one of these fails after an update of Triton, the row of the lesson has to change.
"""

# The machine is asked before triton is imported.
# ruff: noqa: E402

import re

import pytest

import course_utils

machine = course_utils.machine()

import torch
import triton
import triton.language as tl

from course_utils import Meter
from course_utils.authoring import notebooks
from course_utils.compiler import CompileError, compile_for
from course_utils.plain_interpreter import in_plain_interpreter
from course_utils.records import NoRecordError, incidents

NATIVE = machine.mode == "gpu"
LESSON = notebooks.ROOT / "notebooks" / "05_when_kernels_go_wrong.ipynb"


@triton.jit
def last_writer(out_ptr):
    tl.store(out_ptr, tl.program_id(0))


@triton.jit
def product(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    lane = tl.arange(0, SIZE)
    at = lane[:, None] * SIZE + lane[None, :]
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(c_ptr + at, tl.dot(a, b, input_precision=PRECISION))


@triton.jit
def copy_unfilled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(y_ptr + lane, tl.load(x_ptr + lane, mask=lane < n))


@triton.jit
def lane_ids(out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    lane = tl.inline_asm_elementwise(
        "mov.u32 $0, %laneid;", "=r,r", [at], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out_ptr + at, lane)


@triton.jit
def reverse_tile(x_ptr, scratch_ptr, y_ptr, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(scratch_ptr + lane, tl.load(x_ptr + lane))
    if BARRIER:
        tl.debug_barrier()
    tl.store(y_ptr + lane, tl.load(scratch_ptr + BLOCK - 1 - lane))


@triton.jit
def twice(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x + x)


@triton.jit
def narrow(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(tl.bfloat16))


def interpret(kernel, grid, *arguments, **meta) -> Meter:
    """Run a kernel in the interpreter, under a meter."""
    with Meter() as meter:
        kernel[grid](*arguments, **meta)
    return meter


def recorded(name: str):
    """What a GPU did, as far as it was recorded."""
    try:
        return incidents.load()[name]
    except NoRecordError:
        pytest.skip("no incidents are recorded yet: python -m course_utils.authoring.incidents")


def tensor(*shape, dtype=torch.float32, fill=float("nan")):
    return torch.full(shape, fill, dtype=dtype, device=machine.device)


# -- order of programs --------------------------------------------------------------------------


def test_programs_run_one_after_the_other():
    out = tensor(1, dtype=torch.int32, fill=-1)
    for _ in range(3):
        meter = interpret(last_writer, (9,), out)
        assert out.item() == 8
        assert {finding.kind for finding in meter.findings} == {"two writers"}


def test_programs_of_a_gpu_run_at_once():
    incident = recorded("two_writers")
    assert incident.symptom in ("not repeatable", "wrong numbers")
    assert max(incident.seen["totals"]) < 2**20 == incident.seen["atomic"]


# -- float32 tl.dot -----------------------------------------------------------------------------


def product_error(run) -> float:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(32, 32, generator=generator).to(machine.device) for _ in range(2))
    c = tensor(32, 32)
    run(a, b, c)
    exact = a.double() @ b.double()
    return ((c.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_the_interpreter_multiplies_in_float32(precision):
    error = product_error(
        lambda *tiles: interpret(product, (1,), *tiles, SIZE=32, PRECISION=precision)
    )
    assert error < 1e-6


@pytest.mark.parametrize("gpu", ["t4", "a100_80gb", "h200", "b200"])
def test_matrix_units_multiply_in_tf32(gpu):
    tile = torch.empty(32, 32, device="meta")
    made = {
        precision: compile_for(product, [tile] * 3, gpu, SIZE=32, PRECISION=precision)
        for precision in ("tf32", "ieee")
    }
    names = made["tf32"].matrix_instructions
    assert all("tf32" in name for name in names)
    assert bool(names) == (gpu != "t4")  # a T4 has no matrix unit for 32 bits
    assert not made["ieee"].matrix_instructions


def test_tf32_costs_three_digits_on_a_gpu():
    seen = recorded("tf32").seen
    assert 1e-5 < seen["tf32"] < 1e-2
    assert seen["ieee"] < 1e-6


@pytest.mark.skipif(not NATIVE, reason="needs a GPU")
def test_tf32_natively():
    if machine.compute_capability < (8, 0):
        pytest.skip("tf32 begins with compute capability 8.0")
    error = product_error(lambda *tiles: product[(1,)](*tiles, SIZE=32, PRECISION="tf32"))
    assert 1e-5 < error < 1e-2


# -- lanes masked off, no `other` ---------------------------------------------------------------


def test_the_interpreter_fills_with_zeros():
    x, y = tensor(8, fill=-1.0), tensor(8)
    interpret(copy_unfilled, (1,), x, y, 5, BLOCK=8)
    assert y.tolist() == [-1.0] * 5 + [0.0] * 3


def test_todays_compiler_fills_with_zeros_too():
    x = torch.empty(128, device="meta")
    ptx = compile_for(copy_unfilled, [x, x, 100], "h200", BLOCK=128).ptx
    assert re.search(r"mov\.[ub]32\s+(%\w+), 0x0;\s+@%p\d+ ld\.global\.b32 \{ \1 \}", ptx)


def test_zeros_are_no_neutral_element_of_a_maximum():
    seen = recorded("masked_fill").seen
    assert seen["float32"] == [0.0] * 4 != seen["right"]


# -- a global number ----------------------------------------------------------------------------

SIZE = 8


@triton.jit
def fill_with_global(out_ptr):
    tl.store(out_ptr + tl.arange(0, SIZE), 1.0)


def test_the_interpreter_reads_globals():
    out = tensor(8)
    assert not interpret(fill_with_global, (1,), out).findings
    assert out.tolist() == [1.0] * 8


def test_the_compiler_refuses_globals():
    with pytest.raises(CompileError, match="Cannot access global variable SIZE"):
        compile_for(fill_with_global, ["*fp32"], "h200")


def test_a_gpu_refuses_globals():
    assert recorded("plain_global").symptom == "compile error"


# -- smallest tl.dot ----------------------------------------------------------------------------


def test_the_interpreter_multiplies_tiles_of_any_size():
    one = torch.eye(8, dtype=torch.float16, device=machine.device)
    out = tensor(8, 8, dtype=torch.float16)
    assert not interpret(product, (1,), one, one, out, SIZE=8, PRECISION="ieee").findings
    assert torch.equal(out, one)


@pytest.mark.parametrize("gpu", ["t4", "a100_80gb", "h200", "b200"])
def test_the_compiler_wants_sixteen_along_k(gpu):
    tile = torch.empty(8, 8, dtype=torch.float16, device="meta")
    with pytest.raises(CompileError, match="K >= 16"):
        compile_for(product, [tile] * 3, gpu, SIZE=8, PRECISION="ieee")


def test_the_smallest_dot_is_refused_on_a_gpu():
    assert recorded("smallest_dot").symptom == "compile error"


# -- `and`, and `if` ----------------------------------------------------------------------------


@triton.jit
def corner(out_ptr, rows, columns, SIDE: tl.constexpr):
    i, j = tl.arange(0, SIDE), tl.arange(0, SIDE)
    mask = (i < rows)[:, None] and (j < columns)[None, :]
    tl.store(out_ptr + i[:, None] * SIDE + j[None, :], 1.0, mask=mask)


@triton.jit
def branch(out_ptr, n, SIDE: tl.constexpr):
    lane = tl.arange(0, SIDE)
    value = lane * 0.0
    if lane < n:
        value += 1.0
    tl.store(out_ptr + lane, value)


def test_the_interpreters_and_drops_a_mask():
    out = tensor(8, 8, fill=0.0)
    interpret(corner, (1,), out, 3, 5, SIDE=8)
    assert out.sum().item() == 8 * 5  # the columns' mask alone


def test_the_compilers_and_joins_the_masks():
    made = compile_for(corner, ["*fp32", 3, 5], "h200", SIDE=8)
    first, second = re.findall(r"setp\.lt\.s32\s+(%p\d+)", made.ptx)
    assert re.search(rf"and\.pred\s+%p\d+, {first}, {second};", made.ptx)


@pytest.mark.skipif(not NATIVE, reason="needs a GPU")
def test_and_natively():
    out = tensor(8, 8, fill=0.0)
    corner[(1,)](out, 3, 5, SIDE=8)
    assert out.sum().item() == 3 * 5


def test_the_interpreters_if_takes_one_branch_for_a_whole_tile():
    out = tensor(8)
    interpret(branch, (1,), out, 3, SIDE=8)
    assert len(set(out.tolist())) == 1


def test_the_compiler_refuses_an_if_on_a_tile():
    with pytest.raises(CompileError, match="Boolean value of Tensor with more than one value"):
        compile_for(branch, ["*fp32", 3], "h200", SIDE=8)


# -- inline assembly ----------------------------------------------------------------------------


def test_the_interpreter_refuses_assembly():
    with pytest.raises(Exception, match="inline_asm not supported in interpreter mode"):
        interpret(lane_ids, (1,), tensor(256, dtype=torch.int32, fill=-1), BLOCK=256)


def lanes_by_layout() -> list[int]:
    layout = compile_for(lane_ids, ["*i32"], "h200", BLOCK=256).access("store").layout
    return [layout.owner(element).lane for element in range(256)]


def test_assembly_compiles():
    assert "%laneid" in compile_for(lane_ids, ["*i32"], "h200", BLOCK=256).ptx


def test_a_gpu_confirms_the_layout():
    assert recorded("inline_asm").seen["lanes"] == lanes_by_layout()


@pytest.mark.skipif(not NATIVE, reason="needs a GPU")
def test_assembly_natively():
    out = tensor(256, dtype=torch.int32, fill=-1)
    lane_ids[(1,)](out, BLOCK=256)
    assert out.tolist() == lanes_by_layout()


# -- store, then load the same memory, in one program -------------------------------------------


@pytest.mark.parametrize("barrier", [False, True])
def test_the_interpreter_needs_no_barrier(barrier):
    x, scratch, y = torch.arange(1024.0, device=machine.device), tensor(1024), tensor(1024)
    meter = interpret(reverse_tile, (1,), x, scratch, y, BARRIER=barrier, BLOCK=1024)
    assert not meter.findings  # the meter watches programs, not threads
    assert torch.equal(y, x.flip(0))


@pytest.mark.parametrize("barrier", [False, True])
def test_the_compiler_adds_no_barrier_of_its_own(barrier):
    x = torch.empty(1024, device="meta")
    made = compile_for(reverse_tile, [x, x, x], "h200", BARRIER=barrier, BLOCK=1024)
    assert ("bar.sync" in made.ptx) == barrier


def test_a_gpu_needs_the_barrier():
    seen = recorded("barrier").seen
    assert max(seen["with"]) == 0
    assert max(seen["without"]) > 0


# -- bfloat16 -----------------------------------------------------------------------------------


def test_tritons_own_interpreter_adds_the_bits():
    program = """
    x = torch.ones(16, dtype=torch.bfloat16)
    y = torch.zeros_like(x)
    twice[(1,)](x, y, BLOCK=16)
    print(y[0].item())
    narrow[(1,)](x.float() * 1.006, y, BLOCK=16)
    print(y[0].item())
    """
    bits = torch.tensor(2 * 0x3F80, dtype=torch.int16).view(torch.bfloat16).item()
    assert in_plain_interpreter(program, twice, narrow).split() == [str(bits), "1.0"]


def test_setup_mends_bfloat16():
    one = tensor(16, dtype=torch.bfloat16, fill=1.0)
    out = torch.zeros_like(one)
    interpret(twice, (1,), one, out, BLOCK=16)
    assert out.tolist() == [2.0] * 16
    interpret(narrow, (1,), one.float() * 1.006, out, BLOCK=16)
    assert out.tolist() == [1.0078125] * 16


def test_the_compiler_rounds_to_nearest():
    made = compile_for(narrow, ["*fp32", "*bf16"], "h200", BLOCK=128)
    assert re.search(r"cvt\.rn\.bf16", made.ptx)


def test_bfloat16_is_right_on_a_gpu():
    seen = recorded("bf16").seen
    assert (seen["twice"], seen["rounded"]) == (2.0, 1.0078125)


@pytest.mark.skipif(not NATIVE, reason="needs a GPU")
def test_bfloat16_natively():
    one = tensor(16, dtype=torch.bfloat16, fill=1.0)
    out = torch.zeros_like(one)
    twice[(1,)](one, out, BLOCK=16)
    assert out.tolist() == [2.0] * 16


# -- overflow in tl.exp -------------------------------------------------------------------------


@triton.jit
def silu(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x / (1 + tl.exp(-x)))


def test_the_interpreter_warns_where_a_right_formula_overflows():
    x, y = tensor(8, fill=-200.0), tensor(8)
    with pytest.warns(RuntimeWarning, match="overflow encountered in exp"):
        interpret(silu, (1,), x, y, BLOCK=8)
    assert y.tolist() == [0.0] * 8


@pytest.mark.skipif(not NATIVE, reason="needs a GPU")
def test_a_gpu_overflows_in_silence():
    x, y = tensor(8, fill=-200.0), tensor(8)
    silu[(1,)](x, y, BLOCK=8)
    assert y.tolist() == [0.0] * 8


# -- the table ----------------------------------------------------------------------------------

ROWS = [
    "order of programs",
    "float32 `tl.dot`",
    "lanes masked off, no `other`",
    "a global number",
    "smallest `tl.dot`",
    "`and`, `or` between two tiles",
    "`if` on a tile",
    "inline assembly",
    "store, then load the same memory, in one program",
    "bfloat16",
    "overflow in `tl.exp`",
]


def test_every_row_of_the_lesson_is_tested_here():
    if not LESSON.exists():
        pytest.skip("the lesson is not there yet")
    text = "\n".join(
        cell.source for cell in notebooks.read(LESSON).cells if cell.cell_type == "markdown"
    )
    table = re.search(r"^\| \| interpreter \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.M)
    rows = [line.split("|")[1].strip() for line in table[1].splitlines()]
    assert rows == ROWS
