"""What `make record` measures: names and counts; refusals; ncu's output. No GPU needed."""

import datetime
import json
import re
import subprocess
import types

import pytest
import sample_record
import torch

import course_utils
from course_utils import bench, records
from course_utils.authoring import benchmarks, counters, record

course_utils.machine()  # decides how the shelf's kernels run, before anything imports triton
GIB = 2**30
N = benchmarks.LARGE
ROWS = N // 4096
SOFTMAX = {"op": "softmax", "dtype": "float32"}
RMSNORM = {"op": "rmsnorm", "dtype": "float32", "columns": 4096}
LAYERNORM = {**RMSNORM, "op": "layernorm"}


@pytest.fixture(scope="module")
def cells():
    return benchmarks.cells()


def find(cells, benchmark, case, **parameters):
    found = [
        cell
        for cell in cells
        if (cell.benchmark, cell.case) == (benchmark, case)
        and parameters.items() <= cell.parameters.items()
    ]
    assert len(found) == 1, found
    return found[0]


def test_names_that_lessons_rely_on(cells):
    cases = {}
    for cell in cells:
        cases.setdefault(cell.benchmark, set()).add(cell.case)
    assert cases["copy"] == {"torch"}
    assert cases["cache"] == {"neg_again"}
    assert cases["matmul"] == {"fp32", "tf32", "fp16", "bf16"}
    assert cases["chain"] == cases["residual"] == cases["fusion"] == {"eager", "compiled"}
    assert cases["launch"] >= {"empty_kernel", "add_8"}
    assert cases["op"] >= {
        *("copy", "add", "gelu", "softmax", "layernorm", "sum", "matmul", "attention"),
        *("neg", "neg_in_place", "broadcast_add"),
    }
    assert cases["reductions"] == {"eager", "compiled", "ours"}
    assert cases["softmax_plans"] == {"one_row", "rows", "once", "again", "long"}
    assert set(cases) == set(benchmarks.BENCHMARKS)


def test_sizes_that_lessons_rely_on(cells):
    def values(benchmark, case, name):
        return [
            cell.parameters[name]
            for cell in cells
            if (cell.benchmark, cell.case) == (benchmark, case)
        ]

    assert values("copy", "torch", "n") == [2**power for power in range(10, 31)]
    assert values("matmul", "bf16", "m") == [512, 1024, 2048, 4096, 8192, 16384]
    for case in ("eager", "compiled"):
        assert values("chain", case, "n")[:-1] == [2**power for power in range(10, 29, 2)]
        assert find(cells, "chain", case, n=N, dtype="bfloat16")
        assert values("fusion", case, "ops") == list(range(1, 17))
        assert find(cells, "residual", case, n=N)


