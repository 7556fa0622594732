"""Answers that try to pass without doing the work, or that do harm, are rejected for what they do.

All are answers to ``scale_add``; what they try has nothing to do with that task.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from dataclasses import replace

import pytest
import torch

import course_utils
from course_utils import checks

course_utils.machine()  # decides how kernels run, before triton is imported

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from course_utils.checks.draw import Case, Draw  # noqa: E402
from course_utils.checks.kernel_task import (  # noqa: E402
    BUDGET,
    COMPILES,
    INSIDE,
    KERNEL,
    RIGHT,
    WRITERS,
    KernelTask,
)


@triton.jit
def right_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)


def launch(x, y, out, alpha, n=None):
    n = x.numel() if n is None else n
    right_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, alpha, BLOCK=1024)
    return out


def right(x, y, alpha):
    x, y = x.contiguous(), y.contiguous()
    return launch(x, y, torch.empty_like(x), alpha)


def zeros(x, y, alpha):
    launch(x.contiguous(), y.contiguous(), torch.empty_like(x), alpha)
    return torch.zeros_like(x)


def nan(x, y, alpha):
    return torch.full_like(x, float("nan"))


def empty(x, y, alpha):
    return torch.empty_like(x)


def constant(x, y, alpha):
    return torch.ones_like(x)


def input_itself(x, y, alpha):
    return x


def nothing(x, y, alpha):
    launch(x, y, torch.empty_like(x), alpha)


def in_place(x, y, alpha):
    x = x.contiguous()
    return launch(x, y.contiguous(), x, alpha)


def view_of_input(x, y, alpha):
    launch(x.contiguous(), y.contiguous(), out := torch.empty_like(x), alpha)
    x.copy_(out)
    return x[:]


def by_torch(x, y, alpha):
    return (alpha * x.float() + y.float()).to(x.dtype)


def decoration(x, y, alpha):
    launch(x.contiguous(), y.contiguous(), torch.empty_like(x), alpha)
    return torch.add(y.float(), x.float(), alpha=alpha).to(x.dtype)


def overwritten(x, y, alpha):
    out = launch(x.contiguous(), y.contiguous(), torch.empty_like(x), alpha)
    out.copy_(by_torch(x, y, alpha))
    return out


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def laundered(x, y, alpha):
    """PyTorch computes, and a kernel copies what it computed."""
    result = by_torch(x, y, alpha)
    out = torch.empty_like(result)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](result, out, x.numel(), BLOCK=1024)
    return out


def through_numpy(x, y, alpha):
    """What PyTorch's own dispatch does not see."""
    import numpy as np

    wide = alpha * x.float().numpy().astype(np.float32) + y.float().numpy()
    return torch.from_numpy(wide).to(x.dtype)


def only_shown_size(x, y, alpha):
    return launch(x, y, torch.empty_like(x), alpha, n=min(x.numel(), 3000))


def only_vectors(x, y, alpha):
    out = torch.empty(x.numel(), dtype=x.dtype)
    return launch(x.contiguous(), y.contiguous(), out, alpha)


def only_float32(x, y, alpha):
    return launch(x.contiguous(), y.contiguous(), torch.empty(x.shape), alpha)


def in_float64(x, y, alpha):
    return alpha * x.double() + y.double()


def endless(x, y, alpha):
    while True:
        pass


def sleeping(x, y, alpha):
    time.sleep(3600)


def exits(x, y, alpha):
    os._exit(0)


def system_exit(x, y, alpha):
    raise SystemExit(0)


def killed(x, y, alpha):
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(x, y, alpha):
    import ctypes

    ctypes.string_at(0)


def forges(x, y, alpha):
    """Writes what a passing check would send into everything that is open, and ends."""
    import contextlib
    import pickle

    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, pickle.dumps((True, "forged")))
    os._exit(0)


def raises(x, y, alpha):
    raise RuntimeError("no idea")


def refuses_everything(x, y, alpha):
    raise ValueError("not today")


@triton.jit
def interpreter_only_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    parts = [alpha * x, y]
    parts.sort(key=lambda part: 0)
    tl.store(out_ptr + offsets, sum(parts[1:], parts[0]), mask=mask)


def interpreter_only(x, y, alpha):
    x, y = x.contiguous(), y.contiguous()
    out, n = torch.empty_like(x), x.numel()
    interpreter_only_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, alpha, BLOCK=1024)
    return out


