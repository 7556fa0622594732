"""The shelf's element-wise kernels: right, safe, refusing, and as few trips as they promise.

Without a GPU they run in the interpreter, on small sizes; with one they run natively too, up to
more than 2^31 elements.
"""

from __future__ import annotations

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import course_utils
from course_utils import Meter, examples
from course_utils.kernels import elementwise as shelf

MACHINE = course_utils.machine()
NATIVE = MACHINE.mode == "gpu"
DEVICE = MACHINE.device
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SIZES = [1, 2, 31, 32, 33, 127, 1000, 4097]
on_gpu = pytest.mark.skipif(not NATIVE, reason="needs a GPU")


def with_residual(x, residual):
    return residual + F.gelu(x * 1.5 + 0.25) * 0.5


def with_bias(x, bias):
    return x + F.gelu(x * 1.5 + bias) * 0.5


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


# name: ours, PyTorch's, number of vectors
FLAT = {
    "add": (shelf.vector_add, torch.add, 2),
    "gelu": (shelf.fused_gelu, F.gelu, 1),
    "gelu_tanh": (lambda x, out=None: shelf.fused_gelu(x, "tanh", out), gelu_tanh, 1),
    "chain": (shelf.fused_chain, examples.chain, 1),
    "residual": (shelf.fused_residual_block, examples.residual_block, 1),
    "separate": (shelf.fused_residual_block, with_residual, 2),
}


@pytest.fixture(params=FLAT)
def flat(request):
    """Ours, PyTorch's, the number of vectors of each flat function."""
    return FLAT[request.param]


def vectors(count, *shape, dtype=torch.float32, seed=0):
    """Normal numbers of standard deviation 2, drawn in the low dtype itself."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [2 * torch.randn(shape, generator=generator) for _ in range(count)]
    return [x.to(dtype).to(DEVICE) for x in drawn]


def error(result, exact):
    """Relative error, in float64; 0 for two empty tensors."""
    norm = exact.norm().item()
    return (result.double() - exact).norm().item() / norm if norm else 0.0


def assert_as_exact_as_torch(result, function, *inputs):
    """The error against float64 is at most twice PyTorch's own, and a rounding on few elements."""
    assert (result.dtype, result.shape) == (inputs[0].dtype, inputs[0].shape)
    exact = function(*(x.double() for x in inputs))
    rounding = torch.finfo(result.dtype).eps / 2
    # Where thousands of errors average out there is no luck that would need an allowance.
    allowance = 2 * rounding if result.numel() < 1000 else rounding / 10
    if result.dtype == torch.bfloat16 and not NATIVE:
        allowance = 2 * rounding  # the interpreter cuts bfloat16 off instead of rounding it
    limit = 2 * error(function(*inputs), exact) + allowance
    assert error(result, exact) <= limit
    assert result.isfinite().all()


# --- right ----------------------------------------------------------------------------------------


# The interpreter is slow, and 4097 elements make several blocks and a tail too.
LONGEST = [(100_003, dtype) for dtype in (DTYPES if NATIVE else DTYPES[:1])]


@pytest.mark.parametrize(("n", "dtype"), [*itertools.product(SIZES, DTYPES), *LONGEST])
def test_flat(flat, n, dtype):
    ours, function, count = flat
    inputs = vectors(count, n, dtype=dtype, seed=n)
    before = [x.clone() for x in inputs]
    assert_as_exact_as_torch(ours(*inputs), function, *inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_is_filled_and_nothing_beside_it(flat, dtype):
    """Each tensor lies between NaN or sentinels, at an odd multiple of the element size."""
    ours, function, count = flat
    n = 1000
    surrounded = [torch.full((n + 64,), math.nan, dtype=dtype, device=DEVICE) for _ in range(count)]
    inputs = [buffer[3 : 3 + n].copy_(x) for buffer, x in zip(
        surrounded, vectors(count, n, dtype=dtype), strict=True)]  # fmt: skip
    buffer = torch.full((n + 64,), -7.0, dtype=dtype, device=DEVICE)
    out = buffer[5 : 5 + n].fill_(math.nan)
    assert ours(*inputs, out=out) is out
    assert_as_exact_as_torch(out, function, *inputs)
    assert (buffer[:5] == -7).all() and (buffer[5 + n :] == -7).all()


def test_in_place(flat):
    ours, _, count = flat
    for place in range(count):
        inputs = vectors(count, 2050)
        expected = ours(*inputs)
        assert ours(*inputs, out=inputs[place]) is inputs[place]
        assert torch.equal(inputs[place], expected)


def test_the_residual_may_be_x_itself():
    (x,) = vectors(1, 100)
    with Meter() as meter:
        shelf.fused_residual_block(x, x)
    assert meter.trips(x) == 2
    assert torch.equal(shelf.fused_residual_block(x, x), shelf.fused_residual_block(x))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (7, 11), (2, 3, 4, 5)])
