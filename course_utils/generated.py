"""Show the kernels that torch.compile generated: Triton on a GPU, C++ on a CPU."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

_TRITON_BODY = re.compile(r"^@triton\.jit\n(def .*?)\n'''", re.DOTALL | re.MULTILINE)
_CPP_BODY = re.compile(r'^extern "C".*?(?=^\'\'\'\))', re.DOTALL | re.MULTILINE)
# Bookkeeping that Inductor adds and a reader of the kernel need not see.
_CPP_NOISE = re.compile(r"^.*inductor_cpu_integer_div_error.*\n", re.MULTILINE)


def generated_kernels(compiled: Callable[..., Any], *args: Any) -> list[str]:
    """Return the source of each kernel that ``torch.compile`` generates for a call.

    Args:
        compiled: a function that came from ``torch.compile``.
        *args: what to call it with.

    Returns:
        One text per kernel, in the order of the generated module: Triton on a GPU, C++ on a CPU.

    Raises:
        TypeError: if ``compiled`` is not a compiled function.
    """
    if not hasattr(compiled, "_torchdynamo_orig_callable"):
        raise TypeError(
            "generated_kernels wants a function that came from torch.compile, got "
            f"{getattr(compiled, '__name__', type(compiled).__name__)}. "
            "Example: generated_kernels(torch.compile(chain), x)"
        )
    import torch
    from torch._inductor.utils import run_and_get_code

    # A function that has been compiled already would show nothing: compile it once more.
    fresh = torch.compile(compiled._torchdynamo_orig_callable)
    torch._dynamo.reset()
    _, modules = run_and_get_code(fresh, *args)
    return [kernel for module in modules for kernel in _kernels_of(module)]


def _kernels_of(module: str) -> list[str]:
    triton = [textwrap.dedent(body).strip() for body in _TRITON_BODY.findall(module)]
    cpp = [_CPP_NOISE.sub("", body).strip() for body in _CPP_BODY.findall(module)]
    return triton + cpp