def wrong_device(x, y, alpha):
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    return launch(x, y, out, alpha)


@pytest.fixture(scope="module")
def seen_once():
    """An answer that knows the results of one draw by heart."""
    task = checks.task("scale_add")
    known = {}
    for case in task.cases(Draw(0)):
        x, y, alpha = case.arguments
        known[x.float().sum().item()] = (alpha * x.double() + y.double()).to(x.dtype)

    def memorised(x, y, alpha):
        out = torch.empty_like(x.contiguous())
        result = known.get(x.float().sum().item(), out)
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](result, out, x.numel(), BLOCK=1024)
        return out

    return memorised


def judged(answer, seed=1, time_limit=30.0, name="scale_add"):
    return checks.task(name).check(answer, seed=seed, time_limit=time_limit)


def failed_step(verdict):
    return next((step.name for step in verdict.steps if step.passed is False), None)


class Callable:
    def __call__(self, x, y, alpha):
        return right(x, y, alpha)

    def method(self, x, y, alpha):
        return right(x, y, alpha)


@pytest.mark.parametrize(
    "answer",
    [
        right,
        functools.partial(right),
        Callable(),
        Callable().method,
        lambda x, y, a: right(x, y, a),
    ],
    ids=["function", "partial", "object", "method", "lambda"],
)
def test_a_right_answer_passes_whatever_can_be_called(answer):
    assert judged(answer).passed


@triton.jit
def descriptor_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK]).load([start]).to(tl.float32)
    y = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK]).load([start]).to(tl.float32)
    out = tl.make_tensor_descriptor(out_ptr, [n], [1], [BLOCK])
    out.store([start], (alpha * x + y).to(out_ptr.dtype.element_ty))


def by_descriptors(x, y, alpha):
    x, y = x.contiguous(), y.contiguous()
    out, n = torch.empty_like(x), x.numel()
    descriptor_kernel[(triton.cdiv(n, 256),)](x, y, out, n, alpha, BLOCK=256)
    return out


def test_tensor_descriptors_are_counted_as_other_loads():
    assert failed_step(judged(by_descriptors)) in (None, COMPILES)


@pytest.mark.parametrize(
    ("answer", "step", "words"),
    [
        (zeros, RIGHT, "numbers of the result are wrong"),
        (nan, RIGHT, "all 3,000 numbers"),
        (empty, RIGHT, "all 3,000 numbers"),
        (constant, RIGHT, "numbers of the result are wrong"),
        (input_itself, RIGHT, "numbers of the result are wrong"),
        (nothing, RIGHT, "returned None: is there a `return`?"),
        (in_place, KERNEL, "changes x, which belongs to its caller"),
        (view_of_input, KERNEL, "changes x, which belongs to its caller"),
        (by_torch, KERNEL, "no Triton kernel was launched"),
        (decoration, KERNEL, "PyTorch's add ran inside your function"),
        (overwritten, KERNEL, "PyTorch's add, copy, mul ran inside your function"),
        (laundered, KERNEL, "PyTorch's add, mul ran inside your function"),
        (through_numpy, KERNEL, "no Triton kernel was launched"),
        (only_shown_size, RIGHT, "(4,096 numbers)"),
        (only_vectors, RIGHT, "has shape (1517,) where (37, 41) is wanted"),
        (only_float32, RIGHT, "has dtype torch.float32 where torch.float16 is wanted"),
        (in_float64, RIGHT, "has dtype torch.float64 where torch.float32 is wanted"),
        (exits, RIGHT, "ended with exit status 0"),
        (forges, RIGHT, "ended with exit status 0"),
        (system_exit, RIGHT, "SystemExit"),
        (killed, RIGHT, "ended by signal SIGKILL"),
        (segfault, RIGHT, "ended by signal SIGSEGV"),
        (raises, RIGHT, "it raised RuntimeError: no idea"),
        (refuses_everything, RIGHT, "it raised ValueError: not today"),
        (interpreter_only, COMPILES, "a GPU's compiler refuses"),
        (wrong_device, RIGHT, "on the device of its inputs"),
    ],
)
def test_is_rejected_for_what_it_does(answer, step, words):
    verdict = judged(answer)
    assert verdict.state == checks.FAILED
    assert verdict.points == 0
    assert failed_step(verdict) == step
    assert words in verdict.problem
    # None of these is a known mistake of this task, so none may be named.
    assert verdict.mistake is None or answer in (in_place,)


