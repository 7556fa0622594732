"""bench: rates on known numbers, the timing method on a clockwork GPU, records without a GPU."""

import copy
import types

import pytest
import sample_record

from course_utils import bench, records

FLUSH_MS = 0.06
OVERHEAD_MS = 0.004


class Clockwork:
    """A GPU and its host as two clocks: work is enqueued on one and done on the other.

    Times are milliseconds. It follows the one rule of a stream: a piece of work starts when the
    one before it is done, and not before it was enqueued.
    """

    name = "Clockwork"

    out_of_memory = MemoryError

    def __init__(self):
        self.host = 0.0
        self.device = 0.0
        self.log = []
        self.released = False

    def enqueue(self, host, device):
        self.host += host
        self.device = max(self.device, self.host) + device

    def event(self):
        return ClockworkEvent(self)

    def synchronize(self):
        self.host = max(self.host, self.device)

    def flush(self):
        self.log.append("flush")
        self.enqueue(0.002, FLUSH_MS)

    def release_memory(self):
        self.released = True

    def tiny_op(self):
        return lambda: self.enqueue(OVERHEAD_MS, 0.001)


class ClockworkEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.gpu.log.append("event")
        self.gpu.enqueue(0.0005, 0.0)
        self.at = self.gpu.device

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.fixture
def record_document():
    return sample_record.document()


@pytest.fixture
def gpu(monkeypatch):
    clockwork = Clockwork()
    monkeypatch.setattr(bench, "_device", lambda: clockwork)
    monkeypatch.setattr(bench, "perf_counter", lambda: clockwork.host / 1e3)
    monkeypatch.setattr(bench, "_machine", lambda: types.SimpleNamespace(mode="gpu"))
    bench.launch_overhead.cache_clear()
    yield clockwork
    bench.launch_overhead.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch):
    def refuse():
        raise AssertionError("touched a GPU in interpreter mode")

    monkeypatch.setattr(bench, "_machine", lambda: types.SimpleNamespace(mode="interpreter"))
    monkeypatch.setattr(bench, "_device", refuse)


def kernel(gpu, device_ms, host_ms=0.005, first_ms=0.0):
    """Return a function whose first call takes longer, as compiling does."""
    calls = 0

    def function():
        nonlocal calls
        calls += 1
        gpu.log.append("call")
        extra = first_ms if calls == 1 else 0.0
        time = device_ms(calls) if callable(device_ms) else device_ms
        gpu.enqueue(host_ms + extra, time)

    return function


def timing(milliseconds, overhead=None):
    return bench.Timing(milliseconds, milliseconds, milliseconds, 9, "timed on X", overhead)


def test_rates_on_known_numbers():
    assert timing(2.0).gb_per_s(8e9) == pytest.approx(4000)
    # The five-op chain: ten trips over 2^28 floats.
    assert timing(2.530).gb_per_s(40 * 2**28) == pytest.approx(4244.0, abs=0.1)
    assert timing(1.6).tflop_per_s(2 * 8192**3) == pytest.approx(687.19, abs=0.01)
    assert timing(1000).tflop_per_s(1e12) == pytest.approx(1)


def test_a_time_below_ten_launch_overheads_is_not_rated():
    assert timing(0.041, overhead=0.004).gb_per_s(41_000) == pytest.approx(1.0)
    short = timing(0.039, overhead=0.004)
    assert short.short
    for rate in (short.gb_per_s, short.tflop_per_s):
        with pytest.raises(bench.TooShortError, match=r"39\.00 µs .* 4\.00 µs .* larger size"):
            rate(1e6)


def test_flush_and_enqueueing_stay_out_of_the_interval(gpu):
    result = bench.time(kernel(gpu, 0.5, first_ms=700))
    assert (result.milliseconds, result.low, result.high) == pytest.approx((0.5,) * 3)
    assert result.source == "timed on Clockwork"


def test_a_host_slower_than_one_flush_is_hidden(gpu):
    # 0.1 ms of Python for 0.01 ms of device work, as a chain of tiny ops has.
    assert bench.time(kernel(gpu, 0.01, host_ms=0.1)).milliseconds == pytest.approx(0.01)


def test_the_cache_is_overwritten_before_every_repetition(gpu):
    result = bench.measure(kernel(gpu, 1.0), rated=False)
    timed = gpu.log[gpu.log.index("event") :]
    assert timed.count("event") == 2 * result.repeats
    intervals = [position for position, what in enumerate(gpu.log) if what == "event"]
    for start, end in zip(intervals[::2], intervals[1::2], strict=True):
        assert gpu.log[start - 1] == "flush"
        assert gpu.log[start + 1 : end] == ["call"]


def test_median_and_spread(gpu):
    # Every tenth repetition is disturbed: the median does not see it, the mean would.
    result = bench.time(kernel(gpu, lambda call: 9.0 if call % 10 == 0 else 1.0 + call * 1e-6))
    assert result.milliseconds == pytest.approx(1.0, abs=1e-3)
    assert result.low < result.milliseconds < result.high < 1.01


