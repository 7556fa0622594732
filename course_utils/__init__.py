"""Writing Fast Kernels: what every lesson imports.

Importing this package costs a few milliseconds: it loads neither torch, triton, numpy nor
matplotlib. Each public name is loaded when it is first used, because `setup()` must decide how
Triton kernels run before anything imports triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.course_map import progress
    from course_utils.meter import Meter
    from course_utils.predict import compare
    from course_utils.runtime import Machine, machine, setup

# Public name -> the module that defines it.
_NAMES = {
    "setup": "runtime",
    "machine": "runtime",
    "Machine": "runtime",
    "Meter": "meter",
    "compare": "predict",
    "progress": "course_map",
}
_SUBMODULES = (
    "bench",
    "checks",
    "compiler",
    "course_map",
    "examples",
    "explorers",
    "gpus",
    "kernels",
    "lessons",
    "meter",
    "models",
    "plots",
    "predict",
    "records",
    "runtime",
)

__all__ = ["Machine", "Meter", "compare", "machine", "progress", "setup"]


def __getattr__(name: str) -> Any:
    """Load a public name or a submodule the first time it is asked for."""
    module_name = _NAMES.get(name, name)
    if name not in _NAMES and name not in _SUBMODULES:
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
    full_name = f"{__name__}.{module_name}"
    try:
        module = importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        # Only the absence of our own module is an absent attribute; a missing dependency of that
        # module keeps its own message.
        if error.name != full_name:
            raise
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}") from error
    value = getattr(module, name) if name in _NAMES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_SUBMODULES})
