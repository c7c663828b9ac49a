"""Hears of modules that are loaded for the first time while code is watched."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Set
from importlib.machinery import ModuleSpec
from typing import Any


class LateImports:
    """A finder for `sys.meta_path` that finds what the others find, and tells when such a module is loaded."""

    def __init__(self, names: Set[str], loaded: Callable[[], None]) -> None:
        """Args: names: of modules to hear of. loaded: called after one is loaded."""
        self._names, self._loaded = names, loaded
        self._looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for all other modules, as for these while the others are asked."""
        if name not in self._names or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        except Exception:  # the import itself will say what is wrong
            return None
        finally:
            self._looking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._around(spec.loader)
        return spec

    def _around(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            original(module)
            self._loaded()

        try:
            loader.exec_module = exec_module
        except AttributeError:  # one that is shared: what it loads is not watched
            return
