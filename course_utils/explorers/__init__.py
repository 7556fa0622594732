"""The course's explorers: a picture, and the controls that redraw it.

Each ``<name>_explorer()`` makes a new, independent explorer. They are loaded when first used, since
each needs matplotlib and ipywidgets, and the counting ones torch and Triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.explorers.base import Explorer
    from course_utils.explorers.block import block_explorer
    from course_utils.explorers.fusion import fusion_explorer
    from course_utils.explorers.roofline import roofline_explorer
    from course_utils.explorers.rows import rows_explorer
    from course_utils.explorers.trips import trips_explorer

_NAMES = {
    "Explorer": "base",
    "trips_explorer": "trips",
    "roofline_explorer": "roofline",
    "fusion_explorer": "fusion",
    "block_explorer": "block",
    "rows_explorer": "rows",
}

__all__ = [
    "Explorer",
    "block_explorer",
    "fusion_explorer",
    "roofline_explorer",
    "rows_explorer",
    "trips_explorer",
]


def __getattr__(name: str) -> Any:
    """Load an explorer the first time it is asked for."""
    if name not in _NAMES:
        raise AttributeError(
            f"module 'course_utils.explorers' has no attribute {name!r}; "
            f"there are: {', '.join(sorted(_NAMES))}"
        )
    value = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