def test_reductions_that_lesson_06_relies_on(cells):
    widths = [2**power for power in (8, 10, 12, 13, 14, 15, 16)]
    for op in ("softmax", "rmsnorm", "layernorm", "rmsnorm_backward", "layernorm_backward"):
        for dtype in ("float32", "bfloat16"):
            for case in ("eager", "compiled", "ours"):
                found = [
                    dict(cell.parameters)
                    for cell in cells
                    if (cell.benchmark, cell.case) == ("reductions", case)
                    and cell.parameters["op"] == op
                    and cell.parameters["dtype"] == dtype
                ]
                assert found == [
                    {"op": op, "rows": N // columns, "columns": columns, "dtype": dtype}
                    for columns in widths
                ]


def test_plans_that_lesson_06_relies_on(cells):
    def plans(case, *names):
        return [
            tuple(cell.parameters[name] for name in names)
            for cell in cells
            if (cell.benchmark, cell.case) == ("softmax_plans", case)
        ]

    assert plans("one_row", "columns", "kept", "warps") == [
        (columns, columns, warps)
        for columns, warps in ((1024, 4), (4096, 8), (16384, 16), (32768, 32), (65536, 32))
    ]
    assert plans("rows", "columns", "dtype", "rows_per_program", "warps") == [
        (256, dtype, rows, 1) for dtype in ("float32", "bfloat16") for rows in (2, 4, 8)
    ]
    for case in ("once", "again"):
        assert plans(case, "columns", "kept", "warps") == [
            (8192, 8192, 8),
            (16384, 16384, 16),
            (32768, 32768, 32),
        ]
    assert plans("long", "columns", "kept", "warps", "step") == [
        (65536, kept, 32, step)
        for kept, step in (
            *((4096, 4096), (8192, 8192), (16384, 8192), (16384, 16384)),
            *((32768, 8192), (32768, 16384)),
        )
    ]


@pytest.fixture
def chosen_plans(monkeypatch):
    """Plans that the shelf's softmax is given, in the place of a launch."""
    from course_utils.kernels import reductions

    plans = []
    monkeypatch.setattr(reductions, "launch", lambda short, long, plan, *rest: plans.append(plan))
    return plans


def test_the_plans_are_those_that_their_rows_name(cells, chosen_plans):
    """And their cases say whether a tile is read again."""
    plans = {}
    for cell in cells:
        if cell.benchmark == "softmax_plans":
            cell.function(torch.empty(1, cell.parameters["columns"]))
            plan, names = chosen_plans[-1], ("rows_per_program", "kept", "warps", "step")
            assert (*plan[:3], plan.tile) == tuple(cell.parameters[name] for name in names)
            assert (plan.registers or 0) == cell.parameters["registers"]
            plans.setdefault(cell.case, []).append(plan[3:])
    assert plans == {
        "one_row": [(False, 0, None)] * 5,
        "rows": [(False, 0, None)] * 6,
        "once": [(False, 0, registers) for registers in (80, 64, None)],
        "again": [(True, 0, registers) for registers in (80, 64, None)],
        "long": [(False, step, None) for step in (4096, 8192, 8192, 16384, 8192, 16384)],
    }
    # All of "again" and one of "long" are what the shelf itself would choose.
    from course_utils.kernels.reductions import plan_for

    chosen = [*plans["again"], plans["long"][3]]
    for columns, plan in zip((8192, 16384, 32768, 65536), chosen, strict=True):
        assert plan_for("softmax", columns, 4)[3:] == plan


def test_every_cell_has_a_row_of_its_own(cells):
    rows = {(cell.benchmark, cell.case, json.dumps(dict(cell.parameters))) for cell in cells}
    assert len(rows) == len(cells)


@pytest.mark.parametrize(
    ("ask", "parameters", "nbytes", "flops"),
    [
        (("copy", "torch"), {"n": N}, 8 * N, 0),
        (("chain", "eager"), {"n": N, "dtype": "float32"}, 40 * N, 5 * N),
        (("chain", "compiled"), {"n": N, "dtype": "float32"}, 8 * N, 5 * N),
        (("chain", "eager"), {"n": N, "dtype": "bfloat16"}, 20 * N, 5 * N),
        (("residual", "eager"), {}, 44 * N, 5 * N),
        (("residual", "compiled"), {}, 8 * N, 5 * N),
        (("fusion", "eager"), {"ops": 16}, 128 * N, 16 * N),
        (("fusion", "compiled"), {"ops": 16}, 8 * N, 16 * N),
        (("matmul", "bf16"), {"m": 8192}, 3 * 2 * 8192**2, 2 * 8192**3),
        (("matmul", "tf32"), {"m": 512}, 3 * 4 * 512**2, 2 * 512**3),
        (("op", "add"), {}, 12 * N, N),
        (("op", "sum"), {}, 4 * N + 4, N),
        (("op", "neg"), {"dtype": "float32"}, 8 * N, N),
        (("op", "neg_in_place"), {}, 8 * N, N),
        (("op", "broadcast_add"), {"columns": 4096}, 8 * N + 4 * 4096, N),
        (("op", "softmax"), {"columns": 1024}, 8 * N, None),
        (("reductions", "eager"), {**SOFTMAX, "columns": 4096}, 8 * N, 5 * N),
        (("reductions", "compiled"), {**SOFTMAX, "columns": 4096}, 8 * N, 5 * N),
        (("reductions", "ours"), {**SOFTMAX, "columns": 65536}, 8 * N, 5 * N),
        (("reductions", "ours"), {**SOFTMAX, "columns": 256, "dtype": "bfloat16"}, 4 * N, 5 * N),
        (("reductions", "eager"), {**RMSNORM}, 8 * N + 4 * 4096, 4 * N + 2 * ROWS),
        (("reductions", "ours"), {**RMSNORM}, 8 * N + 4 * 4096, 4 * N + 2 * ROWS),
        (("reductions", "eager"), {**LAYERNORM}, 8 * N + 8 * 4096, 8 * N),
        (("reductions", "ours"), {**LAYERNORM}, 8 * N + 8 * 4096, 8 * N),
        # w in and dw out; for a LayerNorm b and db as well. Statistics: one or two a row.
        (
            ("reductions", "ours"),
            {**RMSNORM, "op": "rmsnorm_backward"},
            12 * N + 4 * ROWS + 8 * 4096,
            9 * N,
        ),
        (
            ("reductions", "eager"),
            {**LAYERNORM, "op": "layernorm_backward"},
            12 * N + 8 * ROWS + 16 * 4096,
            13 * N,
        ),
        (("softmax_plans", "again"), {"columns": 8192}, 8 * N, 5 * N),
        (("softmax_plans", "rows"), {"rows_per_program": 4, "dtype": "bfloat16"}, 4 * N, 5 * N),
        (
            ("op", "attention"),
            {"tokens": 4096, "implementation": "sdpa"},
            4 * 2 * 4 * 16 * 4096 * 64,
            None,
        ),
    ],
)
def test_counts(cells, ask, parameters, nbytes, flops):
    count = find(cells, *ask, **parameters).count()
    assert count.bytes == nbytes
    if flops is not None:
        assert count.flops == flops


def test_fused_attention_does_the_same_work_with_fewer_bytes(cells):
    naive, sdpa = (
        find(cells, "op", "attention", tokens=4096, implementation=name).count()
        for name in ("naive", "sdpa")
    )
    scores = 4 * 16 * 4096**2
    # Five of the score matrix's passes and more are gone.
    assert naive.bytes - sdpa.bytes > 5 * 2 * scores
    # The two products; the softmax is a few FLOP per score.
    products = 4 * scores * 64
    for count in (naive, sdpa):
        assert products <= count.flops < 1.1 * products


def runs_on_gpus_only(cell):
    """PyTorch lacks the one on the CPU, and has the other with statistics in bfloat16 there."""
    kind = cell.parameters.get("op"), cell.parameters.get("dtype")
    missing = kind[0] == "rmsnorm_backward" or kind == ("layernorm_backward", "bfloat16")
    return missing and cell.case != "ours"


def test_every_function_runs_and_its_parameters_are_true(cells):
    """Each function, on small inputs of the same rank, gives finite values of its inputs' dtype."""
    for cell in cells:
        if cell.function is None:
            continue
        small = [
            torch.randn(
                tuple(min(size, 8) for size in entry.shape), dtype=getattr(torch, entry.dtype)
            )
            for entry in cell.inputs
        ]
        if runs_on_gpus_only(cell):
            small = [tensor.to("meta") for tensor in small]
        results = cell.function(*small)
        for result in results if isinstance(results, tuple) else (results,):
            assert result.dtype == small[0].dtype, cell.title
            assert result.is_meta or torch.isfinite(result).all(), cell.title
        assert cell.parameters.get("dtype", cell.inputs[0].dtype) == cell.inputs[0].dtype
        if "n" in cell.parameters and "m" not in cell.parameters:
            assert cell.inputs[0].shape == (cell.parameters["n"],)


def test_the_shelf_does_the_work_that_it_is_compared_with(cells):
    """Whatever the plan: the same results as eager, from inputs as a norm would have them."""
    rows, columns = 5, 96
    x, dy = torch.randn(2, rows, columns, dtype=torch.float64, requires_grad=True).unbind()
    w, b = torch.randn(2, columns, dtype=torch.float64, requires_grad=True).unbind()
    mean = x.mean(1, keepdim=True)
    rstd = {
        "rmsnorm_backward": (x.square().mean(1, keepdim=True) + 1e-5).rsqrt(),
        "layernorm_backward": (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt(),
    }
    rms = torch.nn.functional.rms_norm(x, (columns,), w, 1e-5)
    centred = torch.nn.functional.layer_norm(x, (columns,), w, b, 1e-5)
    softmax = x.softmax(1)
    expected = {
        "softmax": ((x,), (softmax,)),
        "rmsnorm": ((x, w), (rms,)),
        "layernorm": ((x, w, b), (centred,)),
        "rmsnorm_backward": (
            (dy, x, w, rstd["rmsnorm_backward"]),
            torch.autograd.grad(rms, (x, w), dy),
        ),
        "layernorm_backward": (
            (dy, x, w, b, mean, rstd["layernorm_backward"]),
            torch.autograd.grad(centred, (x, w, b), dy),
        ),
    }
    for cell in cells:
        if cell.benchmark not in ("reductions", "softmax_plans") or runs_on_gpus_only(cell):
            continue
        if cell.parameters["dtype"] != "float32":
            continue
        inputs, wanted = expected[cell.parameters.get("op", "softmax")]
        results = cell.function(*(tensor.detach().float() for tensor in inputs))
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == len(wanted), cell.title
        for result, right in zip(results, wanted, strict=True):
            torch.testing.assert_close(result.double(), right.detach(), rtol=1e-4, atol=1e-5)


def test_a_t4_measures_what_fits(cells):
    memory, capability = 13 * GIB, (7, 5)
    reasons = {cell.title: cell.obstacle(memory, capability) for cell in cells}
    assert "compute capability 8.0" in reasons["matmul bf16 m=512 n=512 k=512"]
    assert reasons["matmul fp16 m=512 n=512 k=512"] is None
    assert reasons["copy torch n=2^30"] is None
    assert "needs 8.0 GiB" in find(cells, "copy", "torch", n=2**30).obstacle(7 * GIB, capability)
    measured = {cell.benchmark for cell in cells if cell.obstacle(memory, capability) is None}
    assert measured == set(benchmarks.BENCHMARKS)


def test_peak_memory_holds_inputs_and_output(cells):
    for cell in cells:
        inputs = sum(entry.nbytes for entry in cell.inputs)
        assert cell.peak_bytes >= 0.99 * inputs, cell.title
        if cell.benchmark in ("reductions", "softmax_plans"):  # one kernel each: and the output
            output = cell.inputs[0].nbytes
            assert inputs + output <= cell.peak_bytes < 1.01 * (inputs + output), cell.title


def test_the_tf32_switch_is_put_back():
    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    with benchmarks.tf32(True):
        assert settings.allow_tf32 is True
        with benchmarks.tf32(False):
            assert settings.allow_tf32 is False
        assert settings.allow_tf32 is True
    assert settings.allow_tf32 is before


def test_matmul_cells_set_the_switch(cells):
    for case, allowed in (("fp32", False), ("tf32", True)):
        with find(cells, "matmul", case, m=512).setting():
            assert torch.backends.cuda.matmul.allow_tf32 is allowed


def test_prepare_makes_random_inputs():
    cell = benchmarks.Cell("x", "y", {}, torch.add, (benchmarks.Input((64,)),) * 2)
    function = cell.prepare(device="cpu")
    first, second = function(), function()
    assert torch.equal(first, second)
    assert first.count_nonzero() == 64
    assert not torch.equal(first, cell.prepare(device="cpu")())


def test_unknown_benchmark():
    with pytest.raises(ValueError, match="no benchmark 'cpoy'; there are: copy, cache"):
        benchmarks.cells(["cpoy"])


def fake_cell(case, outcome, **parameters):
    def measure():
        if isinstance(outcome, Exception):
            raise outcome
        return bench.Timing(outcome, outcome, outcome, 7, "timed on X")

    return benchmarks.Cell("launch", case, parameters, measure=measure)


def test_measure_goes_on_and_says_what_it_left_out(capsys):
    cells = [
        fake_cell("a", 1.23456789),
        fake_cell("b", torch.OutOfMemoryError("no")),
        fake_cell("c", ZeroDivisionError("oops")),
        benchmarks.Cell("copy", "torch", {"n": 4}, peak_bytes=100),
    ]
    rows, skipped, failed = record.measure(cells, memory_bytes=50, capability=(9, 0))
    assert [(row["case"], row["milliseconds"], row["bytes"]) for row in rows] == [
        ("a", 1.2346, None)
    ]
    assert [entry.partition(":")[0] for entry in skipped] == ["launch b", "copy torch n=4"]
    assert failed == ["launch c: oops"]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines] == [f"[  {index}/4] " for index in (1, 2, 3, 4)]
    assert lines[0].endswith("launch a: 1.235 ms")


def test_a_partial_record_is_refused():
    document = sample_record.document()
    with pytest.raises(record.CannotRecordError, match="no row of: copy, cache, matmul, residual"):
        record.check_complete(document, [])
    document["rows"] = [{"benchmark": name} for name in benchmarks.BENCHMARKS]
    record.check_complete(document, [])
    with pytest.raises(record.CannotRecordError, match="1 measurement"):
        record.check_complete(document, ["chain eager: oops"])


@pytest.fixture
def gpu_machine(monkeypatch):
    """A machine that claims to be an H200 and measures one fake cell per benchmark."""
    machine = types.SimpleNamespace(mode="gpu", compute_capability=(9, 0))
    device = types.SimpleNamespace(name="NVIDIA H200", total_memory=150_754_820_096)
    monkeypatch.setattr(record, "_gpu_machine", lambda: machine)
    monkeypatch.setattr(record, "driver_version", lambda: "580.1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: device)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (140 * GIB, 141 * GIB))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(record, "generated_sources", lambda: {"chain": "def kernel(): ..."})
    outcome = {name: 1.0 for name in benchmarks.BENCHMARKS}
    monkeypatch.setattr(
        benchmarks,
        "cells",
        lambda names=None: [
            benchmarks.Cell(name, "add_8", {}, measure=fake_cell("x", outcome[name]).measure)
            for name in names or outcome
        ],
    )
    return outcome


def test_the_command_writes_a_whole_record(gpu_machine, tmp_path):
    path = tmp_path / "h200.json"
    arguments = ["--revision", "abc", "--output", str(path), "--no-counters"]
    assert record.main(arguments) == 0
    found = records.load("h200", tmp_path)
    assert (found.gpu, found.git_revision, found.torch) == ("NVIDIA H200", "abc", torch.__version__)
    assert {row.benchmark for row in found.all_rows} == set(benchmarks.BENCHMARKS)
    assert found.generated == {"chain": "def kernel(): ..."}


def test_the_command_writes_nothing_when_a_measurement_failed(gpu_machine, tmp_path, capsys):
    gpu_machine["chain"] = RuntimeError("oops")
    path = tmp_path / "h200.json"
    arguments = ["--revision", "abc", "--output", str(path), "--no-counters"]
    assert record.main(arguments) == 1
    assert list(tmp_path.iterdir()) == []
    assert "nothing is written" in capsys.readouterr().err


def test_only_some_benchmarks_write_nothing(gpu_machine, tmp_path, capsys):
    path = tmp_path / "h200.json"
    arguments = ["--revision", "abc", "--output", str(path)]
    assert record.main([*arguments, "--only", "copy", "launch", "--only", "softmax_plans"]) == 0
    assert list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    assert re.findall(r"^\[.*\] (\w+)", printed, re.M) == ["copy", "launch", "softmax_plans"]
    assert "3 rows in" in printed


def test_the_command_refuses_without_a_gpu(monkeypatch, capsys):
    import course_utils

    monkeypatch.setattr(course_utils, "setup", lambda: types.SimpleNamespace(mode="interpreter"))
    assert record.main(["--revision", "abc"]) == 1
    assert "there is no GPU here to measure" in capsys.readouterr().err


def test_the_revision_must_be_known(tmp_path):
    with pytest.raises(record.CannotRecordError, match="say it with --revision"):
        record.git_revision(tmp_path)

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True)

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "x")
    clean = record.git_revision(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("2")
    assert record.git_revision(tmp_path) == f"{clean}-dirty"


def test_too_fast_to_be_true():
    def doubt(milliseconds, **row):
        row = {"benchmark": "b", "case": "c", "milliseconds": milliseconds, **row}
        return record.too_fast(row, "h200")

    copied = {"bytes": 8 * N, "flops": 0}
    assert doubt(0.5, parameters={"n": N}, **copied) is None  # 4295 GB/s
    assert "GB/s, the datasheet says 4800" in doubt(0.4, parameters={"n": N}, **copied)
    assert doubt(0.4, parameters={"n": 2**20}, **copied) is None  # may have been in L2
    matrix = {"rows": 2**12, "columns": 2**16}
    assert doubt(0.5, parameters=matrix, **copied) is None
    assert "GB/s, the datasheet says 4800" in doubt(0.4, parameters=matrix, **copied)
    assert doubt(0.4, parameters={"rows": 2**10, "columns": 2**10}, **copied) is None
    product = {"parameters": {"n": 8192}, "bytes": 3 * 2 * 8192**2, "flops": 2 * 8192**3}
    assert doubt(1.6, **product) is None
    assert "TFLOP/s" in doubt(0.1, **product)
    assert record.too_fast({}, "unknown_gpu") is None


def test_table_and_line():
    row = sample_record.document()["rows"][1]
    assert record.describe(row) == "2.530 ms, 4244 GB/s, 0.5 TFLOP/s"
    line = record.table([row]).splitlines()[1]
    assert line.split() == [
        *("chain", "eager", "n=268435456", "dtype=float32"),
        *("2.530", "ms", "10.0%", "4244.0", "0.53"),
    ]
    other = {**row, "benchmark": "a_long_name", "parameters": {"rows": 2**20, "columns": 256}}
    lines = record.table([row, other]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].index("case") == lines[1].index("eager") == lines[2].index("eager")


NCU = """==PROF== Connected to process 41
==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 41
"ID","Process ID","Kernel Name","Block Size","dram__bytes_read.sum","dram__bytes_write.sum"
"","","","","byte","Mbyte"
"0","41","void k<4, (lambda(float) [""x""])>(int, T2)","(128, 1, 1)","1,073,741,824","1,020.5"
"1","41","other","(128, 1, 1)","17.00","0"
"""


def test_ncu_raw_page():
    assert counters.parse(NCU) == [(1_073_741_824, 1_020_500_000), (17, 0)]
    assert counters.parse("==PROF== No kernels were profiled.\n") == []
    with pytest.raises(counters.CannotCountError, match="bytes in 'furlong'"):
        counters.parse(NCU.replace('"byte"', '"furlong"'))
    with pytest.raises(counters.CannotCountError, match="'n/a' where bytes were expected"):
        counters.parse(NCU.replace("17.00", "n/a"))


def test_counted_ops():
    ops = benchmarks.counter_cells()
    assert set(ops) == {
        *("add", "gelu", "softmax", "layernorm", "sum"),
        *("chain_eager", "chain_compiled", "residual_eager", "residual_compiled"),
        *("gelu_ours", "chain_ours", "residual_separate_ours", "bias_residual_ours"),
        *("softmax_ours_4096", "softmax_ours_65536", "rmsnorm_ours_4096", "rmsnorm_ours_65536"),
        *("layernorm_ours_4096", "layernorm_ours_65536"),
        *("rmsnorm_backward_ours_4096", "rmsnorm_backward_ours_65536"),
        *("layernorm_backward_ours_4096", "layernorm_backward_ours_65536"),
    }
    for cell in ops.values():
        assert cell.inputs[0].nbytes >= GIB


@pytest.fixture
def fake_ncu(tmp_path, monkeypatch):
    """A script in ncu's place that writes a log and exits as told."""
    script = tmp_path / "ncu"
    log = tmp_path / "answer.csv"
    log.write_text(NCU)

    def behave(body=""):
        script.write_text(
            f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\ncp "{log}" "$2"\n{body}\n'
        )
        script.chmod(0o755)

    behave()
    monkeypatch.setattr(counters, "find_ncu", lambda: str(script))
    import course_utils

    monkeypatch.setattr(course_utils, "setup", lambda: None)
    return behave


def test_counters_join_the_record(fake_ncu, tmp_path, capsys):
    path = tmp_path / "h200.json"
    records.write(sample_record.document(), path)
    assert counters.main(["--record", str(path)]) == 0
    found = records.load("h200", tmp_path)
    assert [counter.op for counter in found.counters] == list(benchmarks.counter_cells())
    gelu = found.counter("gelu")
    assert (gelu.counted_read, gelu.dram_read, gelu.kernels) == (GIB, GIB + 17, 2)
    assert gelu.read_ratio == pytest.approx(1.0, abs=1e-6)
    assert found.counter("chain_eager").counted_read == 5 * GIB
    assert found.counter("chain_compiled").counted_read == GIB
    assert len(found.all_rows) == 4
    assert found.counters_date == datetime.date.today().isoformat()
    assert found.counters_label.endswith(found.counters_date)
    assert "gelu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1", "may not read the GPU's performance"),
        ("echo broken >&2; exit 3", r"add: ncu gave no counters \(exit status 3\).*broken"),
    ],
)
def test_without_counters_the_record_stays(fake_ncu, tmp_path, capsys, body, message):
    path = tmp_path / "h200.json"
    records.write(sample_record.document(), path)
    before = path.read_bytes()
    fake_ncu(body)
    assert counters.main(["--record", str(path)]) == 1
    assert path.read_bytes() == before
    assert re.search(message, capsys.readouterr().err, flags=re.DOTALL)


def test_ncu_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    monkeypatch.setattr(counters, "PLACES", (str(tmp_path),))
    with pytest.raises(counters.CannotCountError, match="ncu is not installed"):
        counters.find_ncu()
    (tmp_path / "2025.3" / "target").mkdir(parents=True)
    (tmp_path / "2025.3" / "target" / "ncu").write_text("")
    assert counters.find_ncu().endswith("2025.3/target/ncu")
