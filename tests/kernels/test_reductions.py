"""Softmax, RMSNorm and LayerNorm of the shelf, forward and backward, against float64.

Without a GPU the kernels run in Triton's interpreter on small matrices; with one they run natively,
and the large cases at the end of this file run too.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402

import course_utils  # noqa: E402

MACHINE = course_utils.machine()  # decides how Triton runs, before a kernel is imported
reductions = pytest.importorskip("course_utils.kernels.reductions")
from course_utils import Meter  # noqa: E402
from course_utils.kernels.reductions import Plan, layer_norm, rms_norm, softmax  # noqa: E402

# Anything that numpy warns of (an infinity minus itself, 0 / 0) is an accident in a kernel.
pytestmark = pytest.mark.filterwarnings("error")

DEVICE = MACHINE.device
ON_GPU = MACHINE.mode == "gpu"
INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
WIDTHS = [1, 2, 31, 32, 33, 127, 256, 1000, 4097]
LONG = [16384, 32769, 65536, 100003, 131072]
# Each design on rows so short that the interpreter is quick: a row a program, several rows, a row
# that is read again, and rows longer than what is kept: by a tile, by a part of one, by many.
PLANS = {
    "one row": Plan(rows=1, columns=8192, warps=4),
    "four rows": Plan(rows=4, columns=8192, warps=4),
    "again": Plan(rows=1, columns=8192, warps=4, again=True),
    "keeps one tile": Plan(rows=1, columns=128, warps=1, tile=128),
    "keeps four strips": Plan(rows=1, columns=512, warps=1, tile=256),
}


def draw(*shape: int, dtype=torch.float32, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(dtype).to(DEVICE)


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """‖value − exact‖ / ‖exact‖; NaN where something was not computed.

    The norm of a single number is 0: there the error is absolute.
    """
    difference = torch.linalg.vector_norm(value.double() - exact)
    return (difference / (torch.linalg.vector_norm(exact) or 1.0)).item()


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> None:
    """At most twice PyTorch's own error in the same dtype, and a floor of one rounding."""
    assert ours.dtype == theirs.dtype and ours.shape == exact.shape
    limit = 2 * error(theirs, exact) + torch.finfo(ours.dtype).eps
    assert error(ours, exact) <= limit


def norm_of(op, x, weight=None, bias=None, eps=1e-5):
    """PyTorch's own form of one of the two norms."""
    columns = (x.shape[-1],)
    if op is layer_norm:
        return F.layer_norm(x, columns, weight, bias, eps)
    return F.rms_norm(x, columns, weight, eps)


def forward(op, x, weight=None, bias=None, eps=1e-5):
    return op(x, weight, bias, eps) if op is layer_norm else op(x, weight, eps)


@pytest.fixture(autouse=True)
def nothing_is_right_by_chance(monkeypatch):
    """Fresh memory holds NaN, so that an element which no kernel wrote is seen."""

    def empty(*arguments, **keywords):
        made = torch.full((), NAN, dtype=keywords.get("dtype"), device=keywords.get("device"))
        return made.expand(*arguments).clone()

    class Torch:
        def __getattr__(self, name):
            return empty if name == "empty" else getattr(torch, name)

    monkeypatch.setattr(reductions, "torch", Torch())


@pytest.fixture(params=PLANS)
def plan(request, monkeypatch):
    """Let every call use one design."""
    chosen = PLANS[request.param]
    monkeypatch.setattr(reductions, "plan_for", lambda op, columns, itemsize: chosen)
    return chosen


# --- right, whatever the shape --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_softmax_of_short_rows(columns, dtype):
    x = draw(33, columns, dtype=dtype, scale=3)
    exact = torch.softmax(x.double(), -1)
    assert_close(softmax(x), torch.softmax(x, -1), exact)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", LONG)
