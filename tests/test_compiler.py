"""Compiling for GPUs that are not here: what comes out, and what is said when nothing does."""

import dataclasses
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import compiler_kernels as kernels
import pytest
import torch
import triton
from triton.runtime.jit import JITFunction

import course_utils
from course_utils import gpus
from course_utils.compiler import CompileError, cache, compile_all, compile_for, errors, process
from course_utils.compiler.assembly import read_ptx
from course_utils.compiler.request import describe
from course_utils.compiler.shelf import generations

X = torch.empty(4096)
FP16 = torch.empty(4096, dtype=torch.float16)
CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The compiler's results of these tests, and no older ones."""
    place = tmp_path_factory.mktemp("compiled")
    before = os.environ.get(cache.PATH_VARIABLE)
    os.environ[cache.PATH_VARIABLE] = str(place)
    yield place
    if before is None:
        del os.environ[cache.PATH_VARIABLE]
    else:
        os.environ[cache.PATH_VARIABLE] = before


@pytest.fixture
def compilations(monkeypatch):
    """The requests that reached a compiler, as they do."""
    seen = []
    run = process.run

    def counted(request, seconds):
        seen.append(request)
        return run(request, seconds)

    monkeypatch.setattr(process, "run", counted)
    return seen


# --- GELU and dot, everywhere -------------------------------------------------------------------


@pytest.fixture(scope="module")
def everywhere():
    """GELU in float32 and a dot in float16 for every generation, by name and capability."""
    jobs = {
        "gelu": (kernels.gelu_kernel, [X, X, 4096], {"BLOCK": 1024}),
        "dot": (
            kernels.dot_kernel,
            [FP16, FP16, X],
            {"M": 128, "N": 128, "K": 16, "num_warps": 8},
        ),
    }
    found = compile_all(jobs.values(), generations())
    pairs = [(name, gpu.compute_capability) for name in jobs for gpu in generations()]
    return dict(zip(pairs, found, strict=True))


def test_there_is_a_gpu_for_each_generation():
    assert [gpu.compute_capability for gpu in generations()] == CAPABILITIES


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_gelu_compiles(everywhere, capability):
    made = everywhere["gelu", capability]
    major, minor = capability
    assert re.search(rf"^\.target sm_{major}{minor}a?$", made.ptx, re.M)
    assert f'"cuda:{major}{minor}"' in made.ttgir
    assert made.gpu.compute_capability == capability
    assert 16 <= made.registers <= 64
    assert (made.spills, made.stack, made.shared_memory) == (0, 0, 0)
    # 1024 elements over 128 threads are two vectors of four floats each.
    assert (made.num_warps, made.threads) == (4, 128)
    assert made.load_bits == made.store_bits == {128: 2}
    assert made.matrix_unit is None
    assert made.fits() and made.occupancy().fraction == 1


def test_dot_uses_matrix_instructions_from_8_0_on(everywhere):
    units = {capability: everywhere["dot", capability].matrix_unit for capability in CAPABILITIES}
    assert units == {
        (7, 5): None,
        (8, 0): "mma",
        (8, 6): "mma",
        (8, 9): "mma",
        (9, 0): "wgmma",
        (10, 0): "tcgen05",
        (12, 0): "mma",
    }


@pytest.mark.parametrize(
    ("capability", "name"), [((7, 5), None), ((8, 0), "HMMA"), ((9, 0), "HGMMA"), ((10, 0), "UTC")]
)
def test_the_machine_code_says_the_same(everywhere, capability, name):
    made = everywhere["dot", capability]
    assert all(instruction.startswith(name) for instruction in made.sass_instructions.matrix)
    assert bool(made.sass_instructions.matrix) == (name is not None)
    assert made.sass_instructions.matrix_unit == made.matrix_unit
    assert set(made.sass_instructions.loads) == set(made.load_bits)
    assert "EXIT" in made.sass and "/* 0x" not in made.sass


