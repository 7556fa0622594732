"""A meter leaves everything as it was, after errors, nested and in threads; and it is cheap."""

import inspect
import sys
import threading
import time

import pytest
import torch
import torch._dynamo  # replaces functions of torch when first imported
import triton
import triton.language as tl
from meter_kernels import add, copy, gelu
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from triton.runtime import autotuner, interpreter, jit

from course_utils.meter import Meter, compiled, meter, triton_tiles

# The repairs of the interpreter stay; they are made before anything is compared.
triton_tiles.repair_interpreter()
interpreter._implicit_cvt(1)


def patched_places() -> list:
    """Every namespace that the meter, or Triton under it, writes to."""
    places = [
        interpreter, interpreter.InterpretedFunction, interpreter.InterpreterBuilder,
        interpreter.ReduceOps, interpreter.ScanOps, jit.JITFunction, autotuner.Autotuner,
        torch, torch.Tensor, tl, tl.core, tl.math, tl.standard, sys.modules[__name__],
        sys.modules[copy.fn.__module__],
    ]  # fmt: skip
    places += [cls for _, cls in inspect.getmembers(tl.core, inspect.isclass)]
    if "torch._inductor.codecache" in sys.modules:
        from torch._inductor.codecache import PyCodeCache

        places += [PyCodeCache, *PyCodeCache.modules]
    return places


def snapshot() -> list[tuple[object, dict]]:
    return [(place, dict(vars(place))) for place in patched_places()]


def differences(before: list[tuple[object, dict]]) -> list[str]:
    """Name what is no longer the same object, or new, or gone."""
    found = []
    for place, old in before:
        now = vars(place)
        for name in old.keys() | now.keys():
            if name.startswith("__") and name not in ("__call__", "__index__", "__bool__"):
                continue
            same = name in old and name in now and now[name] is old[name]
            # Triton's own scope puts inherited attributes back as own ones.
            if not same and not (name not in old and now[name] is getattr(place, name)):
                found.append(f"{place!r}.{name}")
    return found


@triton.jit
def failing(x_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i))
    tl.static_assert(B == 3)


class Stop(BaseException):
    """Stands for an interrupt from the keyboard."""


def interrupt(*_):
    raise Stop


def failing_kernel(device):
    failing[(1,)](torch.ones(8, device=device), torch.ones(8, device=device), B=8)


def failing_op(device):
    torch.ones(3, device=device) @ torch.ones(4, device=device)


def failing_body(device):
    torch.ones(3, device=device) * 2
    raise RuntimeError("the reader's own")


def interrupted_grid(device):
    copy[interrupt](torch.ones(8, device=device), torch.ones(8, device=device), 8, BLOCK=8)


def kernel_on_meta(device):
    copy[(1,)](torch.ones(8, device="meta"), torch.ones(8, device=device), 8, BLOCK=8)


def wrong_arguments(device):
    copy[(1,)](torch.ones(8, device=device))


@triton.autotune([triton.Config({"BLOCK": 8}, pre_hook=interrupt)], key=[])
@triton.jit
def interrupted_config(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr))


def interrupted_hook(device):
    interrupted_config[(1,)](torch.ones(8, device=device), torch.ones(8, device=device), 8)


FAILURES = [
    failing_kernel, failing_op, failing_body, interrupted_grid, kernel_on_meta, wrong_arguments,
    interrupted_hook,
]  # fmt: skip


@pytest.mark.parametrize("fail", FAILURES, ids=lambda function: function.__name__)
def test_after_an_exception_nothing_stays_patched(device, fail):
    before = snapshot()
    with pytest.raises(BaseException) as caught, Meter() as metered:
        fail(device)
    assert not isinstance(caught.value, AssertionError) or fail is failing_kernel
    assert differences(before) == []
    assert _get_current_dispatch_mode_stack() == []
    assert copy.pre_run_hooks == [] and failing.pre_run_hooks == []
    counted = len(metered.launches)
    torch.ones(3) * 2
    assert len(metered.launches) == counted
    x, out = torch.ones(8, device=device), torch.zeros(8, device=device)
    with Meter() as after:
        copy[(1,)](x, out, 8, BLOCK=8)
    assert after.trips(x) == 2.0


def test_after_a_normal_end_nothing_stays_patched(device):
    x, out = torch.ones(8, device=device), torch.zeros(8, device=device)
    before = snapshot()
    with Meter(), Meter():
        copy[(1,)](x, out, 8, BLOCK=8)
        x * 2
    assert differences(before) == []
    assert _get_current_dispatch_mode_stack() == []


def test_the_snapshot_sees_a_patch():
    before = snapshot()
    with Meter():
        changed = differences(before)
    for name in ("InterpretedFunction'>.run", "JITFunction'>.run", "Autotuner'>._bench"):
        assert any(difference.endswith(name) for difference in changed)


def test_a_meter_that_cannot_open_takes_back_what_it_did(monkeypatch):
    before = snapshot()

    def fail():
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_start", fail)
        with pytest.raises(OSError, match="no room"):
            Meter().__enter__()
    assert differences(before) == []
    with Meter() as metered:
        torch.ones(3)
    assert len(metered.launches) == 1
    assert differences(before) == []


def test_without_triton_eager_ops_are_counted(monkeypatch):
    monkeypatch.setattr(meter.importlib.util, "find_spec", lambda name: None)
    with Meter() as metered:
        torch.ones(3) * 2
    assert [launch.name for launch in metered.launches] == ["ones", "mul"]


# -- nesting and order ----------------------------------------------------------------------------