def test_softmax_of_long_rows(columns, dtype):
    x = draw(2, columns, dtype=dtype, scale=3)
    assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_norms_of_short_rows(op, columns, dtype):
    x = draw(33, columns, dtype=dtype, scale=3) + 1
    weight, bias = draw(columns, dtype=dtype, seed=1), draw(columns, dtype=dtype, seed=2)
    exact = norm_of(op, x.double(), weight.double(), bias.double())
    assert_close(forward(op, x, weight, bias), norm_of(op, x, weight, bias), exact)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", LONG)
@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_norms_of_long_rows(op, columns, dtype):
    x = draw(2, columns, dtype=dtype, scale=3) + 1
    weight, bias = draw(columns, dtype=dtype, seed=1), draw(columns, dtype=dtype, seed=2)
    exact = norm_of(op, x.double(), weight.double(), bias.double())
    assert_close(forward(op, x, weight, bias), norm_of(op, x, weight, bias), exact)


@pytest.mark.parametrize("rows", [1, 2, 31, 1000, 4097 if ON_GPU else 129])
def test_any_number_of_rows(rows, plan):
    x = draw(rows, 300, scale=3)
    assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))
    exact = norm_of(layer_norm, x.double())
    assert_close(layer_norm(x), norm_of(layer_norm, x), exact)


@pytest.mark.parametrize("columns", [1, 127, 128, 129, 500, 512, 513, 1000, 1024])
def test_every_design_takes_every_width(columns, plan):
    x = draw(5, columns, scale=3) + 1
    weight = draw(columns, seed=1)
    assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))
    for op in (rms_norm, layer_norm):
        exact = norm_of(op, x.double(), weight.double())
        assert_close(forward(op, x, weight), norm_of(op, x, weight), exact)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 40), (2, 1, 3, 8)])
def test_the_last_dimension_is_the_row(shape):
    x = draw(*shape, scale=3)
    assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))
    assert_close(layer_norm(x), norm_of(layer_norm, x), norm_of(layer_norm, x.double()))


# --- rows that have broken softmaxes and norms before ---------------------------------------------


def test_softmax_of_extreme_rows(plan):
    x = draw(10, 900)
    x[0] = 3.0
    x[1] = 1e4
    x[2] = -1e4
    x[2, 500] = 1e4
    x[3] = -INF
    x[3, 0] = -5.0
    x[4] = -INF
    x[4, 899] = 2.0
    x[5, ::2] = -INF
    x[6] = torch.finfo(torch.float32).min
    x[7] = -1e30
    x[8] = torch.linspace(-2e4, 1e4, 900)
    exact = torch.softmax(x.double(), -1)
    ours = softmax(x)
    torch.testing.assert_close(ours.double(), exact, rtol=2e-6, atol=1e-12)
    torch.testing.assert_close(ours.sum(-1), torch.ones(10, device=DEVICE), rtol=1e-5, atol=0)


@pytest.mark.parametrize("where", [0, 200, 899])
def test_nan_stays_in_its_row(where, plan):
    # Where a tile is one strip high, numpy remarks that the maximum of a lone NaN is NaN. It is.
    warnings.filterwarnings("ignore", "All-NaN slice")
    x = draw(4, 900)
    x[1, where] = NAN
    x[2] = -INF
    for ours, theirs in (
        (softmax(x), torch.softmax(x, -1)),
        (layer_norm(x[:2]), norm_of(layer_norm, x[:2])),
        (rms_norm(x[:2], eps=1e-5), norm_of(rms_norm, x[:2])),
    ):
        assert torch.equal(ours.isnan(), theirs.isnan())
        assert torch.equal(ours.isnan().any(-1), ours.isnan().all(-1))


def test_the_maximum_may_come_in_any_tile(plan):
    for place in (0, 127, 128, 511, 512, 700, 899):
        x = draw(2, 900)
        x[:, place] = 200.0
        exact = torch.softmax(x.double(), -1)
        torch.testing.assert_close(softmax(x).double(), exact, rtol=2e-6, atol=1e-12)


