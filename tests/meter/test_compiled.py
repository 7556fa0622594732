"""What torch.compile generates is counted by its arguments."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from course_utils.examples import chain, residual_block
from course_utils.meter import Meter, compiled
from course_utils.meter.compiled import Parameter, count_call, kernels_in

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")

ROOT = Path(__file__).resolve().parents[2]
N = 1000


def missing_compiler() -> str:
    """Say why torch.compile cannot make kernels here; empty where it can."""
    if torch.cuda.is_available():
        return ""
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler on a machine without a GPU, and finds none"
    return ""


@pytest.fixture(scope="session", autouse=True)
def reset_dynamo():
    yield
    torch._dynamo.reset()


@pytest.fixture
def compile_function():
    """torch.compile, where it can make kernels."""
    reason = missing_compiler()
    if reason:
        pytest.skip(reason)
    return torch.compile


@pytest.mark.parametrize("block", [chain, residual_block], ids=lambda f: f.__name__)
def test_a_fused_chain_makes_two_trips(device, compile_function, block):
    x = torch.linspace(-2, 2, N, device=device)
    fused = compile_function(block)
    for _ in range(2):  # while it is compiled, and from then on
        with Meter() as meter:
            y = fused(x)
        assert meter.trips(x) == 2.0
        (launch,) = meter.launches
        assert launch.kind == "compiled"
        assert "fused" in launch.name
        assert [a.bytes_read for a in launch.arguments.values()] == [4 * N, 0]
        assert [a.bytes_written for a in launch.arguments.values()] == [0, 4 * N]
        assert launch.notes == (
            "kernels from torch.compile are counted by their arguments, each byte once; "
            "their FLOPs are not counted",
        )
    torch.testing.assert_close(y, block(x))


def test_what_was_compiled_outside_is_counted_inside_only(device, compile_function):
    x = torch.linspace(-2, 2, N, device=device)
    fused = compile_function(chain)
    fused(x)
    with Meter() as outer:
        fused(x)
        with Meter() as inner:
            fused(x)
    fused(x)
    assert (outer.trips(x), inner.trips(x)) == (4.0, 2.0)


def test_nothing_of_inductor_stays_wrapped(device, compile_function):
    from torch._inductor.codecache import PyCodeCache

    def wrapped() -> list[str]:
        return [
            name
            for module in PyCodeCache.modules
            for name, value in vars(module).items()
            if isinstance(value, compiled._CountedKernel)
        ]

    loader = PyCodeCache.load_by_key_path
    x = torch.linspace(-2, 2, N, device=device)
    fused = compile_function(chain)
    with Meter():
        fused(x)
        assert wrapped()
        assert PyCodeCache.load_by_key_path is not loader
    assert wrapped() == []
    assert PyCodeCache.load_by_key_path == loader

    def broken(x):
        raise ValueError("while it is compiled")

    with pytest.raises(ValueError, match="while it is compiled"), Meter():
        fused(x)
        compile_function(broken)(x)
    assert wrapped() == []
    assert PyCodeCache.load_by_key_path == loader


def test_what_stays_outside_the_kernels_is_counted_as_ever(device, compile_function):
    a, b = torch.ones(64, 32, device=device), torch.ones(32, 64, device=device)
    fused = compile_function(lambda a, b: torch.relu(a @ b) + 1.0)
    with Meter() as meter:
        fused(a, b)
    assert [(launch.name, launch.kind) for launch in meter.launches][:1] == [("mm", "torch")]
    assert meter.launches[0].traffic.flops == 2 * 64 * 32 * 64
    assert [launch.kind for launch in meter.launches[1:]] == ["compiled"]
    assert meter.launches[1].traffic.bytes == 2 * 64 * 64 * 4


def test_a_compiled_backward_pass_is_counted(device, compile_function):
    x = torch.linspace(-1, 1, N, device=device).requires_grad_()
    fused = compile_function(lambda x: torch.sin(x) * 2.0)
    with Meter() as meter:
        fused(x).backward(torch.ones(N, device=device))
    kernels = [launch for launch in meter.launches if launch.kind == "compiled"]
    assert [launch.traffic.bytes for launch in kernels] == [2 * 4 * N, 3 * 4 * N]
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_torch_compile_first_used_inside_a_meter(device, compile_function):
    script = f"""
        import course_utils
        course_utils.machine()
        import sys, torch
        from course_utils.examples import chain
        from course_utils.meter import Meter
        original = torch.compile
        assert "torch._dynamo" not in sys.modules
        x = torch.ones({N}, device={device!r})
        with Meter() as meter:
            assert torch.compile is not original
            torch.compile(chain)(x)
        assert torch.compile is original
        print(meter.trips(x), len(meter.launches))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["2.0", "1"], result.stderr


# -- reading what Inductor writes -----------------------------------------------------------------


