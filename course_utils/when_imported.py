"""Do something to a library as soon as it has been imported, without importing it oneself."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder


def when_imported(name: str, action: Callable[[], None]) -> Callable[[], None]:
    """Run ``action`` once: now if the module is there, else when it has been imported.

    Args:
        name: the module's full name, such as "numba.cuda".
        action: what to do; it may import the module.

    Returns:
        A function that calls the waiting off; it does nothing once the action has run.
    """
    if name in sys.modules:
        action()
        return lambda: None
    finder = _Finder(name, action)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    """Lets the other finders find the module, and runs the action after its code has run."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name = name
        self.action = action
        self.is_asking = False

    def leave(self) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_asking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            # To find a module is not to import it; and meanwhile the waiting may be called off.
            if self in sys.meta_path:
                self.leave()
                self.action()

        spec.loader.exec_module = exec_module
        return spec