def test_variance_survives_a_large_mean(plan):
    """mean(x²) − mean(x)² would have lost every digit here."""
    x = draw(4, 900) + 3e3
    x[1] = 1e4
    x[2, :200] += 1e5  # what comes first is far from the rest
    x[3, -1] = 1e4
    exact = norm_of(layer_norm, x.double())
    ours, theirs = layer_norm(x), norm_of(layer_norm, x)
    assert (ours[1] == 0).all()
    for row in (0, 2, 3):
        assert error(ours[row], exact[row]) <= 2 * error(theirs[row], exact[row]) + 1e-3


@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_norms_of_equal_values(op, plan):
    x = torch.tensor([[7.0], [1e4], [-1e4], [0.0]], device=DEVICE).repeat(1, 900)
    torch.testing.assert_close(forward(op, x), norm_of(op, x.double()).float())


# --- memory ---------------------------------------------------------------------------------------


def test_rows_may_lie_apart(plan):
    wide = draw(6, 2000, scale=3)
    for x in (wide[:, 100:1000], wide[::2, :900], wide[:1, :900].expand(5, 900), wide[:, :1]):
        assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))
        if x.shape[1] > 1:
            assert_close(layer_norm(x), norm_of(layer_norm, x), norm_of(layer_norm, x.double()))
    out = torch.full((6, 2000), NAN, device=DEVICE)
    softmax(wide[:, :900], out=out[:, 7:907])
    assert_close(
        out[:, 7:907], torch.softmax(wide[:, :900], -1), torch.softmax(wide[:, :900].double(), -1)
    )
    assert out[:, :7].isnan().all() and out[:, 907:].isnan().all()


def test_softmax_in_place(plan):
    x = draw(5, 900)
    exact = torch.softmax(x.double(), -1)
    assert softmax(x, out=x) is x
    torch.testing.assert_close(x.double(), exact, rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("call", [softmax, rms_norm, layer_norm])
@pytest.mark.parametrize("strides", ["columns apart", "rows uneven"])
def test_what_would_need_a_copy_is_refused(call, strides):
    x = draw(8, 6).t() if strides == "columns apart" else draw(4, 3, 8)[:, :2]
    with pytest.raises(ValueError, match=r"strides .*Pass x\.contiguous\(\)"):
        call(x)
    assert call(x.contiguous()).shape == x.shape


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
@pytest.mark.parametrize("call", [softmax, rms_norm, layer_norm])
def test_empty_in_empty_out(call, shape):
    assert call(torch.empty(shape, device=DEVICE)).shape == shape


def test_the_meter_has_no_objection(plan):
    x, weight, bias = draw(5, 900), draw(900, seed=1), draw(900, seed=2)
    x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    with Meter() as meter:
        softmax(x.detach())
        layer_norm(x, weight, bias).square().sum().backward()
        rms_norm(x, weight).square().sum().backward()
    assert [finding for finding in meter.findings if finding.kind != "unwritten"] == []
    ours = [launch for launch in meter.launches if launch.kind == "triton"]
    assert len(ours) >= 7
    for launch in ours:
        assert all(argument.elements_unwritten == 0 for argument in launch.arguments.values())


def test_each_number_is_read_once_and_written_once(plan):
    x = draw(8, 1000)
    with Meter() as meter:
        softmax(x)
    launch = meter.launches[-1].traffic
    assert launch.compulsory_bytes == 2 * x.nbytes
    again = max(0, 1000 - plan.columns) / 1000 if plan.tile else int(plan.again)
    assert launch.trips(x) == pytest.approx(2 + again)


# --- bad input ------------------------------------------------------------------------------------


def test_refusals_say_what_to_do():
    x = draw(4, 8)
    for call in (softmax, rms_norm, layer_norm):
        with pytest.raises(TypeError, match=r"x must be a torch.Tensor, not list"):
            call([1.0, 2.0])
        with pytest.raises(TypeError, match=r"torch.int64.*float32, float16 or bfloat16"):
            call(torch.arange(4, device=DEVICE))
        with pytest.raises(TypeError, match=r"torch.float64"):
            call(x.double())
        with pytest.raises(ValueError, match=r"x is a single number"):
            call(torch.tensor(1.0, device=DEVICE))
        with pytest.raises(ValueError, match=r"x is on meta, but kernels run on"):
            call(x.to("meta"))
    with pytest.raises(ValueError, match=r"requires a gradient"):
        softmax(x.clone().requires_grad_())
    with torch.no_grad():
        softmax(x.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"out has shape .*4, 7.* but x has .*4, 8"):
        softmax(x, out=x[:, :7])
    with pytest.raises(ValueError, match=r"out has dtype torch.float16, but x has torch.float32"):
        softmax(x, out=x.half())


@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_weights_are_checked(op):
    x = draw(4, 8)
    with pytest.raises(ValueError, match=r"weight has shape \(7,\), but the rows of x have 8"):
        op(x, draw(7))
    with pytest.raises(TypeError, match=r"weight is torch.int64"):
        op(x, torch.arange(8, device=DEVICE))
    with pytest.raises(ValueError, match=r"eps must be"):
        forward(op, x, eps=-1.0)
    if op is layer_norm:
        with pytest.raises(ValueError, match=r"bias has shape \(4, 8\)"):
            op(x, None, x)


@pytest.mark.skipif(not ON_GPU, reason="without a GPU, CPU tensors are right")
def test_cpu_tensors_are_refused_on_a_gpu():
    with pytest.raises(ValueError, match=r"x is on cpu, but kernels run on cuda"):
        softmax(torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"weight is on cpu"):
        rms_norm(torch.ones(3, 4, device="cuda"), torch.ones(4))


# --- gradients ------------------------------------------------------------------------------------


def gradients(op, x, weight, bias, dy):
    """d(sum of y * dy) by x, weight and bias, of those that there are."""
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias) if t is not None]
    rest = iter(leaves[1:])
    w = next(rest) if weight is not None else None
    b = next(rest) if bias is not None else None
    y = op(leaves[0], w, b)
    return torch.autograd.grad(y, leaves, dy)


