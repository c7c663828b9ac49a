"""A script or module as Python itself would start it: its own `__main__`, `sys.argv`, `sys.path[0]` and file names.

`runpy` does the same but for three things that a program may notice: it puts the old `__main__` back before the
interpreter's exit, it adds frames of its own to tracebacks, and it leaves `sys.path[0]` as it is for a script.
Processes that `multiprocessing` spawns find their way by `__main__.__file__`, or by `__main__.__spec__` for a module:
they import it as `__mp_main__`, and its `if __name__ == "__main__":` holds them off as ever.
"""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class NoProgram(ValueError):
    """There is nothing to run; the message says in one sentence what to do."""


class Program:
    """One script or module, which takes the place of `__main__` when it is prepared."""

    def __init__(self, named: str, arguments: Sequence[str], *, is_module: bool = False) -> None:
        """Nothing is read before `prepare`.

        Args:
            named: path of the script, or dotted name of the module.
            arguments: that the program shall see.
            is_module: `named` is a module.

        Raises:
            NoProgram: if there is no such script.
        """
        self.named, self.arguments, self.is_module = named, list(arguments), is_module
        self.module = ModuleType("__main__")
        if not is_module and not Path(named).is_file():
            what = "is a folder" if Path(named).is_dir() else "does not exist"
            raise NoProgram(f"{named} {what}: give the path of a Python script, or -m and the name of a module.")

    @property
    def title(self) -> str:
        """What its runs are called."""
        return self.named if self.is_module else Path(self.named).name

    @property
    def names(self) -> dict[str, Any]:
        """The namespace that it runs in."""
        return vars(self.module)

    def take_place(self) -> None:
        """Sets `sys.argv`, `sys.path[0]` and `__main__` as Python would for this program; they stay so."""
        sys.argv[:] = [self.named, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path.cwd()) if self.is_module else str(Path(self.named).resolve().parent)
        sys.modules["__main__"] = self.module

    def code(self) -> tuple[CodeType, str]:
        """Compiles the program, and imports the packages that a module lies in.

        Returns:
            The code, and its text (empty where only compiled code is there).

        Raises:
            NoProgram: if there is no such module.
            SyntaxError: and whatever importing those packages raises.
        """
        return self._of_module() if self.is_module else self._of_script()

    def _of_script(self) -> tuple[CodeType, str]:
        path = str(Path(self.named).absolute())
        with io.open_code(path) as file:
            text = file.read()
        loader = SourceFileLoader("__main__", path)
        self.names.update(__file__=path, __cached__=None, __loader__=loader, __package__=None, __spec__=None)
        return compile(text, path, "exec", dont_inherit=True), importlib.util.decode_source(text)

    def _of_module(self) -> tuple[CodeType, str]:
        spec = _spec_of(self.named)
        if spec.submodule_search_locations is not None:
            spec = _spec_of(f"{self.named}.__main__")
        loader: Any = spec.loader
        if not hasattr(loader, "get_code"):
            raise NoProgram(f"The module {self.named} cannot be run: it is no Python code.")
        code = loader.get_code(spec.name)
        sys.argv[0] = spec.origin or self.named
        self.names.update(__file__=spec.origin, __cached__=spec.cached, __loader__=loader)
        self.names.update(__package__=spec.parent, __spec__=spec)
        return code, loader.get_source(spec.name) or ""


def _spec_of(name: str) -> ModuleSpec:
    """Where a module is found.

    Raises:
        NoProgram: if it is not.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a package that the module lies in lacks something else
        spec = None
    except (ValueError, ImportError) as error:
        raise NoProgram(f"There is no module named {name}: {error}.") from None
    if spec is None:
        raise NoProgram(f"There is no module named {name}: give a name that `python -m` takes, from this folder.")
    return spec
