"""Eager PyTorch ops: every number of the course's first lessons, and the rules behind them."""

import pytest
import torch
import torch.nn.functional as F

from course_utils.examples import chain, chain_of, residual_block
from course_utils.meter import Meter, op_rules

N = 1000
B = 4 * N  # bytes of a float32 vector of N


@pytest.fixture(params=["cpu", "meta"])
def where(request) -> str:
    """A device on which counting must give the same."""
    return request.param


def count(function, *args, **kwargs) -> Meter:
    with Meter() as meter:
        function(*args, **kwargs)
    return meter


def rows(meter: Meter) -> list[tuple[str, int, int, int]]:
    """Name, bytes read, bytes written and FLOPs of each launch."""
    return [
        (launch.name, launch.traffic.bytes_read, launch.traffic.bytes_written, launch.traffic.flops)
        for launch in meter.launches
    ]


# -- the running example --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 1000, 100003])
def test_five_unary_ops_make_ten_trips(where, n):
    x = torch.ones(n, device=where)
    meter = count(chain, x)
    assert meter.trips(x) == 10.0
    assert meter.traffic.bytes == 40 * n
    assert meter.traffic.bytes_read == meter.traffic.bytes_written == 20 * n
    assert meter.traffic.flops == 5 * n
    assert meter.traffic.intensity == 0.125
    assert rows(meter) == [(name, 4 * n, 4 * n, n) for name in ("mul", "add", "gelu", "mul", "add")]


def test_the_residual_block_makes_eleven_trips(where):
    x = torch.ones(N, device=where)
    meter = count(residual_block, x)
    assert meter.trips(x) == 11.0
    assert meter.traffic.bytes_read == 6 * B
    assert meter.traffic.bytes_written == 5 * B
    assert rows(meter)[-1] == ("add", 2 * B, B, N)  # the add reads two tensors


@pytest.mark.parametrize("block, trips", [(chain, 10.0), (residual_block, 11.0)])
def test_bfloat16_makes_the_same_trips_of_half_the_bytes(where, block, trips):
    x = torch.ones(N, dtype=torch.bfloat16, device=where)
    meter = count(block, x)
    assert meter.trips(x) == trips
    assert meter.traffic.bytes == trips * 2 * N


@pytest.mark.parametrize("ops", [1, 2, 7])
def test_each_unary_op_makes_two_trips(where, ops):
    x = torch.ones(N, device=where)
    assert count(chain_of, x, ops).trips(x) == 2.0 * ops


def test_a_meter_opened_again_goes_on_counting():
    x = torch.ones(N)
    meter = Meter()
    for _ in range(2):
        with meter:
            chain(x)
    assert meter.trips(x) == 20.0


# -- what moves nothing ---------------------------------------------------------------------------