def assert_gradients_close(op, x, weight, bias, dy):
    def double(t):
        return None if t is None else t.double()

    def peer(x, w, b):
        return norm_of(op, x, w, b)

    exact = gradients(peer, double(x), double(weight), double(bias), dy.double())
    theirs = gradients(peer, x, weight, bias, dy)
    ours = gradients(lambda x, w, b: forward(op, x, w, b), x, weight, bias, dy)
    for mine, other, right in zip(ours, theirs, exact, strict=True):
        assert_close(mine, other, right)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_gradients_of_short_rows(op, columns, dtype):
    if op is layer_norm and columns == 1:
        pytest.skip("a row of one number has no variance: the gradient is 0 / eps")
    x = draw(37, columns, dtype=dtype, scale=2) + 1
    dy = draw(37, columns, dtype=dtype, seed=3)
    weight = draw(columns, dtype=dtype, seed=1)
    bias = draw(columns, dtype=dtype, seed=2) if op is layer_norm else None
    assert_gradients_close(op, x, weight, bias, dy)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [16384, 20001, 65536])
@pytest.mark.parametrize("op", [rms_norm, layer_norm])
def test_gradients_of_long_rows(op, columns, dtype):
    x, dy = draw(3, columns, dtype=dtype) + 1, draw(3, columns, dtype=dtype, seed=3)
    weight = draw(columns, dtype=dtype, seed=1)
    bias = draw(columns, dtype=dtype, seed=2) if op is layer_norm else None
    assert_gradients_close(op, x, weight, bias, dy)


@pytest.mark.parametrize(("weighted", "biased"), list(itertools.product([False, True], repeat=2)))
def test_weight_and_bias_are_optional(weighted, biased):
    x, dy = draw(9, 130), draw(9, 130, seed=3)
    weight = draw(130, seed=1) if weighted else None
    bias = draw(130, seed=2) if biased else None
    assert_gradients_close(layer_norm, x, weight, bias, dy)
    if not biased:
        assert_gradients_close(rms_norm, x, weight, None, dy)