def test_results_are_shown_as_text_and_html(everywhere):
    made = everywhere["gelu", (7, 5)]
    assert str(made).splitlines()[0] == ("gelu_kernel(BLOCK=1024) for T4 (compute capability 7.5)")
    assert "global loads          2 of 128 bits" in str(made)
    assert repr(made) == str(made)
    html = made._repr_html_()
    assert "<table>" in html and "2 of 128 bits" in html and "limited by warps" in html


# --- What a launch would compile ----------------------------------------------------------------


def widths(*args, kernel=kernels.gelu_kernel, **meta):
    return compile_for(kernel, args, "h200", **{"BLOCK": 1024, **meta}).load_bits


def test_vector_width_follows_from_the_arguments():
    assert widths(X, X, 4096) == {128: 2}
    assert widths(X[1:], X, 4096) == {32: 8}  # not aligned
    assert widths(X, X, 4095) == {32: 8}  # the mask may end within a vector
    assert widths(X[4:], X, 16) == {128: 2}
    half = torch.empty(4096, dtype=torch.bfloat16)
    assert widths(half, half, 4096) == {128: 1}  # eight elements of two bytes


def test_one_is_a_constant():
    one = compile_for(kernels.strided_kernel, [X, X, 1], "h200", BLOCK=512)
    two = compile_for(kernels.strided_kernel, [X, X, 2], "h200", BLOCK=512)
    assert (one.signature["stride"], two.signature["stride"]) == ("constexpr", "i32")
    assert one.load_bits == {128: 1}
    assert two.load_bits == {32: 4}


def test_types_stand_for_values():
    assert widths("*fp32", "*fp32", "i32:16") == {128: 2}
    assert widths("*fp32:4", "*fp32", "i32:16") == {32: 8}
    assert widths("*fp32", "*fp32", "i32") == {32: 8}
    assert widths(torch.empty(64, device="meta"), "*bf16", 16) == {128: 2}
    assert widths(torch.empty(64, device="meta")[1:], "*bf16", 16) == {32: 8}


def test_what_must_not_be_specialized_is_not():
    """In both modes: what ``@triton.jit`` was given is kept in other places."""
    interpreted, args = kernels.unspecialized_kernel, [X, 4096]
    compiled = JITFunction(interpreted.fn, do_not_specialize=["n"])
    for kernel in (interpreted, compiled):
        made = compile_for(kernel, args, "h200", BLOCK=1024)
        assert made.store_bits == {32: 8}
    assert compile_for(JITFunction(interpreted.fn), args, "h200", BLOCK=1024).store_bits == {128: 2}


def test_tensor_descriptors_are_copied_in_bulk():
    from triton.tools.tensor_descriptor import TensorDescriptor

    tile = TensorDescriptor.from_tensor(torch.empty(64, 64), [32, 32])
    made = compile_for(kernels.descriptor_kernel, [tile, tile, 32, 32], "h200")
    assert made.instructions.bulk_copies >= 2 and made.load_bits == {}
    assert "tensor copies" in str(made)
    older = compile_for(kernels.descriptor_kernel, [tile, tile, 32, 32], "a100")
    assert older.instructions.bulk_copies == 0 and older.load_bits


def test_spilled_registers_are_counted():
    crowded, args = kernels.crowded_kernel, [X, X]
    free = compile_for(crowded, args, "a100", BLOCK=2048, num_warps=1)
    tight = compile_for(crowded, args, "a100", BLOCK=2048, num_warps=1, maxnreg=32)
    assert free.spills == 0 and free.registers > 64
    assert tight.registers <= 32 and tight.stack > 0
    assert tight.spill_stores > 0 and tight.spill_loads > 0
    assert tight.spills == tight.spill_stores + tight.spill_loads
    assert f"{tight.spills} bytes" in str(tight)


def test_large_integers_are_64_bits():
    signature = compile_for(
        kernels.gelu_kernel, {"x_ptr": X, "out_ptr": "*fp16", "n": 2**31}, "h200", BLOCK=64
    ).signature
    assert signature == {"x_ptr": "*fp32", "out_ptr": "*fp16", "n": "i64", "BLOCK": "constexpr"}