VIEWS = {
    "view": lambda x: x.view(20, 50),
    "reshape": lambda x: x.reshape(2, -1),
    "transpose": lambda x: x.view(20, 50).t(),
    "permute": lambda x: x.view(2, 5, 100).permute(2, 0, 1),
    "slice": lambda x: x[1:10],
    "step": lambda x: x[::2],
    "expand": lambda x: x.expand(8, N),
    "unsqueeze": lambda x: x[None].squeeze(0),
    "split": lambda x: x.split(100),
    "chunk": lambda x: x.chunk(3),
    "unbind": lambda x: x.view(20, 50).unbind(),
    "diagonal": lambda x: x.view(20, 50).diagonal(),
    "unfold": lambda x: x.unfold(0, 3, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "views of views": lambda x: x.view(20, 50).t()[3:7].reshape(-1, 1, 20)[:, 0].narrow(1, 2, 3),
    "view as complex": lambda x: torch.view_as_complex(x.view(-1, 2)).conj(),
    "another dtype's view": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
    "no-op conversion": lambda x: x.to(torch.float32),
    "contiguous already": lambda x: x.contiguous(),
    "dropout without dropping": lambda x: F.dropout(x, 0.0, training=False),
    "transposed in place": lambda x: x.view(20, 50).t_().unsqueeze_(0).squeeze_(0),
    "empty": lambda x: torch.empty(N, device=x.device),
    "empty_like": lambda x: torch.empty_like(x),
    "new_empty": lambda x: x.new_empty(3).resize_(4),
    "shape": lambda x: (x.shape, x.stride(), x.numel(), x.is_contiguous()),
    "other memory": lambda x: torch.empty(3, device=x.device).set_(x),
}


@pytest.mark.parametrize("op", VIEWS.values(), ids=VIEWS.keys())
def test_views_allocations_and_metadata_move_nothing(where, op):
    x = torch.ones(N, device=where)
    meter = count(op, x)
    assert meter.launches == []
    assert meter.traffic.bytes == 0


def test_ops_on_empty_tensors_are_no_launch(where):
    nothing = torch.ones(0, device=where)
    assert count(lambda: nothing * 2 + nothing).launches == []


def test_reading_one_number_is_no_launch():
    x = torch.ones(())
    assert count(x.item).launches == []


# -- what is read, what is written ----------------------------------------------------------------


def test_in_place_ops_read_and_write(where):
    x = torch.ones(N, device=where)
    meter = count(lambda: x.mul_(2).add_(1))
    assert rows(meter) == [("mul", B, B, N), ("add", B, B, N)]
    assert list(meter.launches[0].arguments) == ["self"]


def test_in_place_ops_on_a_view_count_the_view(where):
    x = torch.ones(20, 50, device=where)
    assert rows(count(lambda: x[2:4].mul_(2))) == [("mul", 400, 400, 100)]
    assert rows(count(lambda: x.t().add_(1))) == [("add", B, B, N)]


def test_a_broadcast_operand_counts_its_own_bytes(where):
    x, bias = torch.ones(20, 50, device=where), torch.ones(50, device=where)
    (launch,) = count(torch.add, x, bias).launches
    assert launch.arguments["self"].bytes_read == 4000
    assert launch.arguments["other"].bytes_read == 200
    assert launch.arguments["out"].bytes_written == 4000
    assert launch.arguments["out"].nbytes == 4000


def test_an_expanded_operand_counts_its_own_bytes(where):
    bias = torch.ones(50, device=where).expand(20, 50)
    (launch,) = count(torch.mul, bias, torch.ones(20, 50, device=where)).launches
    assert launch.arguments["self"].bytes_read == launch.arguments["self"].nbytes == 200


def test_an_operand_given_twice_is_read_once(where):
    x = torch.ones(N, device=where)
    assert rows(count(lambda: x * x)) == [("mul", B, B, N)]
    assert rows(count(lambda: torch.stack([x, x]))) == [("stack", B, 2 * B, 0)]
    assert rows(count(lambda: x[10:20] * x.view(-1)[10:20])) == [("mul", 40, 40, 10)]
    assert rows(count(lambda: x[1:] * x[:-1])) == [("mul", 2 * (B - 4), B - 4, N - 1)]


def test_a_number_is_no_operand_but_a_scalar_tensor_is(where):
    x = torch.ones(N, device=where)
    assert rows(count(lambda: x * 2.0)) == [("mul", B, B, N)]
    scalar = torch.ones((), device=where)
    assert rows(count(lambda: x * scalar)) == [("mul", B + 4, B, N)]


WRITE_ONLY = {
    "copy_": (lambda x, y: x.copy_(y), ("copy", B, B, 0)),
    "copy_ of a row": (lambda x, y: x.view(20, 50).copy_(y[:50]), ("copy", 200, B, 0)),
    "copy_ from bf16": (lambda x, y: x.copy_(torch.empty_like(y, dtype=torch.bfloat16)),
                        ("copy", B // 2, B, 0)),
    "fill_": (lambda x, y: x.fill_(1.0), ("fill", 0, B, 0)),
    "zero_": (lambda x, y: x.zero_(), ("zero", 0, B, 0)),
    "assign a tensor": (lambda x, y: x.__setitem__(slice(10), y[:10]), ("copy", 40, 40, 0)),
    "normal_": (lambda x, y: x.normal_(), ("normal", 0, B, 0)),
    "uniform_": (lambda x, y: x.uniform_(), ("uniform", 0, B, 0)),
    "bernoulli_": (lambda x, y: x.bernoulli_(0.5), ("bernoulli", 0, B, 0)),
    "out=": (lambda x, y: torch.add(y, 1, out=x), ("add", B, B, N)),
    "out= of a product": (lambda x, y: torch.mv(y.view(20, 50), y[:50], out=x[:20]),
                          ("mv", B + 200, 80, 2 * N)),
    "out= is an input": (lambda x, y: torch.mul(x, y, out=x), ("mul", 2 * B, B, N)),
    "zeros": (lambda x, y: torch.zeros(10, device=x.device), ("zeros", 0, 40, 0)),
    "randn": (lambda x, y: torch.randn(10, device=x.device), ("randn", 0, 40, 0)),
    "arange": (lambda x, y: torch.arange(10, device=x.device), ("arange", 0, 80, 0)),
    "zeros_like": (lambda x, y: torch.zeros_like(x), ("zeros_like", 0, B, 0)),
    "ones_like": (lambda x, y: torch.ones_like(x), ("ones_like", 0, B, 0)),
    "full_like": (lambda x, y: torch.full_like(x, 2.0), ("full_like", 0, B, 0)),
    "randn_like": (lambda x, y: torch.randn_like(x), ("randn_like", 0, B, 0)),
    "new_zeros": (lambda x, y: x.new_zeros(3), ("new_zeros", 0, 12, 0)),
    "new_full": (lambda x, y: x.new_full((3,), 2.0), ("new_full", 0, 12, 0)),
}  # fmt: skip


@pytest.mark.parametrize("op, expected", WRITE_ONLY.values(), ids=WRITE_ONLY.keys())
def test_what_is_only_overwritten_is_not_read(where, op, expected):
    x, y = torch.ones(N, device=where), torch.ones(N, device=where)
    assert rows(count(op, x, y)) == [expected]
    assert not count(op, x, y).launches[0].notes


def test_assigning_a_number_writes_what_it_names():
    x = torch.ones(N)
    assert rows(count(x.__setitem__, slice(10), 1.0)) == [("fill", 4, 40, 0)]


def test_an_out_tensor_that_grows_counts_its_new_size():
    x = torch.ones(N)
    assert rows(count(lambda: torch.add(x, 1, out=torch.empty(0)))) == [("add", B, B, N)]


COPIES = {
    "clone": (lambda x: x.clone(), ("clone", B, B, 0)),
    "contiguous": (lambda x: x.view(20, 50).t().contiguous(), ("clone", B, B, 0)),
    "expanded, copied": (lambda x: x[:50].expand(20, 50).contiguous(), ("clone", 200, B, 0)),
    "to bf16": (lambda x: x.bfloat16(), ("_to_copy", B, B // 2, 0)),
    "to int64": (lambda x: x.long(), ("_to_copy", B, 2 * B, 0)),
    "cat": (lambda x: torch.cat([x, x[:10]]), ("cat", B + 40, B + 40, 0)),
    "repeat": (lambda x: x.repeat(3), ("repeat", B, 3 * B, 0)),
    "flip": (lambda x: x.flip(0), ("flip", B, B, 0)),
    "roll": (lambda x: x.roll(1), ("roll", B, B, 0)),
    "tril": (lambda x: x.view(20, 50).tril(), ("tril", B, B, 0)),
    "pad": (lambda x: F.pad(x, (1, 1)), ("constant_pad_nd", B, B + 8, 0)),
    "sort": (lambda x: x.sort(), ("sort", B, 3 * B, 0)),
    "topk": (lambda x: x.topk(10), ("topk", B, 120, 0)),
}  # fmt: skip


@pytest.mark.parametrize("op, expected", COPIES.values(), ids=COPIES.keys())
def test_copies_read_and_write_without_flops(where, op, expected):
    meter = count(op, torch.ones(N, device=where))
    assert rows(meter) == [expected]
    assert not meter.launches[0].notes


# -- ops that pick or place -----------------------------------------------------------------------


def picked(device):
    return (
        torch.tensor([3, 3, 7], device=device)
        if device != "meta"
        else torch.empty(3, dtype=torch.int64, device="meta")
    )


def test_a_gather_reads_what_it_picks(where):
    table, index = torch.ones(10, 20, device=where), picked(where)
    for name, op in {
        "embedding": lambda: F.embedding(index, table),
        "index_select": lambda: table.index_select(0, index),
        "index": lambda: table[index],
    }.items():
        (launch,) = count(op).launches
        source = next(iter(launch.arguments.values()))
        assert (launch.name, source.bytes_read, launch.traffic.bytes_written) == (name, 240, 240)
        assert launch.traffic.bytes_read == 240 + 24
        assert launch.traffic.flops == 0 and not launch.notes
    column = index[:, None].expand(3, 20)
    assert rows(count(lambda: table.gather(0, column))) == [("gather", 240 + 24, 240, 0)]


def test_rows_picked_more_often_than_there_are_elements_are_requested_not_compulsory():
    table, index = torch.ones(10, 20), torch.zeros(1000, dtype=torch.int64)
    weight = count(F.embedding, index, table).launches[0].arguments["weight"]
    assert weight.bytes_read == 80000
    assert weight.compulsory_read == 800
    assert weight.reuse == 100.0


def test_a_boolean_index_reads_what_it_picks():
    x = torch.arange(10.0)
    mask = x > 6
    assert rows(count(lambda: x[mask])) == [("index", 12 + 10, 12, 0)]


PLACES = {
    "index_put_": (lambda x, i, v: x.index_put_((i,), v), ("index_put", 24 + 240, 240, 0)),
    "accumulating": (
        lambda x, i, v: x.index_put_((i,), v, accumulate=True),
        ("index_put", 240 + 24 + 240, 240, 60),
    ),
    "of rows of a column": (
        lambda x, i, v: x.__setitem__((slice(None), i), v[0, 0]),
        ("index_put", 24 + 4, 120, 0),
    ),
    "index_add_": (lambda x, i, v: x.index_add_(0, i, v), ("index_add", 240 + 24 + 240, 240, 60)),
    "index_copy_": (lambda x, i, v: x.index_copy_(0, i, v), ("index_copy", 24 + 240, 240, 0)),
    "index_fill_": (lambda x, i, v: x.index_fill_(0, i, 1.0), ("index_fill", 24, 240, 0)),
    "scatter_": (
        lambda x, i, v: x[:, 0].scatter_(0, i, v[:, 0]),
        ("scatter", 24 + 12, 12, 0),
    ),
    "scatter_add_": (
        lambda x, i, v: x[:, 0].scatter_add_(0, i, v[:, 0]),
        ("scatter_add", 12 + 24 + 12, 12, 3),
    ),
}


@pytest.mark.parametrize("op, expected", PLACES.values(), ids=PLACES.keys())
def test_placing_touches_only_what_is_placed(where, op, expected):
    x, values = torch.ones(10, 20, device=where), torch.ones(3, 20, device=where)
    meter = count(op, x, picked(where), values)
    assert rows(meter) == [expected]
    assert not meter.launches[0].notes


def test_placing_through_a_mask_counts_its_true_elements():
    x = torch.arange(10.0)
    mask = x > 6
    assert rows(count(lambda: x.__setitem__(mask, 0.0))) == [("index_put", 10 + 4, 12, 0)]


def test_placing_out_of_place_copies_the_rest_too(where):
    x, index = torch.ones(10, 20, device=where), picked(where)
    values = torch.ones(3, 20, device=where)
    meter = count(lambda: x.index_put((index,), values))
    assert rows(meter) == [("index_put", 800 + 24 + 240, 800, 0)]


# -- FLOPs ----------------------------------------------------------------------------------------


FLOPS = {
    "element-wise": (lambda x: torch.exp(x), N),
    "three operands": (lambda x: torch.addcmul(x, x, x), N),
    "comparison": (lambda x: x > 0, N),
    "selection": (lambda x: torch.where(x.bool(), x, 0.0 * x), 2 * N),
    "broadcast": (lambda x: x[:50] + x[:20, None], N),
    "reduction": (lambda x: x.sum(), N),
    "reduction of rows": (lambda x: x.view(20, 50).amax(1), N),
    "mean": (lambda x: x.mean(), N),
    "softmax": (lambda x: torch.softmax(x.view(20, 50), -1), 5 * N),
    "layer norm": (lambda x: F.layer_norm(x.view(20, 50), (50,)), 8 * N),
    "layer norm backward": (
        lambda x: torch.ops.aten.native_layer_norm_backward(
            *(x.view(20, 50),) * 2, (50,), *(x[:20].view(20, 1),) * 2, *(x[:50],) * 2, [True] * 3
        ),
        13 * N,
    ),
    "matmul": (lambda x: x.view(20, 50) @ x.view(50, 20), 2 * 20 * 50 * 20),
    "batched matmul": (lambda x: x.view(2, 10, 50) @ x.view(2, 50, 10), 2 * 2 * 10 * 50 * 10),
    "linear": (lambda x: F.linear(x.view(20, 50), x.view(20, 50), x[:20]), 2 * 20 * 50 * 20),
    "matrix times vector": (lambda x: x.view(20, 50) @ x[:50], 2 * N),
    "dot": (lambda x: x @ x, 2 * N),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x.view(20, 50), x.view(20, 50)), 40000),
    "convolution": (
        lambda x: F.conv2d(x[:48].view(1, 3, 4, 4), x[:54].view(2, 3, 3, 3)),
        2 * (2 * 2 * 2) * (3 * 3 * 3),
    ),
    "integers": (lambda x: x.int() + 1, 0),
    "complex": (lambda x: torch.view_as_complex(x.view(-1, 2)) * 2, N // 2),
}


@pytest.mark.parametrize("op, flops", FLOPS.values(), ids=FLOPS.keys())
def test_flops_follow_the_convention(where, op, flops):
    meter = count(op, torch.ones(N, device=where))
    assert meter.traffic.flops == flops
    assert not any(launch.notes for launch in meter.launches)


def test_flops_of_a_norm_that_the_cpu_has_no_kernel_for():
    x, rstd = torch.empty(20, 50, device="meta"), torch.empty(20, 1, device="meta")
    backward = torch.ops.aten._fused_rms_norm_backward
    (launch,) = count(backward, x, x, (50,), rstd, x[0], [True] * 2).launches
    assert launch.traffic.flops == 9 * N and not launch.notes


def test_a_formula_that_fails_leaves_a_note_and_the_result(monkeypatch):
    """PyTorch's formulas assert the shapes they know, which is no reason to stop a program."""

    def refuse(*args, **kwargs):
        raise AssertionError("not this shape")

    monkeypatch.setitem(op_rules.flop_registry, torch.ops.aten.mm, refuse)
    (launch,) = count(torch.mm, torch.ones(2, 2), torch.ones(2, 2)).launches
    assert launch.traffic.flops == 0
    assert launch.notes == ("FLOPs of mm are not counted: the meter has no rule for it",)


def test_an_op_without_a_rule_says_so():
    (launch,) = count(torch.fft.fft, torch.ones(8, dtype=torch.complex64)).launches
    assert launch.traffic.bytes == 128
    assert launch.traffic.flops == 0
    assert launch.notes == ("FLOPs of _fft_c2c are not counted: the meter has no rule for it",)


def test_a_sparse_product_is_not_counted_as_a_dense_one():
    sparse = torch.eye(4).to_sparse()
    (launch,) = count(lambda: sparse @ torch.ones(4, 5)).launches[1:]
    assert launch.arguments["self"].nbytes == 4 * (2 * 8 + 4)  # four indices and values
    assert launch.traffic.flops == 0 and "no rule" in launch.notes[0]


# -- attention ------------------------------------------------------------------------------------


def masked_attention(q, k, v, mask):
    scores = (q @ k.transpose(-2, -1)) * 0.125
    return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v


def test_standard_attention_moves_what_the_flash_attention_paper_says():
    heads, n, d = 64 * 16, 1024, 64
    half = {"dtype": torch.float16, "device": "meta"}
    q, k, v = (torch.empty(heads, n, d, **half, requires_grad=True) for _ in range(3))
    mask = torch.empty(n, n, dtype=torch.bool, device="meta")
    meter = Meter()
    with meter:
        masked_attention(q, k, v, mask).backward(torch.empty(heads, n, d, **half))
    scores, tensor = 2 * heads * n * n, 2 * heads * n * d
    # Passes over the scores: 8 forward, 11 backward. Over q, k, v, out and their gradients: 14, two
    # of which lay out the gradient of k as k is. The Boolean mask is read forward and backward.
    assert meter.traffic.bytes == 19 * scores + 14 * tensor + 2 * n * n == 42_683_334_656
    assert round(meter.traffic.bytes / 1e9, 2) == 42.68
    assert abs(meter.traffic.bytes / 40.3e9 - 1) < 0.10  # FlashAttention paper, figure 2
    matmuls = [launch.traffic.flops for launch in meter.launches if launch.name == "bmm"]
    assert matmuls == [2 * heads * n * n * d] * 6


def test_fused_attention_writes_no_scores():
    q, k, v = (torch.ones(1, 2, 16, 8, requires_grad=True) for _ in range(3))
    meter = count(lambda: F.scaled_dot_product_attention(q, k, v).backward(torch.ones(1, 2, 16, 8)))
    forward = meter.launches[0]
    assert forward.traffic.bytes_read == 3 * q.nbytes
    assert forward.traffic.bytes_written == q.nbytes + 2 * 16 * 4  # the output and its log-sum-exp
    assert forward.traffic.flops == 4 * 2 * 16 * 16 * 8
    backward = next(launch for launch in meter.launches if "backward" in launch.name)
    assert backward.traffic.flops == 10 * 2 * 16 * 16 * 8


# -- autograd and other machinery -----------------------------------------------------------------


def test_the_backward_pass_is_counted(where):
    x = torch.ones(N, device=where, requires_grad=True)
    meter = count(lambda: (x * 2).backward(torch.ones(N, device=where)))
    assert [row[:3] for row in rows(meter)] == [("mul", B, B), ("ones", 0, B), ("mul", B, B)]


def test_cross_entropy_reads_one_logit_per_row():
    logits = torch.ones(10, 20, requires_grad=True)
    target = torch.arange(10)
    meter = count(lambda: F.cross_entropy(logits, target).backward())
    counted = {name: (read, written) for name, read, written, _ in rows(meter)}
    assert counted["_log_softmax"] == (800, 800)
    assert counted["nll_loss_forward"] == (40 + 80, 4 + 4)
    assert counted["nll_loss_backward"] == (4 + 80 + 4, 800)  # the logits only lend their shape
    assert counted["_log_softmax_backward_data"] == (1600, 800)


@pytest.mark.parametrize("scope", [torch.no_grad, torch.inference_mode])
def test_scopes_without_gradients_are_counted(scope):
    x = torch.ones(N)

    def run():
        with scope():
            chain(x)

    assert count(run).trips(x) == 10.0


def test_inference_mode_counts_the_same_launches():
    x, w, b = torch.ones(20, 50), torch.ones(30, 50), torch.ones(30)

    def run():
        h = F.linear(x, w, b).reshape(30, 20).t().to(torch.float64)
        return F.layer_norm(h, (30,)).softmax(-1) @ torch.ones(30, 2, dtype=h.dtype)

    expected = count(run)
    assert [row[0] for row in rows(expected)] == [
        "addmm", "_to_copy", "native_layer_norm", "_softmax", "ones", "mm",
    ]  # fmt: skip
    assert rows(count(torch.inference_mode()(run))) == rows(expected)


def test_foreach_ops_count_every_tensor():
    x, y = torch.ones(100), torch.ones(50)
    assert rows(count(torch._foreach_add_, [x, y], 1.0)) == [("_foreach_add", 600, 600, 150)]
    assert rows(count(torch._foreach_zero_, [x, y])) == [("_foreach_zero", 0, 600, 0)]
    assert rows(count(torch._foreach_copy_, [x], [y.repeat(2)]))[-1] == (
        "_foreach_copy", 400, 400, 0,
    )  # fmt: skip
    (launch,) = count(torch._foreach_mul, [x, y], 2.0).launches
    assert list(launch.arguments) == ["self", "self[1]", "out0", "out1"]


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimiser_step_reads_parameter_and_gradient(foreach):
    p = torch.nn.Parameter(torch.ones(N))
    p.grad = torch.ones(N)
    step = torch.optim.SGD([p], lr=0.1, foreach=foreach).step
    assert [row[1:] for row in rows(count(step))] == [(2 * B, B, N)]


def test_a_fused_optimiser_does_not_write_gradients():
    p = torch.nn.Parameter(torch.ones(N))
    p.grad = torch.ones(N)
    (launch,) = count(torch.optim.SGD([p], lr=0.1, fused=True).step).launches
    assert launch.arguments["grads"].bytes_written == 0
    assert (launch.traffic.bytes_read, launch.traffic.bytes_written) == (2 * B, B)


@torch.library.custom_op("course_tests::scale_twice", mutates_args=())
def scale_twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0 * 2.0


@scale_twice.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("course_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2.0)


def test_a_custom_op_is_opened():
    x = torch.ones(N)
    assert rows(count(scale_twice, x)) == [("mul", B, B, N), ("mul", B, B, N)]
    assert rows(count(double_, x)) == [("mul", B, B, N)]


def test_a_custom_op_is_opened_for_every_meter_around_it():
    x = torch.ones(N)
    with Meter() as outer, Meter() as inner:
        scale_twice(x)
    assert rows(outer) == rows(inner) == [("mul", B, B, N), ("mul", B, B, N)]


def test_a_custom_op_on_meta_is_counted_by_its_operands():
    (launch,) = count(scale_twice, torch.ones(N, device="meta")).launches
    assert (launch.name, launch.traffic.bytes) == ("scale_twice", 2 * B)


def test_a_custom_op_that_hides_what_it_does_is_counted_by_its_operands():
    with torch.library._scoped_library("course_hidden", "FRAGMENT") as library:
        library.define("add_one(Tensor x) -> Tensor")

        def add_one(x):
            return torch.from_numpy(x.numpy() + 1)  # as a C++ extension: no op of PyTorch inside

        library.impl("add_one", add_one, "CPU")
        with Meter() as outer, Meter() as inner:
            torch.ops.course_hidden.add_one(torch.ones(N))
    for meter in (outer, inner):
        assert [row[:3] for row in rows(meter)][1:] == [("add_one", B, B)]


def test_rules_for_an_op_are_not_applied_to_its_namesake_of_another_library():
    with torch.library._scoped_library("course_namesake", "FRAGMENT") as library:
        library.define("zeros_like(Tensor x) -> Tensor")
        library.impl("zeros_like", lambda x: torch.from_numpy(x.numpy() + 1), "CPU")
        launch = count(torch.ops.course_namesake.zeros_like, torch.ones(N)).launches[-1]
    assert (launch.name, launch.traffic.bytes_read) == ("zeros_like", B)
    assert launch.notes == (
        "FLOPs of course_namesake::zeros_like are not counted: the meter has no rule for it",
    )


def test_control_flow_is_counted_by_what_it_runs():
    x = torch.ones(N)
    meter = count(
        lambda: torch._higher_order_ops.while_loop(
            lambda i, h: i < 2, lambda i, h: (i + 1, h * 2), (torch.tensor(0), x)
        )
    )
    assert [row[0] for row in rows(meter)] == ["lt", "add", "mul"] * 2 + ["lt"]


def test_a_branch_is_counted_by_what_it_runs():
    x = torch.ones(N)
    flag = torch.tensor(True)
    meter = count(lambda: torch.cond(flag, lambda h: h * 2, lambda h: h.exp() + 1, (x,)))
    assert rows(meter) == [("mul", B, B, N)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_counted_by_what_it_runs():
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (torch.ones(1, 1, 128, 16) for _ in range(3))
    meter = count(flex_attention, q, k, v)
    assert sum("mm" in row[0] for row in rows(meter)) == 2


def test_transformed_functions_are_counted():
    x = torch.ones(4, N)
    assert rows(count(torch.vmap(lambda row: row * 2), x)) == [("mul", 4 * B, 4 * B, 4 * N)]
    gradient = torch.func.grad(lambda h: (h * 3).sum())
    assert [row[0] for row in rows(count(gradient, torch.ones(N)))][:2] == ["mul", "sum"]


EXOTIC = {
    "sparse values": lambda: torch.eye(4).to_sparse().coalesce().values() * 2,
    "csr": lambda: torch.eye(4).to_sparse_csr() @ torch.ones(4, 2),
    "csc": lambda: torch.eye(4).to_sparse_csc().to_dense(),
    "mkldnn": lambda: torch.ones(4, 4).to_mkldnn().to_dense(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]) * 2,
    "jagged": lambda: (
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged) * 2
    ),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8).dequantize(),
    "complex": lambda: torch.ones(4, dtype=torch.complex64).conj().resolve_conj(),
    "float64": lambda: torch.ones(4, dtype=torch.float64) * 2,
    "keyword arguments": lambda: torch.ops.aten.gather(
        self=torch.ones(4), dim=0, index=torch.zeros(2, dtype=torch.int64)
    ),
    "unusual grouping": lambda: F.scaled_dot_product_attention(
        torch.ones(1, 4, 8, 8), torch.ones(1, 2, 8, 8), torch.ones(1, 2, 8, 8), enable_gqa=True
    ),
    "linear algebra": lambda: torch.linalg.svd(torch.eye(4)),
    "LSTM": lambda: torch.nn.LSTM(4, 4)(torch.ones(2, 4)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", EXOTIC.values(), ids=EXOTIC.keys())
def test_unusual_tensors_are_counted_without_a_crash(op):
    assert count(op).traffic.bytes > 0


def test_views_of_sparse_tensors_move_nothing():
    sparse = torch.eye(4).to_sparse().coalesce()
    assert count(lambda: (sparse.values(), sparse.indices())).launches == []


# -- results --------------------------------------------------------------------------------------


def test_results_inside_equal_results_outside():
    x = torch.randn(4, N, requires_grad=True)
    w = torch.randn(N, requires_grad=True)

    def step():
        out = F.layer_norm(residual_block(x) * w, (N,)).softmax(-1).square().sum()
        return out, *torch.autograd.grad(out, (x, w))

    outside = step()
    with Meter():
        inside = step()
    for a, b in zip(outside, inside, strict=True):
        assert torch.equal(a, b)


def test_the_meter_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.randn(3), torch.randn(3)
    torch.manual_seed(0)
    with Meter():
        first = torch.randn(3)
    assert torch.equal(torch.stack(expected), torch.stack((first, torch.randn(3))))
