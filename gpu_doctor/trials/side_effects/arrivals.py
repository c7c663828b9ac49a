"""Calls back when one of some awaited modules has been imported, as long as patches are on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from gpu_doctor.capture import Patches


def told_of_arrivals(tell: Callable[[str], None], is_awaited: Callable[[str], bool], patches: Patches) -> None:
    """Calls `tell` with the name of each awaited module right after the module's code has run.

    It imports nothing and does not change the module; each import is reported once.
    """
    finder = _Arrivals(tell, is_awaited)
    patches.hook("sys.meta_path", lambda: _without(finder))
    sys.meta_path.insert(0, finder)


class _Arrivals:
    """Import finder that wraps the loaders of awaited modules; it finds no module itself."""

    def __init__(self, tell: Callable[[str], None], is_awaited: Callable[[str], bool]) -> None:
        self._tell, self._is_awaited = tell, is_awaited

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Returns the spec of the finders behind it; an awaited module's loader is made to call back."""
        if not self._is_awaited(name) or self not in sys.meta_path:
            return None
        behind = [finder for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if hasattr(finder, "find_spec")]
        spec = next((found for finder in behind if (found := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None:
            self._listen(spec)
        return spec

    def _listen(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        # One of Python's built-in modules is a class, which loads others too.
        if not hasattr(loader, "exec_module") or not hasattr(loader, "__dict__") or isinstance(loader, type):
            return
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            original(module)
            self._tell(spec.name)

        loader.exec_module = exec_module


def _without(finder: Any) -> None:
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