def test_a_gradient_of_ones_that_takes_no_memory():
    """What .sum().backward() hands in: one number, expanded to the whole matrix."""
    x, weight = draw(6, 130), draw(130, seed=1)
    assert_gradients_close(rms_norm, x, weight, None, torch.ones((), device=DEVICE).expand(6, 130))


def test_gradients_through_rows_that_lie_apart():
    wide = draw(6, 300)
    assert_gradients_close(layer_norm, wide[:, 5:205], draw(200, seed=1), None, draw(6, 200))


def test_weights_of_another_precision_get_gradients_of_their_own():
    x = draw(6, 130, dtype=torch.bfloat16).requires_grad_()
    weight = draw(130, seed=1).requires_grad_()
    y = rms_norm(x, weight)
    dx, dw = torch.autograd.grad(y, (x, weight), torch.ones_like(y))
    assert (y.dtype, dx.dtype, dw.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)


def test_the_same_bits_every_time():
    x, weight, dy = draw(300, 200), draw(200, seed=1), draw(300, 200, seed=3)
    first, again = (gradients(layer_norm, x, weight, weight, dy) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_only_what_is_asked_for():
    x, weight = draw(6, 130), draw(130, seed=1).requires_grad_()
    rms_norm(x, weight).sum().backward()
    assert x.grad is None and weight.grad is not None
    x.requires_grad_()
    rms_norm(x, weight.detach()).sum().backward()
    assert x.grad is not None


def test_defaults_are_those_of_pytorch():
    x = draw(4, 64, scale=1e-4)
    torch.testing.assert_close(layer_norm(x), F.layer_norm(x, (64,)))
    torch.testing.assert_close(rms_norm(x), F.rms_norm(x, (64,)))


# --- how rows are divided -------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["softmax", "rms_norm", "layer_norm"])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_plans_fit_the_machine(op, itemsize):
    for columns in (*range(1, 300), *(2**k + d for k in range(9, 20) for d in (-1, 0, 1))):
        plan = reductions.plan_for(op, columns, itemsize)
        tile = plan.rows * plan.columns
        assert 1 <= plan.warps <= 32 and tile & (tile - 1) == 0
        assert tile <= 255 * 32 * plan.warps  # registers of a thread
        assert plan.columns >= columns or (plan.tile and plan.rows == 1)
        if plan.tile:
            lanes = 32 * plan.warps * (16 // itemsize)
            assert plan.columns % min(lanes, plan.columns) == plan.tile % min(lanes, plan.tile) == 0


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [31, 256, 1000, 4097, 16384, 32768, 65536, 100003, 131072])
def test_natively_with_many_rows(columns, dtype):
    rows = min(2**24 // columns, 100003)
    x, dy = draw(rows, columns, dtype=dtype), draw(rows, columns, dtype=dtype, seed=3)
    weight, bias = draw(columns, dtype=dtype, seed=1), draw(columns, dtype=dtype, seed=2)
    assert_close(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))
    assert_gradients_close(layer_norm, x, weight, bias, dy)
    assert_gradients_close(rms_norm, x, weight, None, dy)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_more_elements_than_32_bits_can_number():
    columns = 2**16 + 1
    rows = (2**31 + 5) // columns + 1
    if torch.cuda.mem_get_info()[0] < 5 * rows * columns * 2:
        pytest.skip("needs 22 GB of free GPU memory")
    x = torch.randn(rows, columns, dtype=torch.bfloat16, device=DEVICE)
    assert x.numel() > 2**31
    for call, peer in (
        (softmax, lambda t: torch.softmax(t, -1)),
        (layer_norm, lambda t: norm_of(layer_norm, t)),
    ):
        y = call(x)
        for row in (0, rows // 2, rows - 1):
            exact = peer(x[row : row + 1].double())
            assert_close(y[row : row + 1], peer(x[row : row + 1]), exact)
        del y
