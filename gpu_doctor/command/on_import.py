"""Calls a function once, right after a program has imported a module.

A program may set environment variables before it imports torch (`OMP_NUM_THREADS`, `PYTORCH_ENABLE_MPS_FALLBACK`).
torch reads them when it is imported, so we must not import it before the program does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder:
    """A finder for one module: delegates to the finders behind it and makes the loader call `then` after the import."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        self._pid = os.getpid()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Implements `importlib.abc.MetaPathFinder.find_spec`; returns None for every other module.

        A program that only checks whether the module is installed (`importlib.util.find_spec`) calls this, too.
        """
        if name != self._name or os.getpid() != self._pid:
            return None
        for finder in [other for other in sys.meta_path if other is not self and hasattr(other, "find_spec")]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            if self in sys.meta_path:
                self.remove()
                self._then()

        loader.exec_module = exec_module

    def remove(self) -> None:
        """Removes the finder from the import system, if it is still there."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


@contextmanager
def when_imported(name: str, then: Callable[[], None]) -> Iterator[None]:
    """Calls `then` once: now if the module is imported already, else right after the code inside imports it.

    Args:
        name: name of a top-level module.
        then: function to call; it must not raise.
    """
    if name in sys.modules:
        then()
        yield
        return
    finder: Any = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.remove()
