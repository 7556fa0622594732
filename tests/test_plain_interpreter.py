"""Triton's interpreter as it comes."""

# The machine is asked before triton is imported.
# ruff: noqa: E402

import pytest

import course_utils

course_utils.machine()

import triton
import triton.language as tl

from course_utils.plain_interpreter import in_plain_interpreter


@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at))


def test_a_program_sees_its_kernels_and_prints():
    program = """
        x = torch.ones(4)
        double[(1,)](x, BLOCK=4)
        print(x.tolist(), triton.knobs.runtime.interpret)
    """
    assert in_plain_interpreter(program, double) == "[2.0, 2.0, 2.0, 2.0] True"


def test_a_failure_is_told_in_one_line():
    with pytest.raises(RuntimeError, match="failed in Triton's interpreter: NameError: name 'z'"):
        in_plain_interpreter("print(z)")
