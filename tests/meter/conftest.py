"""The meter's tests run kernels as this machine runs them: compiled on a GPU, else interpreted.

With METER_TESTS=compiled in the environment, kernels are made to be compiled on any machine, and
only the meter can run them (`test_compiled_kernels.py` starts such a child process).
"""

import os

import pytest

import course_utils

COMPILED_ONLY = os.environ.get("METER_TESTS") == "compiled"

if COMPILED_ONLY:
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ.pop("NUMBA_ENABLE_CUDASIM", None)
else:
    course_utils.machine()  # decides how kernels run, before a test module imports triton


@pytest.fixture(scope="session")
def device() -> str:
    """Where the tests' tensors live."""
    return "cpu" if COMPILED_ONLY else course_utils.machine().device


@pytest.fixture
def needs_unmetered_kernels() -> None:
    """Skip a test that runs kernels outside a meter where none can run."""
    if COMPILED_ONLY:
        pytest.skip("kernels made to be compiled run outside a meter only on a GPU")


@pytest.fixture
def needs_interpreter() -> None:
    """Skip a test about the interpreter itself where kernels are compiled."""
    import triton

    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled here, not interpreted")