POINTWISE = """
from torch._inductor.runtime import triton_helpers

triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
import triton
import triton.language as tl

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    inductor_meta={'kernel_name': 'triton_poi_fused_add_0', 'mutated_arg_names': ['in_out_ptr0']},
)
@triton.jit
def triton_poi_fused_add_0(in_out_ptr0, in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
''', device_str='cuda')
"""

SCAN = """
triton_per_fused_cumsum_1 = async_compile.triton('triton_per_fused_cumsum_1', '''
@triton.jit
def _triton_helper_fn_add0(arg0_0, arg1_0):
    return arg0_0 + arg1_0

@triton.jit
def triton_per_fused_cumsum_1(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
"""

TEMPLATE = """
triton_tem_fused_mm_2 = async_compile.triton('triton_tem_fused_mm_2', '''
@triton_heuristics.template(
    inductor_meta={'kernel_name': 'Placeholder.DESCRIPTIVE_NAME', 'mutated_arg_names': []},
)
@triton.jit
def triton_tem_fused_mm_2(arg_A, arg_B, out_ptr0):
    pass
''', device_str='cuda')

scale_kernel_0 = async_compile.triton('scale_kernel', '''
@triton_heuristics.user_autotune(
    inductor_meta={'kernel_name': 'scale_kernel_0', 'mutated_arg_names': ['y_ptr']},
)
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK : tl.constexpr):
    pass
''', device_str='cuda')
"""

CPP = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* in_out_ptr0,
                       float* out_ptr1,
                       const int64_t ks0)
{
    {
        for(int64_t x0=0; x0<1000; x0+=8) { }
    }
}
''')
"""

READ, WRITTEN, BOTH = (True, False), (False, True), (True, True)


@pytest.mark.parametrize(
    "source, expected",
    [
        (
            POINTWISE,
            {
                "triton_poi_fused_add_0": {
                    "in_out_ptr0": BOTH, "in_ptr0": READ, "out_ptr0": WRITTEN, "xnumel": READ,
                    "XBLOCK": READ,
                }
            },
        ),
        (
            SCAN,
            {
                "triton_per_fused_cumsum_1": {
                    "in_ptr0": READ, "out_ptr0": WRITTEN, "xnumel": READ, "r0_numel": READ,
                    "XBLOCK": READ,
                }
            },
        ),
        (
            TEMPLATE,
            {
                "triton_tem_fused_mm_2": {"arg_A": READ, "arg_B": READ, "out_ptr0": WRITTEN},
                "scale_kernel_0": {"x_ptr": READ, "y_ptr": WRITTEN, "n": READ, "BLOCK": READ},
            },
        ),
        (
            CPP,
            {
                "cpp_fused_add_0": {
                    "in_ptr0": READ, "in_out_ptr0": BOTH, "out_ptr1": WRITTEN, "ks0": READ,
                }
            },
        ),
        ("no kernel here", {}),
    ],
    ids=["pointwise", "scan", "template and user kernel", "C++", "none"],
)  # fmt: skip
def test_kernels_are_found_in_the_generated_source(source, expected):
    found = {
        name: {p.name: (p.is_read, p.is_written) for p in parameters}
        for name, parameters in kernels_in(source).items()
    }
    assert found == expected


def test_all_kernels_of_a_module_are_found():
    assert list(kernels_in(POINTWISE + SCAN + TEMPLATE + CPP)) == [
        "triton_poi_fused_add_0", "triton_per_fused_cumsum_1", "triton_tem_fused_mm_2",
        "scale_kernel_0", "cpp_fused_add_0",
    ]  # fmt: skip


def test_a_call_counts_tensors_and_skips_numbers():
    parameters = [
        Parameter("in_ptr0", True, False),
        Parameter("in_out_ptr0", True, True),
        Parameter("xnumel", True, False),
    ]
    launch = count_call("kernel", parameters, (torch.ones(10), torch.ones(5).expand(3, 5), 15))
    assert {name: (a.bytes_read, a.bytes_written) for name, a in launch.arguments.items()} == {
        "in_ptr0": (40, 0),
        "in_out_ptr0": (20, 20),
    }
    assert launch.traffic.bytes == 80


class FakeKernel:
    launcher = "its own attribute"

    def run(self, *args, stream):
        return stream


def test_a_wrapped_triton_kernel_is_counted_when_it_runs():
    parameters = [Parameter("in_ptr0", True, False)]
    kernel = compiled._CountedKernel(FakeKernel(), "triton_poi_fused_0", parameters)
    x = torch.ones(10)
    assert kernel.run(x, 10, stream=7) == 7
    with Meter() as outer, Meter() as inner:
        assert kernel.run(x, 10, stream=7) == 7
    assert [launch.traffic.bytes_read for launch in outer.launches] == [40]
    assert [launch.name for launch in inner.launches] == ["triton_poi_fused_0"]
    assert kernel.launcher == "its own attribute"