def test_both_modes_ask_for_the_same():
    compiled = JITFunction(kernels.gelu_kernel.fn)
    args, meta = [X, X, 4096], {"BLOCK": 1024}
    assert describe(compiled, args, (9, 0), meta) == describe(
        kernels.gelu_kernel, args, (9, 0), meta
    )


def test_every_kind_of_name_is_taken_along():
    made = compile_for(kernels.names_kernel, [X, FP16, kernels.add_one], "h200")
    assert made.store_bits == {16: 1}  # DTYPE
    assert "ex2.approx" in made.ptx or "tanh" in made.ptx  # libdevice
    request = describe(kernels.names_kernel, [X, FP16, kernels.add_one], (9, 0), {})
    assert sorted(function.name for function in request.functions) == [
        "add_one",
        "names_kernel",
        "twice",
    ]


def test_annotations_need_not_be_evaluated(tmp_path, monkeypatch):
    """A module with `from __future__ import annotations`, and types that cannot be sent."""
    (tmp_path / "annotated.py").write_text(
        "from __future__ import annotations\n"
        "import torch, triton\n"
        "import triton.language as tl\n"
        "from triton.language import constexpr as fixed\n"
        "@triton.jit\n"
        "def late(x_ptr: torch.Tensor, BLOCK: tl.constexpr):\n"
        "    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)\n"
    )
    (tmp_path / "evaluated.py").write_text(
        "import torch, triton\n"
        "import triton.language as tl\n"
        "from triton.language import constexpr as fixed, store\n"
        "@triton.jit\n"
        "def early(x_ptr: torch.Tensor, BLOCK: fixed = 64):\n"
        "    store(x_ptr + tl.arange(0, BLOCK), 1.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from annotated import late
    from evaluated import early

    assert compile_for(late, [X], "a100", BLOCK=128).store_bits == {32: 1}
    assert compile_for(early, [X], "a100").store_bits == {32: 1}


def test_autotuned_kernels_take_their_only_configuration():
    request = describe(kernels.tuned_kernel, [X, 512], (9, 0), {})
    assert dict(request.arguments)["BLOCK"] == ("constant", 256)
    assert dict(request.arguments)["EVEN"] == ("constant", True)
    assert dict(request.options)["num_warps"] == 8
    several = triton.autotune(
        [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"]
    )(kernels.gelu_kernel)
    with pytest.raises(TypeError, match=r"autotuned over 2 configurations.*giving BLOCK by name"):
        describe(several, [X, X, 512], (9, 0), {})
    request = describe(several, [X, X, 512], (9, 0), {"BLOCK": 32})
    assert dict(request.arguments)["BLOCK"] == ("constant", 32)


def test_the_process_that_compiles_does_not_interpret(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/opt/ptxas")
    found = process.environment("/somewhere")
    assert "TRITON_INTERPRET" not in found
    assert found["TRITON_PTXAS_PATH"] == "/opt/ptxas"
    assert found["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("args", "gpu", "meta", "error", "message"),
    [
        ([X, X], "h200", {"BLOCK": 64}, TypeError, "needs a value for n. Give its value"),
        ([X, X, 64], "h200", {}, TypeError, "needs a value for BLOCK. Give BLOCK=1024"),
        ([X, X, 64, 64, 1], "h200", {}, TypeError, "takes 4 arguments.*got 5"),
        ({"y": X}, "h200", {}, TypeError, "no parameter 'y'; it has x_ptr, out_ptr, n, BLOCK"),
        ([X, X, 64], "h200", {"n": 1}, TypeError, "got n twice"),
        (X, "h200", {}, TypeError, "as one list, or as a mapping by name"),
        ([X, [1.0], 64], "h200", {"BLOCK": 64}, TypeError, "out_ptr is a list. A kernel takes"),
        (["*f32", X, 64], "h200", {"BLOCK": 64}, ValueError, r"x_ptr is given as '\*f32'.*'\*fp3"),
        ([X, X, "fp16"], "h200", {"BLOCK": 64}, ValueError, "arrives in a kernel as fp32"),
        ([X, X, 64], "h2000", {"BLOCK": 64}, ValueError, "Unknown GPU 'h2000'"),
        ([X, X, 64], "mi300x", {"BLOCK": 64}, ValueError, "Instinct MI300X is from AMD"),
    ],
)
def test_bad_calls_are_refused(args, gpu, meta, error, message, compilations):
    with pytest.raises(error, match=message):
        compile_for(kernels.gelu_kernel, args, gpu, **meta)
    assert not compilations


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="launches a kernel, give the kernel itself"):
        compile_for(kernels.plain_function, [X], "h200")
    scope = {}
    exec("def unseen(x_ptr):\n    pass", scope)
    unseen = type("InterpretedFunction", (), {"fn": scope["unseen"]})()
    with pytest.raises(ValueError, match="source of unseen cannot be found"):
        compile_for(unseen, [X], "h200")


@pytest.mark.skipif(course_utils.machine().mode != "gpu", reason="needs a GPU")
def test_a_launch_on_this_gpu_compiles_the_same():
    capability = course_utils.machine().compute_capability
    gpu = next((gpu for gpu in generations() if gpu.compute_capability == capability), None)
    if gpu is None:
        pytest.skip("this GPU's generation is not in the table")
    x = torch.ones(4096, device="cuda")
    for kernel, args, meta in (
        (kernels.gelu_kernel, [x, x, 4096], {"BLOCK": 1024}),
        (kernels.gelu_kernel, [x[1:], x[1:], 4095], {"BLOCK": 512, "num_warps": 8}),
        (kernels.transpose_kernel, [x, torch.empty_like(x), 64], {"M": 64, "N": 64}),
    ):
        launched = kernel[(1,)](*args, **meta)
        made = compile_for(kernel, args, gpu, **meta)
        assert made.registers == launched.n_regs
        assert made.shared_memory == launched.metadata.shared
        # Source positions differ, and with them the debugging sections.
        assert read_ptx(launched.asm["ptx"]) == made.instructions


# --- Does it fit --------------------------------------------------------------------------------


def test_too_much_shared_memory_is_said():
    made = compile_for(kernels.dot_kernel, [FP16, FP16, X], "a10", M=64, N=64, K=512)
    assert made.shared_memory > gpus.gpu("a10").shared_memory_per_block
    fit = made.fits()
    assert not fit
    assert str(fit) == (
        "dot_kernel needs 131,072 bytes of shared memory for a program, but the A10 has 101,376 "
        "at most: take smaller tiles or fewer num_stages."
    )
    assert made.occupancy().blocks_per_sm == 0
    assert made.occupancy().limited_by == ("shared memory",)
    assert "does not fit" in str(made) and str(fit) in str(made)
    most = gpus.gpu("a10").shared_memory_per_block
    assert dataclasses.replace(made, shared_memory=most).fits()
    assert not dataclasses.replace(made, shared_memory=most + 1).fits()


def test_another_generation_needs_another_compilation(everywhere):
    made = everywhere["gelu", (9, 0)]
    assert made.fits("h100") and made.fits(gpus.gpu("h100_pcie"))
    assert str(made.fits("t4")).startswith(
        "gelu_kernel was compiled for compute capability 9.0, but the T4 has 7.5"
    )
    assert not made.fits("mi300x")


def test_too_many_threads_registers_and_tensor_memory_are_said(everywhere):
    made = everywhere["gelu", (9, 0)]
    wide = dataclasses.replace(made, num_warps=64)
    assert "2048 threads (64 warps)" in str(wide.fits())
    hungry = dataclasses.replace(made, num_warps=16, registers=255)
    assert "255 registers for each of 512 threads, more than the 65,536" in str(hungry.fits())
    blackwell = dataclasses.replace(made, tensor_memory=1024)
    assert "1024 columns of tensor memory, but there are 512" in str(blackwell.fits())


# --- Errors -------------------------------------------------------------------------------------

ARANGE = (kernels.arange_kernel, [X])
FP8 = torch.empty(4096, dtype=torch.float8_e4m3fn)
MISTAKES = {
    "arange of 200": (*ARANGE, {"BLOCK": 200}, "power of 2", "next_power_of_2"),
    "size at run time": (kernels.size_at_run_time, [X, 256], {}, "constexpr", "Annotate"),
    "zeros at run time": (kernels.zeros_at_run_time, [X, 256], {}, "constexpr", "Annotate"),
    "huge tile": (*ARANGE, {"BLOCK": 2**21}, "2097152", "at most 1048576 elements"),
    "dot of 8 x 8": (
        *(kernels.dot_kernel, [FP16, FP16, X], {"M": 8, "N": 8, "K": 8}),
        *("M >= 1, N >= 1 and K >= 16", "Take K = 16 and fill up with zeros"),
    ),
    "dot of two dtypes": (
        *(kernels.dot_kernel, [FP16, X, X], {"M": 16, "N": 16, "K": 16}),
        *("same dtype. Got fp16 and fp32", "b.to(a.dtype)"),
    ),
    "plain global": (
        *(kernels.plain_global, [X], {"BLOCK": 256}),
        *("Cannot access global variable SCALE", "SCALE = tl.constexpr(...)"),
    ),
    "unknown name": (kernels.unknown_name, [X], {"BLOCK": 256}, "offset is not", "spelling"),
    "shapes": (kernels.unlike_shapes, [X], {"BLOCK": 256}, "256 and 512", "[:, None]"),
    "loop": (kernels.changing_dtype, [X], {"BLOCK": 256}, "variable total", "total keeps its"),
    "if": (kernels.if_of_a_tile, [X], {"BLOCK": 256}, "ambiguous", "tl.where"),
    "no pointer": (kernels.no_pointer, [X], {"BLOCK": 256}, "ptr type", "x_ptr + offsets"),
    "pointers": (kernels.added_pointers, [X, X], {"BLOCK": 256}, "pointers", "offsets"),
    "element": (kernels.picked_element, [X], {"BLOCK": 256}, "tensor index", "tl.sum"),
    "python": (kernels.calls_python, [X], {"BLOCK": 256}, "plain_function", "put @triton.jit"),
    "torch": (kernels.calls_torch, [X], {"BLOCK": 256}, "exp", "Triton's own, such as tl.exp"),
    "tanh": (kernels.no_such_function, [X], {"BLOCK": 256}, "'tanh'", "libdevice.tanh"),
    "mean": (kernels.no_such_method, [X], {"BLOCK": 256}, "'mean'", "no .mean"),
    "fp8": (
        *(kernels.dot_kernel, [FP8, FP8, X], {"M": 64, "N": 64, "K": 64}),
        *("not supported", "compute capability 8.9"),
    ),
    "break": (kernels.breaks, [X, 8], {}, "Break", "`while`"),
    "return": (kernels.returns_in_loop, [X, 8], {}, "return", "outside of loops"),
    "import": (kernels.imports, [X], {}, "Import", "stay outside"),
    "option": (*ARANGE, {"BLOCK": 256, "num_warp": 4}, "num_warp", "Mind the spelling"),
    "three warps": (*ARANGE, {"BLOCK": 256, "num_warps": 3}, "power of 2", "num_warps=1, 2"),
    "cluster": (*ARANGE, {"BLOCK": 256, "num_ctas": 2}, "num_ctas > 1", "Leave num_ctas out"),
    "int8 dot": (
        *(kernels.int_dot_kernel, [X.to(torch.int8), X.to(torch.int8), X.to(torch.int32)]),
        *({"M": 64}, "floating-point-like", "cannot multiply integers with tl.dot"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_what_to_do(mistake):
    kernel, args, meta, message, advice = MISTAKES[mistake]
    with pytest.raises(CompileError) as caught:
        compile_for(kernel, args, "t4", **meta)
    error = caught.value
    assert message in error.message
    assert "\n" not in error.message and len(error.message) < 200
    assert advice in error.advice
    assert str(error).startswith(f"{kernel.__name__} does not compile for the T4: ")
    assert f"\nWhat to do: {error.advice}" in str(error)
    assert error.details


def test_every_advice_is_provoked():
    """So that a message that Triton words anew does not go unnoticed."""
    provoked = set()
    for kernel, args, meta, *_ in MISTAKES.values():
        try:
            compile_for(kernel, args, "t4", **meta)
        except CompileError as error:
            provoked |= {p for p, _ in errors.ADVICE if re.search(p, error.message)}
    assert [pattern for pattern, _ in errors.ADVICE if pattern not in provoked] == []


def test_an_error_points_at_the_line():
    with pytest.raises(CompileError) as caught:
        compile_for(*ARANGE, "t4", BLOCK=200)
    first, mark = caught.value.where.splitlines()
    assert first.strip() == "offsets = tl.arange(0, BLOCK)"
    assert first[mark.index("^") :].startswith("tl.arange")


@pytest.mark.parametrize(
    ("kernel", "args", "line"),
    [
        # Its own line in a helper, but never one in Triton's library.
        (kernels.calls_it, [X], "return x + tl.arange(0, 3)"),
        (kernels.zeros_at_run_time, [X, 8], "tl.store(x_ptr, tl.sum(tl.zeros((n,), tl.float32)))"),
    ],
)
def test_an_error_points_at_the_readers_own_line(kernel, args, line):
    with pytest.raises(CompileError) as caught:
        compile_for(kernel, args, "t4")
    assert caught.value.where.splitlines()[0].strip() == line


def test_errors_take_their_place_in_a_table():
    found = compile_all(
        [(*ARANGE, {"BLOCK": 64}), (*ARANGE, {"BLOCK": 200}), (*ARANGE, {"BLOCK": 2048})],
        ["t4"],
    )
    head, good, bad, better = str(found).splitlines()
    assert head.split() == [
        *("kernel", "GPU", "warps", "registers", "spilled", "shared", "loads", "stores", "matrix"),
        *("occupancy", "limited", "by"),
    ]
    assert good.startswith("arange_kernel(BLOCK=64) ") and bad.startswith(
        "arange_kernel(BLOCK=200) "
    )
    assert "1 × 32 b" in good and "4 × 128 b" in better
    assert bad.endswith("does not compile: arange's range must be a power of 2")
    assert len(found.errors) == 1 and isinstance(found[1], CompileError)
    assert found._repr_html_().count("<tr>") == 4


def test_an_aborting_compiler_is_an_error():
    with pytest.raises(CompileError, match="for the T4: no such instruction") as caught:
        compile_for(kernels.aborting_kernel, [X], "t4")
    assert "the compiler ended with SIGABRT" in caught.value.message
    assert caught.value.details == "LLVM ERROR: no such instruction"
    assert "defect of Triton" in caught.value.advice
    assert compile_for(*ARANGE, "t4", BLOCK=128)  # and the next one compiles


def test_a_slow_compiler_is_stopped():
    compile_for(*ARANGE, "t4", BLOCK=256)  # so that there is a process
    start = time.perf_counter()
    with pytest.raises(CompileError, match=r"stopped after 0\.5 s") as caught:
        compile_for(kernels.endless_kernel, [X], "t4", time_limit=0.5)
    assert time.perf_counter() - start < 3
    assert "static_range" in caught.value.advice
    assert compile_for(*ARANGE, "t4", BLOCK=512)


def test_a_process_that_idled_out_is_replaced(compilations):
    compile_for(*ARANGE, "t4", BLOCK=1024, num_warps=1)
    for waiting in process._idle:
        waiting.process.stdin.close()
        waiting.process.wait(timeout=30)
        waiting.process.stdin = open(os.devnull, "wb")  # it looks alive until it is used
        waiting.process.poll = lambda: None
    assert compile_for(*ARANGE, "t4", BLOCK=1024, num_warps=2)
    assert len(compilations) == 2


def test_a_compiler_ends_with_the_process_that_asked(tmp_path):
    """Even killed in the middle of an endless compilation."""
    program = (
        "import compiler_kernels as kernels\n"
        "from course_utils.compiler import compile_for, process\n"
        "start = process._Process.run\n"
        "def run(self, *args):\n"
        "    print(self.process.pid, flush=True)\n"
        "    return start(self, *args)\n"
        "process._Process.run = run\n"
        "compile_for(kernels.endless_kernel, ['*fp32'], 't4')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as asking:
        pid = int(next(line for line in asking.stdout if line.strip().isdigit()))
        time.sleep(0.5)
        asking.kill()
    deadline = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _runs(pid):
    try:
        # The letter behind the name is the state; Z waits for somebody to notice that it ended.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- The cache ----------------------------------------------------------------------------------


def test_a_second_time_costs_nothing(compilations):
    args = [X, X, 4096]
    first = compile_for(kernels.gelu_kernel, args, "a100", BLOCK=256)
    start = time.perf_counter()
    second = compile_for(kernels.gelu_kernel, args, "a100", BLOCK=256)
    assert time.perf_counter() - start < 0.2
    assert second == first and len(compilations) == 1
    # A GPU of the same capability needs no compiler either, but has its own limits.
    other = compile_for(kernels.gelu_kernel, args, "a100_80gb", BLOCK=256)
    assert len(compilations) == 1 and other.gpu.key == "a100_80gb"
    compile_for(kernels.gelu_kernel, args, "a100", use_cache=False, BLOCK=256)
    assert len(compilations) == 2


def test_what_changes_the_code_is_compiled_anew(compilations, monkeypatch):
    def compiled(args=(X, X, 4096), gpu="l4", **meta):
        compile_for(kernels.gelu_kernel, args, gpu, **{"BLOCK": 256, **meta})
        return len(compilations)

    assert compiled() == 1
    assert compiled(num_warps=8) == 2
    assert compiled(BLOCK=512) == 3
    assert compiled(gpu="a10") == 4
    assert compiled((X, X, 4095)) == 5
    assert compiled((X, X, 2048)) == 6  # another value, though the same code
    monkeypatch.setattr(triton, "__version__", "0.0")
    assert compiled() == 7
    assert compiled() == 7


def test_a_helper_or_constant_that_changes_is_noticed(monkeypatch):
    import triton.language as tl

    request = describe(kernels.gelu_kernel, [X, X, 64], (9, 0), {"BLOCK": 64})
    monkeypatch.setattr(kernels, "HALF", tl.constexpr(0.25))
    constant = describe(kernels.gelu_kernel, [X, X, 64], (9, 0), {"BLOCK": 64})
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "gelu", kernels.add_one)
    helper = describe(kernels.gelu_kernel, [X, X, 64], (9, 0), {"BLOCK": 64})
    assert len({cache.key(item) for item in (request, constant, helper)}) == 3


def test_a_spoilt_or_missing_cache_only_costs_time(compilations, folder, monkeypatch, tmp_path):
    compile_for(*ARANGE, "b200", BLOCK=64)
    for entry in folder.iterdir():
        entry.write_bytes(b"spoilt")
    compile_for(*ARANGE, "b200", BLOCK=64)
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv(cache.PATH_VARIABLE, str(blocked))  # no folder, and none can be made
    compile_for(*ARANGE, "b200", BLOCK=64)
    assert len(compilations) == 3


def test_the_cache_does_not_grow_for_ever(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.PATH_VARIABLE, str(tmp_path))
    monkeypatch.setattr(cache, "ENTRIES", 10)
    for number in range(15):
        cache.store(str(number), number)
        os.utime(tmp_path / str(number), (number, number))
    assert cache.load("0") is None and cache.load("14") == 14
    assert len(list(tmp_path.iterdir())) <= 10
    monkeypatch.delenv(cache.PATH_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache.folder() == tmp_path / "cache" / "writing-fast-kernels" / "compiled"