def test_repeats_follow_the_budget(gpu):
    assert bench.measure(kernel(gpu, 1.0), budget_ms=100).repeats == pytest.approx(94, abs=3)
    assert bench.measure(kernel(gpu, 900.0)).repeats == bench.FEWEST_REPEATS
    assert bench.measure(kernel(gpu, 0.002)).repeats == bench.MOST_REPEATS


def test_launch_overhead_is_the_steady_cost_and_measured_once(gpu):
    assert bench.launch_overhead() == pytest.approx(OVERHEAD_MS, rel=0.01)
    then = gpu.host
    assert bench.launch_overhead() == pytest.approx(OVERHEAD_MS, rel=0.01)
    assert gpu.host == then
    assert bench.time(kernel(gpu, 0.03)).short
    assert not bench.time(kernel(gpu, 0.05)).short


def test_percentile():
    assert bench.percentile([5.0], 80) == 5.0
    assert bench.percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert bench.percentile([0.0, 10.0], 20) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no samples"):
        bench.percentile([], 50)


def test_format_time():
    assert [bench.format_time(value) for value in (2.53, 0.1, 0.0042, 1200)] == [
        "2.530 ms",
        "0.100 ms",
        "4.20 µs",
        "1.20 s",
    ]
    assert repr(timing(2.53)) == "2.530 ms (2.530 ms to 2.530 ms, timed on X)"


def test_without_a_gpu_the_function_never_runs(no_gpu):
    def explode():
        raise AssertionError("ran in interpreter mode")

    result = bench.time(explode)
    assert not result
    assert "no GPU here" in repr(result)
    results = bench.sweep(lambda n: explode(), [1, 2])
    assert [bool(entry) for entry in results] == [False, False]


def test_without_a_gpu_the_record_is_shown(no_gpu, monkeypatch, record_document):
    monkeypatch.setattr(records, "load", lambda: records.from_document(record_document))
    result = bench.time(lambda: None, record=("chain", "eager"), n=2**20, dtype="float32")
    assert (result.milliseconds, result.low, result.high, result.repeats) == (0.02, 0.019, 0.021, 7)
    assert result.source == "recorded on NVIDIA H200, torch 2.11.0, triton 3.6.0, 2026-11-29"
    # Its rates are refused by the record's own launch overhead, 0.004 ms.
    with pytest.raises(bench.TooShortError):
        result.gb_per_s(1e9)
    missing = bench.time(lambda: None, record=("chain", "eager"), n=3)
    assert not missing
    assert "no recorded row fits chain/eager(n=3)" in missing.reason
    swept = bench.sweep(
        lambda n: None, [2**20, 2**28, 5], record=("chain", "eager"), dtype="float32"
    )
    assert [entry.milliseconds if entry else None for entry in swept] == [0.02, 2.53, None]


def test_without_any_record_that_is_said(no_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    result = bench.time(lambda: None, record=("chain", "eager"), n=1)
    assert "no record yet; make one with `make record` on a GPU" in repr(result)


def test_no_timing_explains_itself_and_can_be_copied():
    nothing = bench.NoTiming("because")
    with pytest.raises(AttributeError, match="no 'milliseconds', because there is no time"):
        nothing.milliseconds  # noqa: B018
    with pytest.raises(AttributeError, match="there is no time: because"):
        nothing.gb_per_s(1)
    assert copy.deepcopy(nothing) == nothing
    assert not hasattr(nothing, "_repr_html_")


def test_sweep_times_each_value(gpu):
    results = bench.sweep(lambda n: kernel(gpu, n), [0.5, 1.0])
    assert [result.milliseconds for result in results] == pytest.approx([0.5, 1.0])


def test_sweep_goes_on_after_a_size_that_does_not_fit(gpu):
    def make(n):
        if n > 1:
            raise gpu.out_of_memory("too much")
        return kernel(gpu, n)

    results = bench.sweep(make, [2.0, 1.0])
    assert not results[0]
    assert "n=2.0 does not fit" in results[0].reason
    assert results[1].milliseconds == pytest.approx(1.0)
    assert gpu.released


def test_an_error_of_the_function_is_its_own(gpu):
    with pytest.raises(ZeroDivisionError):
        bench.time(lambda: 1 / 0)


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"wants a function without arguments, got Tensor"):
        bench.time(type("Tensor", (), {})())
    with pytest.raises(TypeError, match=r'record= wants a benchmark and a case.*got "?.chain'):
        bench.time(lambda: None, record="chain")
    with pytest.raises(TypeError, match="takes a value"):
        bench.sweep(3, [1])


def test_no_timing_inside_a_meter(gpu):
    from course_utils.meter.torch_ops import CountingMode

    with (
        CountingMode(lambda launch: None),
        pytest.raises(RuntimeError, match="leave the with block first"),
    ):
        bench.time(kernel(gpu, 1.0))