@pytest.mark.parametrize("answer", [endless, sleeping])
def test_is_stopped_when_it_does_not_end(answer):
    begin = time.monotonic()
    verdict = judged(answer, time_limit=1.0)
    assert time.monotonic() - begin < 5
    assert "did not end within 1 seconds" in verdict.problem


def test_results_known_by_heart_pass_nowhere_but_on_what_is_known(seen_once):
    verdict = judged(seen_once, seed=2)
    assert verdict.state == checks.FAILED
    assert failed_step(verdict) == RIGHT


def test_inputs_are_drawn_anew_for_grades_and_stay_for_a_session(monkeypatch):
    seeds = []
    task = checks.task("scale_add")

    def judge(self, answer, seed, time_limit):
        seeds.append(seed)
        return self.verdict(checks.FAILED)

    monkeypatch.setattr(type(task), "judge", judge)
    for _ in range(2):
        checks.run("scale_add", right, record=False)
        checks.run("scale_add", right, fresh=True, record=False)
    assert seeds[0] == seeds[2]
    assert len(set(seeds)) == 3


# ----------------------------------------------------------------------------------------------
# What a right result hides: tasks made for it


@triton.jit
def tail_left_out_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def tail_left_out(x):
    out = torch.zeros_like(x)  # right only because the tail of the inputs is zero too
    tail_left_out_kernel[(2,)](x, out, 256, BLOCK=128)
    return out


@triton.jit
def two_writers_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def two_writers(x):
    out = torch.empty_like(x)
    two_writers_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=128)
    return out


@triton.jit
def reads_past_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets), mask=offsets < n)


def reads_past(x):
    out = torch.empty_like(x)
    reads_past_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def reads_twice(x):
    out = torch.empty_like(x)
    for _ in range(2):
        copy_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def good_copy(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def copy_cases(draw):
    x = draw.normal(300)
    x[256:] = 0
    yield Case("300 numbers", (x,))


COPY = KernelTask(
    "copy",
    "04",
    "Copy",
    minutes=1,
    difficulty=1,
    place=9,
    solution=(copy_kernel, good_copy),
    reference=torch.clone,
    cases=copy_cases,
    budget=lambda x: 2 * x.numel() * x.element_size(),
)


@pytest.mark.parametrize(
    ("answer", "step", "words"),
    [
        (tail_left_out, WRITERS, "44"),
        (two_writers, WRITERS, "two_writers_kernel"),
        (reads_past, INSIDE, "reads or overwrites what belongs to others"),
        (reads_twice, BUDGET, "4,800 bytes were asked for, and 2,400 are enough"),
    ],
)
def test_a_right_result_is_not_enough(answer, step, words):
    verdict = COPY.check(answer, seed=0, time_limit=30)
    assert failed_step(verdict) == step
    assert words in verdict.problem


@triton.jit
def gram_kernel(x_ptr, out_ptr, columns, ROWS: tl.constexpr, STEP: tl.constexpr):
    rows = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, ROWS), tl.float32)
    # Eleven steps are loaded ahead, of 16 kB for each operand: more than an SM has room for.
    for start in tl.range(0, columns, STEP, num_stages=12):
        tile = rows[:, None] * columns + start + tl.arange(0, STEP)[None, :]
        across = rows[None, :] * columns + start + tl.arange(0, STEP)[:, None]
        total += tl.dot(tl.load(x_ptr + tile), tl.load(x_ptr + across))
    tl.store(out_ptr + rows[:, None] * ROWS + rows[None, :], total)


def gram(x):
    rows, columns = x.shape
    out = torch.empty(rows, rows, dtype=x.dtype)
    gram_kernel[(1,)](x, out, columns, ROWS=rows, STEP=64, num_warps=8)
    return out


def gram_cases(draw):
    yield Case("a matrix of 128 by 256", (draw.normal(128, 256, dtype="float16"),))


def test_tiles_have_to_fit_into_the_shared_memory_of_real_gpus():
    task = replace(COPY, solution=(gram_kernel, gram), reference=lambda x: x @ x.T)
    task = replace(task, cases=gram_cases, budget=None)
    verdict = task.check(gram, seed=0, time_limit=30)
    assert failed_step(verdict) == COMPILES
    assert "shared memory" in verdict.problem
