"""The benchmarks of lesson 04: the right functions under the right names, counted as fused."""

import json

import pytest
import torch

import course_utils
from course_utils.authoring import benchmarks

N = benchmarks.LARGE


@pytest.fixture(scope="module")
def cells():
    return benchmarks.cells(["elementwise", "block_sweep"])


def find(cells, benchmark, case, **parameters):
    (found,) = (
        cell
        for cell in cells
        if (cell.benchmark, cell.case) == (benchmark, case)
        and parameters.items() <= cell.parameters.items()
    )
    return found


@pytest.mark.parametrize(
    ("case", "parameters", "nbytes", "flops"),
    [
        ("eager", {"op": "chain", "dtype": "float32"}, 40 * N, 5 * N),
        ("compiled", {"op": "chain", "dtype": "float32"}, 8 * N, 5 * N),
        ("ours", {"op": "chain", "dtype": "float32"}, 8 * N, 5 * N),
        ("ours", {"op": "chain", "dtype": "bfloat16"}, 4 * N, 5 * N),
        ("ours", {"op": "gelu", "dtype": "float32"}, 8 * N, N),
        ("erf", {"op": "gelu", "dtype": "bfloat16"}, 4 * N, N),
        ("eager", {"op": "gelu_tanh", "dtype": "float32"}, 8 * N, N),
        ("eager", {"op": "residual", "dtype": "float32"}, 44 * N, 5 * N),
        ("ours", {"op": "residual", "dtype": "float32"}, 8 * N, 5 * N),
        ("ours", {"op": "residual_separate", "dtype": "float32"}, 12 * N, 5 * N),
        ("ours", {"op": "add", "dtype": "float32"}, 12 * N, N),
        ("ours", {"op": "bias_residual", "dtype": "float32"}, 8 * N + 4 * 2**12, 5 * N),
    ],
)
def test_counts(cells, case, parameters, nbytes, flops):
    count = find(cells, "elementwise", case, **parameters).count()
    assert (count.bytes, count.flops) == (nbytes, flops)


def test_names_that_lesson_04_relies_on(cells):
    for op in ("gelu", "gelu_tanh", "chain", "residual", "residual_separate"):
        for dtype in ("float32", "bfloat16"):
            for case in ("eager", "compiled", "ours"):
                assert find(cells, "elementwise", case, op=op, n=N, dtype=dtype)
    swept = {
        (cell.parameters["block"], cell.parameters["num_warps"])
        for cell in cells
        if cell.benchmark == "block_sweep"
    }
    blocks = [2**power for power in range(6, 15)]
    assert swept == {(b, w) for b in blocks for w in (1, 2, 4, 8, 16) if b <= 4096 * w}
    assert find(cells, "block_sweep", "chain", block=1024, num_warps=4, n=N, dtype="float32")
    assert find(cells, "block_sweep", "chain", block=1024, num_warps=4).count().bytes == 8 * N


def test_a_row_for_each_cell(cells):
    rows = {(cell.benchmark, cell.case, json.dumps(dict(cell.parameters))) for cell in cells}
    assert len(rows) == len(cells)


def test_each_cell_computes_what_it_counts(cells):
    device = course_utils.machine().device
    for cell in cells:
        if cell.benchmark == "block_sweep" and cell.parameters["num_warps"] != 4:
            continue
        inputs = [
            torch.randn([min(n, 40) for n in entry.shape], device=device).to(
                getattr(torch, entry.dtype)
            )
            for entry in cell.inputs
        ]
        result, wanted = cell.function(*inputs), cell.counted(*(x.float() for x in inputs))
        assert result.dtype == inputs[0].dtype, cell.title
        limit = 1e-6 if result.dtype == torch.float32 else 0.02
        assert torch.allclose(result.float(), wanted, rtol=limit, atol=limit), cell.title
        assert cell.compiled == (cell.case == "compiled")
        assert cell.fused == (cell.case != "eager")