def test_nested_meters_count_what_is_inside_of_them(device):
    x, out = torch.ones(64, device=device), torch.zeros(64, device=device)
    with Meter() as outer:
        x * 2
        with Meter() as inner:
            copy[(1,)](x, out, 64, BLOCK=64)
            x + 1
        copy[(1,)](x, out, 64, BLOCK=64)
    assert [launch.name for launch in outer.launches] == ["mul", "copy", "add", "copy"]
    assert [launch.name for launch in inner.launches] == ["copy", "add"]
    assert (outer.trips(x), inner.trips(x)) == (8.0, 4.0)


def test_a_meter_cannot_be_opened_twice_at_once():
    with Meter() as metered:
        with pytest.raises(RuntimeError, match="open already; open a second one with"):
            metered.__enter__()
        torch.ones(3)
    assert len(metered.launches) == 1
    with pytest.raises(RuntimeError, match="not open"):
        metered.__exit__(None, None, None)


def test_meters_may_close_out_of_order():
    x = torch.ones(8)

    def generator():
        with Meter() as metered:
            yield metered

    suspended = generator()
    first = next(suspended)
    with Meter() as second:
        x * 2
        suspended.close()
        x * 3
    x * 4
    assert len(first.launches) == 1
    assert len(second.launches) == 2
    assert _get_current_dispatch_mode_stack() == []


def test_a_meter_closes_in_the_thread_that_opened_it():
    before = snapshot()
    metered = Meter()
    thread = threading.Thread(target=metered.__enter__)
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="opened in another thread"):
        metered.__exit__(None, None, None)
    assert differences(before) == []


def test_hooks_of_a_kernel_run_uncounted_and_stay(device):
    calls = []

    def hook(*args, **kwargs):
        calls.append(torch.ones(3).sum().item())

    x, out = torch.ones(8, device=device), torch.zeros(8, device=device)
    copy.add_pre_run_hook(hook)
    try:
        with Meter() as metered:
            copy[(1,)](x, out, 8, BLOCK=8)
        assert calls == [3.0]
        assert copy.pre_run_hooks == [hook]
        assert [launch.name for launch in metered.launches] == ["copy"]
    finally:
        copy.pre_run_hooks.remove(hook)


# -- threads --------------------------------------------------------------------------------------


def run_together(*functions) -> None:
    """Run functions in threads that start together; raise what one of them raised."""
    barrier, errors = threading.Barrier(len(functions)), []

    def run(function):
        try:
            barrier.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_meters_of_two_threads_count_their_own(device):
    rounds, meters = 15, {}

    def worker(name, kernel, n, op):
        x = torch.linspace(-1, 1, n, device=device)
        out = torch.empty_like(x)
        with Meter() as metered:
            for _ in range(rounds):
                kernel[(4,)](x, out, n, BLOCK=128)
                op(x)
        meters[name] = metered
        expected = x if kernel is copy else torch.nn.functional.gelu(x)
        torch.testing.assert_close(out, expected)

    run_together(
        lambda: worker("first", copy, 500, torch.sin),
        lambda: worker("second", gelu, 300, torch.cos),
    )
    for name, kernel, op, n in (("first", "copy", "sin", 500), ("second", "gelu", "cos", 300)):
        assert [launch.name for launch in meters[name].launches] == [kernel, op] * rounds
        assert meters[name].trips(4 * n) == 4.0 * rounds
        assert meters[name].findings == []


def test_an_unmetered_thread_is_neither_counted_nor_disturbed(device, needs_unmetered_kernels):
    rounds = 15
    x, y = torch.ones(200, device=device), torch.full((200,), 2.0, device=device)
    outs, metered = [], []

    def unmetered():
        for _ in range(rounds):
            out = torch.full_like(x, float("nan"))
            add[(2,)](x, y, out, 200, BLOCK=128)
            outs.append(out * 1)

    def with_meter():
        out = torch.empty_like(x)
        for _ in range(rounds):
            with Meter() as one:
                copy[(2,)](x, out, 200, BLOCK=128)
            metered.append(one)

    run_together(unmetered, with_meter)
    assert all(out.tolist() == [3.0] * 200 for out in outs)
    assert [[launch.name for launch in one.launches] for one in metered] == [["copy"]] * rounds
    assert all(one.traffic.bytes == 1600 for one in metered)


def test_unmetered_threads_take_turns_in_the_interpreter(needs_interpreter):
    def worker(value):
        for _ in range(15):
            x, out = torch.full((500,), value), torch.zeros(500)
            add[(4,)](x, x, out, 500, BLOCK=128)
            assert out.tolist() == [2 * value] * 500

    run_together(lambda: worker(1.0), lambda: worker(2.0), lambda: worker(3.0))


def test_meters_that_open_and_close_in_threads_leave_nothing(device):
    before = snapshot()
    x, out = torch.ones(8, device=device), torch.zeros(8, device=device)

    def open_and_close():
        for _ in range(10):
            with Meter() as metered:
                copy[(1,)](x, out, 8, BLOCK=8)
                x * 2
            assert len(metered.launches) == 2

    run_together(open_and_close, open_and_close, open_and_close)
    assert differences(before) == []


# -- cost -----------------------------------------------------------------------------------------


def test_metering_a_thousand_small_launches_costs_less_than_the_interpreter(needs_interpreter):
    x, y, out = torch.ones(3, 64).unbind()

    def seconds(launches: int) -> float:
        start = time.process_time()  # what other processes take is left out
        for _ in range(launches):
            add[(1,)](x, y, out, 64, BLOCK=64)
        return time.process_time() - start

    def ratio() -> float:
        outside, inside = [], []
        for _ in range(20):  # in turns, 1000 launches each
            outside.append(seconds(50))
            with Meter():
                inside.append(seconds(50))
        return min(inside) / min(outside)

    seconds(5)
    # Measured: 1.4 to 1.6. A machine that is busy all the time gets three tries.
    assert any(ratio() < 2 for _ in range(3))
