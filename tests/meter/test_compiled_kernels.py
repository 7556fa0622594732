"""Kernels made to be compiled are metered in the same process, with the same counts.

That is the state on a machine with a GPU. It needs none to be tested: in a child process without
TRITON_INTERPRET and NUMBA_ENABLE_CUDASIM, `triton.jit` and `cuda.jit` make such kernels anywhere,
and the meter interprets them.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAME_TESTS = ("test_triton_tiles.py", "test_findings.py", "test_isolation.py", "test_cuda_warps.py")
SIMULATED = ("TRITON_INTERPRET", "NUMBA_ENABLE_CUDASIM")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess:
    variables = {k: v for k, v in os.environ.items() if k not in SIMULATED}
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(os.environ.get("METER_TESTS") == "compiled", reason="this is the child")
def test_compiled_kernels_pass_the_same_tests():
    modules = [f"tests/meter/{module}" for module in SAME_TESTS]
    result = run("-m", "pytest", *modules, "-q", "-p", "no:cacheprovider", METER_TESTS="compiled")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
    assert " passed" in result.stdout


SCRIPT = """
import sys

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import interpreter, jit

sys.path.insert(0, "tests/meter")
import meter_kernels
from course_utils.meter import Meter, triton_tiles

SCALE = tl.constexpr(3.0)


@triton.jit
def helper(x):
    return meter_kernels.scale_and_shift(x) * SCALE


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    x = helper(x) + tl.sum(x, axis=0) + x.max(axis=0)
    for _ in range(0, tl.cdiv(n, BLOCK)):
        x += 1.0
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def failing(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, helper(tl.load(x_ptr)) + tl.sum(tl.zeros((8,), tl.float32), axis=0))
    tl.static_assert(n == 0)


def compile_for_a_gpu():
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=kernel, signature=signature, constexprs={(3,): 128})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def spaces():
    classes = [c for c in vars(tl.core).values() if isinstance(c, type)]
    modules = [tl, tl.core, tl.math, tl.standard, interpreter, meter_kernels]
    return [*modules, jit.JITFunction, *classes]


def meter_it(which):
    x, out = torch.arange(100.0), torch.zeros(100)
    with Meter() as meter:
        which[(1,)](x, out, 100, BLOCK=128)
    assert meter.trips(x) == 2.0, meter
    assert torch.equal(out, (2 * x + 1) * 3 + x.sum() + x.max() + 1)


assert isinstance(kernel, jit.JITFunction), "this process compiles"
triton_tiles.repair_interpreter()
interpreter._implicit_cvt(1)
own_names = set(globals())
before = [(space, dict(vars(space))) for space in spaces()]

meter_it(kernel)
try:
    meter_it(failing)
except interpreter.InterpreterError:
    pass
else:
    raise SystemExit("the failing kernel did not fail")

for space, old in before:
    for name, value in vars(space).items():
        if name.startswith("__") and name not in ("__call__", "__index__", "__bool__"):
            continue
        if name not in old and value is getattr(space.__mro__[-1], name, None):
            continue
        assert old.get(name) is value, f"{space}.{name} has changed"
    assert old.keys() <= vars(space).keys()
print("names left behind:", sorted(set(globals()) - own_names - {"own_names", "before", "space",
      "old", "name", "value"}))

ptx = compile_for_a_gpu()
assert ".target sm_90" in ptx
meter_it(kernel)
print("compiled and metered")


def factory(factor: tl.constexpr):
    @triton.jit
    def times(x):
        return x * factor

    @triton.jit
    def closure(x_ptr, out_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out_ptr + i, times(tl.load(x_ptr + i)))

    return closure


for factor in (2.0, 5.0):
    x, out = torch.arange(8.0), torch.zeros(8)
    with Meter() as meter:
        factory(tl.constexpr(factor))[(1,)](x, out, BLOCK=8)
    assert torch.equal(out, x * factor)
print("closures metered")

calls = []
kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append(args))
meter_it(kernel)
assert len(calls) == 1 and len(kernel.pre_run_hooks) == 1
print("hooks run")
"""


def test_compilation_works_after_metering(tmp_path):
    """Nothing is left in triton.language or in the kernel's module that a compiler would see."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    result = run(str(script), PYTHONPATH=f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == [
        "names left behind: []",
        "compiled and metered",
        "closures metered",
        "hooks run",
    ]