def test_any_shape(flat, shape):
    ours, function, count = flat
    inputs = vectors(count, *shape)
    assert_as_exact_as_torch(ours(*inputs), function, *inputs)


def test_any_order_of_dimensions(flat):
    ours, function, count = flat
    for turn in (lambda x: x.t(), lambda x: x.view(6, 50, 9).permute(2, 0, 1), lambda x: x[:, :1]):
        inputs = [turn(x) for x in vectors(count, 300, 9)]
        if not inputs[0].is_contiguous() and inputs[0].shape == (300, 1):
            with pytest.raises(ValueError, match="x has gaps"):
                ours(*inputs)
            continue
        result = ours(*inputs)
        assert result.stride() == inputs[0].stride()
        assert_as_exact_as_torch(result, function, *inputs)


def test_dimensions_of_one_element_do_not_matter():
    (x,) = vectors(1, 40)
    odd = x.as_strided((1, 40), (7, 1))
    assert torch.equal(shelf.fused_chain(odd, out=torch.empty(1, 40, device=DEVICE))[0],
                       shelf.fused_chain(x))  # fmt: skip


BIAS_SHAPES = [(1, 1), (1, 300), (300, 1), (8, 256), (33, 257), (100, 70), (0, 5), (5, 0)]


def test_tiles_of_narrow_matrices_are_narrow():
    assert shelf.tile_of(4096, 4096) == (8, 256)
    assert shelf.tile_of(4096, 1) == (2048, 1)
    assert shelf.tile_of(1, 5000) == (1, 2048)
    assert shelf.tile_of(5, 5) == (8, 8)
    assert shelf.tile_of(10**6, 20) == (64, 32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", BIAS_SHAPES)
def test_bias_by_column(shape, dtype):
    (x,), (bias,) = vectors(1, *shape, dtype=dtype), vectors(1, shape[1], dtype=dtype, seed=1)
    result = shelf.fused_bias_residual_block(x, bias)
    assert_as_exact_as_torch(result, with_bias, x, bias)


STRIDED = {
    "transposed": lambda x: x.t(),
    "columns with gaps": lambda x: x[:, ::3],
    "rows with gaps": lambda x: x[::2],
    "both, turned": lambda x: x[::2, ::3].t(),
    "one row, expanded": lambda x: x[:1].expand(20, -1),
    "one column, expanded": lambda x: x[:, :1].expand(-1, 20),
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("own_out", [False, True])
def test_bias_with_any_strides(name, own_out):
    (whole,) = vectors(1, 60, 90)
    x = STRIDED[name](whole)
    bias = vectors(1, 2 * x.shape[1], seed=1)[0][::2]
    out = torch.full((x.shape[1], 2 * x.shape[0]), math.nan, device=DEVICE)[:, ::2].t()
    result = shelf.fused_bias_residual_block(x, bias, out if own_out else None)
    assert (result is out) == own_out
    assert_as_exact_as_torch(result, with_bias, x, bias)


def test_bias_in_place_and_beside():
    (x,), (bias,) = vectors(1, 40, 300), vectors(1, 300, seed=1)
    expected = shelf.fused_bias_residual_block(x, bias)
    buffer = torch.full((44, 310), -7.0, device=DEVICE)
    part = buffer[2:42, 5:305].copy_(x)
    assert shelf.fused_bias_residual_block(part, bias, out=part) is part
    assert torch.equal(part, expected)
    part.fill_(-7)
    assert (buffer == -7).all()


def test_offsets_of_64_bits():
    """Rows 2^30 elements apart, in memory of which only a few pages are ever touched."""
    try:
        memory = torch.empty(2**31 + 100, dtype=torch.float16, device=DEVICE)
    except (RuntimeError, torch.OutOfMemoryError):
        pytest.skip("no 4 GiB of address space")
    (values,), (bias,) = vectors(1, 3, 40, dtype=torch.float16), vectors(1, 40, dtype=torch.float16)
    far = memory.as_strided((3, 40), (2**30, 1)).copy_(values)
    result = shelf.fused_bias_residual_block(far, bias, out=torch.empty_like(values))
    assert torch.equal(result, shelf.fused_bias_residual_block(values, bias))
    shelf.fused_bias_residual_block(far, bias, out=far)
    assert torch.equal(far, result)


# The interpreter cuts bfloat16 off instead of rounding it.
@pytest.mark.parametrize("dtype", DTYPES[1:] if NATIVE else [torch.float16])
def test_arithmetic_is_done_in_float32(flat, dtype):
    """A result of 16 bits is that of float32, rounded once."""
    ours, _, count = flat
    inputs = vectors(count, 4097, dtype=dtype)
    assert torch.equal(ours(*inputs), ours(*(x.float() for x in inputs)).to(dtype))


# --- special values -------------------------------------------------------------------------------

UNARY = ["gelu", "gelu_tanh", "chain", "residual"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, dtype):
    ours, function, _ = FLAT[name]
    values = [0.0, -0.0, math.nan, math.inf, 1e4, -1e4, 30.0, -30.0, 1e-6, -1e-6]
    x = torch.tensor(values, dtype=dtype, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ours(x)
    wanted = function(x.double())
    wanted[3] = function(torch.tensor([1e30], dtype=torch.float64, device=DEVICE)) * math.inf
    assert torch.equal(result.isnan(), x.isnan())
    others = ~x.isnan()
    tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(
        result[others].double(), wanted[others], rtol=tolerance, atol=1e-7, check_dtype=False
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_infinity_gives_the_limit(dtype):
    x = torch.tensor([-math.inf], dtype=dtype, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shelf.fused_gelu(x).item() == 0
        assert shelf.fused_chain(x).item() == 1
        assert shelf.fused_residual_block(x).item() == -math.inf


def test_the_gelu_is_right_in_its_tail():
    """To 1e-4 of itself down to -4 and 1e-3 to -5.5; the erf form is off by 10 % there."""
    for low, limit in ((-4.0, 1e-4), (-5.5, 1e-3)):
        x = torch.linspace(low, 8, 20_001, device=DEVICE)
        exact = F.gelu(x.double())
        assert ((shelf.fused_gelu(x) - exact) / exact)[x != 0].abs().max() < limit


def test_the_gelu_ends_at_zero():
    x = torch.tensor([-13.0, -17.0, -1e30], device=DEVICE)
    assert torch.equal(shelf.fused_gelu(x), torch.zeros(3, device=DEVICE))
    assert torch.equal(shelf.fused_gelu(-x), -x)


def test_the_gelu_by_its_formula():
    (x,) = vectors(1, 4097)
    y = torch.full_like(x, math.nan)
    shelf.gelu_erf_kernel[(5,)](x, y, 4097, BLOCK=1024)
    assert_as_exact_as_torch(y, F.gelu, x)


# --- counted --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_trips(flat, dtype):
    ours, _, count = flat
    inputs = vectors(count, 4097, dtype=dtype)
    with Meter() as meter:
        ours(*inputs)
    (launch,) = meter.launches
    assert launch.kind == "triton" and not launch.findings
    assert launch.traffic.bytes_read == count * inputs[0].nbytes
    assert launch.traffic.bytes_written == inputs[0].nbytes
    assert launch.traffic.reuse == 1
    assert launch.traffic.masked_lanes_written == 5 * 1024 - 4097
    assert launch.traffic.masked_lanes_read == count * (5 * 1024 - 4097)


def test_a_bias_adds_its_own_few_bytes():
    (x,), (bias,) = vectors(1, 64, 512), vectors(1, 512, seed=1)
    for matrix, row in ((x, bias), (x.t(), bias[:64])):
        with Meter() as meter:
            shelf.fused_bias_residual_block(matrix, row)
        (launch,) = meter.launches
        assert not launch.findings
        assert launch.traffic.compulsory_bytes == 2 * x.nbytes + row.nbytes
        assert launch.arguments["x_ptr"].bytes_read == x.nbytes
        assert launch.traffic.bytes_written == x.nbytes
        assert launch.trips(x) < 2.2


def test_an_empty_tensor_launches_nothing(flat):
    ours, _, count = flat
    flat_inputs, (matrix,), (bias,) = vectors(count, 0), vectors(1, 0, 3), vectors(1, 3)
    with Meter() as meter:
        ours(*flat_inputs)
        shelf.fused_bias_residual_block(matrix, bias)
    assert meter.launches == []


# --- refused --------------------------------------------------------------------------------------


def refuse(kind, words, function, *inputs, **more):
    with pytest.raises(kind, match=words):
        function(*inputs, **more)


def test_refused_tensors(flat):
    ours, _, count = flat
    x, y, *_ = vectors(2, 12)
    rest = (y,) * (count - 1)
    elsewhere = "meta" if DEVICE == "cpu" else "cpu"
    refuse(TypeError, "x must be a torch.Tensor, not list", ours, [1.0], *rest)
    refuse(ValueError, rf"x is on {elsewhere}, but kernels run on {DEVICE} here: use x.to\(",
           ours, x.to(elsewhere), *rest)  # fmt: skip
    refuse(TypeError, "x is torch.float64; expected float32", ours, x.double(), *rest)
    refuse(TypeError, "x is torch.int64; expected float32", ours, x.long(), *rest)
    refuse(ValueError, "x requires a gradient", ours, x.clone().requires_grad_(), *rest)
    refuse(ValueError, r"x has gaps or repeats in memory \(shape \(6,\), strides \(2,\)\): pass x",
           ours, x[::2], *(r[::2] for r in rest))  # fmt: skip
    refuse(ValueError, "x has gaps or repeats", ours, x[:1].expand(12), *rest)
    with torch.no_grad():
        assert torch.equal(ours(x.clone().requires_grad_(), *rest), ours(x, *rest))


def test_refused_outputs(flat):
    ours, _, count = flat
    inputs = [x.view(3, 4) for x in vectors(count, 12)]
    x = inputs[0]
    refuse(TypeError, "out must be a torch.Tensor, not str", ours, *inputs, out="y")
    refuse(ValueError, r"out has shape torch.Size\(\[4, 3\]\), but x has torch.Size\(\[3, 4\]\)",
           ours, *inputs, out=torch.empty(4, 3, device=DEVICE))  # fmt: skip
    refuse(ValueError, "out has dtype torch.float16, but x has torch.float32",
           ours, *inputs, out=x.half())  # fmt: skip
    refuse(ValueError, r"out has strides \(1, 3\), but x has \(4, 1\): pass .contiguous",
           ours, *inputs, out=torch.empty(4, 3, device=DEVICE).t())  # fmt: skip
    buffer = torch.zeros(20, device=DEVICE)
    for place, first in enumerate(inputs):
        shifted = [*inputs]
        shifted[place] = buffer[:12].view(3, 4).copy_(first)
        refuse(ValueError, r"out overlaps \w+ in memory", ours, *shifted,
               out=buffer[1:13].view(3, 4))  # fmt: skip
        ours(*shifted, out=buffer[12:].new_empty(3, 4))
    assert (buffer[12:] == 0).all()


@pytest.mark.parametrize(
    ("name", "second"), [("y", shelf.vector_add), ("residual", shelf.fused_residual_block)]
)
def test_refused_second_tensors(name, second):
    x, y = vectors(2, 6, 4)
    refuse(ValueError, rf"{name} has shape torch.Size\(\[6, 3\]\)", second, x, y[:, :3])
    refuse(ValueError, rf"{name} has shape torch.Size\(\[4\]\)", second, x, y[0])
    refuse(ValueError, rf"{name} has dtype torch.float16", second, x, y.half())
    refuse(ValueError, rf"{name} has strides \(1, 6\), but x has \(4, 1\)", second, x,
           torch.empty(4, 6, device=DEVICE).t())  # fmt: skip


def test_refused_gelus():
    (x,) = vectors(1, 4)
    refuse(
        ValueError, "approximate must be 'none' or 'tanh', not 'erf'", shelf.fused_gelu, x, "erf"
    )


def test_refused_biases():
    ours = shelf.fused_bias_residual_block
    (x,), (bias,) = vectors(1, 6, 4), vectors(1, 4)
    refuse(ValueError, r"x must be a matrix.*shape \(4,\): view it as one", ours, bias, bias)
    refuse(ValueError, r"bias has shape \(3,\), but x has 4 columns", ours, x, bias[:3])
    refuse(ValueError, r"bias has shape \(6, 4\), but x has 4 columns", ours, x, x)
    refuse(ValueError, r"bias is torch.float16 on .*, but x is torch.float32.*use bias.to\(x\)",
           ours, x, bias.half())  # fmt: skip
    refuse(TypeError, "bias must be a torch.Tensor, not float", ours, x, 0.25)
    refuse(ValueError, "bias requires a gradient", ours, x, bias.clone().requires_grad_())
    refuse(ValueError, "out has shape", ours, x, bias, out=x[:3])
    refuse(ValueError, "out repeats its elements", ours, x, bias,
           out=torch.empty(4, device=DEVICE).expand(6, 4))  # fmt: skip
    memory = torch.zeros(40, device=DEVICE)
    one, other = memory[:24].view(6, 4), memory[4:28].view(6, 4)
    refuse(ValueError, "out overlaps x in memory", ours, one, bias, out=other)
    refuse(ValueError, "out overlaps bias in memory", ours, x, memory[:4], out=one)
    square = memory[:16].view(4, 4)
    refuse(ValueError, "out overlaps x in memory", ours, square, bias, out=square.t())


# --- natively -------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_more_than_2_to_the_31_elements(flat, dtype):
    ours, function, count = flat
    n = 2**31 + 5
    needed = (count + 1) * n * dtype.itemsize + 2**30
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of GPU memory")
    inputs = [torch.empty(n, dtype=dtype, device="cuda").normal_() for _ in range(count)]
    out = torch.full((n,), math.nan, dtype=dtype, device="cuda")
    ours(*inputs, out=out)
    for at in (0, 2**30, 2**31 - 50_000, n - 100_003):
        part = slice(at, at + 100_003)
        assert_as_exact_as_torch(out[part].clone(), function, *(x[part] for x in inputs))
    step = 2**28
    assert not any(out[at : at + step].isnan().any() for at in range(0, n, step))


@on_gpu
def test_the_same_under_the_meter():
    """The meter interprets the kernel; compiled, it must give the same to a rounding."""
    (x,) = vectors(1, 4097)
    for ours in (shelf.fused_gelu, shelf.fused_chain, shelf.fused_residual_block):
        with Meter():
            counted = ours(x)
        assert error(ours(x), counted.double()) < 1e-6


@pytest.mark.skipif(not NATIVE or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_the_second_gpu():
    x = vectors(1, 1000)[0].to("cuda:1")
    assert_as_exact_as_torch(shelf.fused_chain(x), examples.chain, x)
    refuse(ValueError, "y has device cuda:0", shelf.vector_add, x, x.to("cuda:0"))
