"""Starts a script or module as Python itself would: with its own `__main__`, `sys.argv`, `sys.path[0]` and file names.

`runpy` differs in three ways that a program may notice: it restores the old `__main__` before the interpreter exits, it
adds its own frames to tracebacks, and it does not change `sys.path[0]` for a script. Processes that `multiprocessing`
spawns find the program through `__main__.__file__`, or `__main__.__spec__` for a module. They import it as
`__mp_main__`, so that `if __name__ == "__main__":` works as usual.
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
    """Raised if there is no such script or module; the message says in one sentence what to do."""


class Program:
    """A script or module that replaces `__main__` in this process."""

    def __init__(self, named: str, arguments: Sequence[str], *, is_module: bool = False) -> None:
        """Checks that the script exists; reads nothing before `code`.

        Args:
            named: path of the script, or dotted name of the module.
            arguments: arguments of the program.
            is_module: True if `named` is a module.

        Raises:
            NoProgram: There is no such script.
        """
        self.named, self.arguments, self.is_module = named, list(arguments), is_module
        self.module = ModuleType("__main__")
        if not is_module and not Path(named).is_file():
            what = "is a folder" if Path(named).is_dir() else "does not exist"
            raise NoProgram(f"{named} {what}: give the path of a Python script, or -m and the name of a module.")

    @property
    def title(self) -> str:
        """Name of its runs: the module's name, or the script's file name."""
        return self.named if self.is_module else Path(self.named).name

    @property
    def names(self) -> dict[str, Any]:
        """Namespace that it runs in."""
        return vars(self.module)

    def take_place(self) -> None:
        """Sets `sys.argv`, `sys.path[0]` and `__main__` permanently, as Python would for this program."""
        sys.argv[:] = [self.named, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path.cwd()) if self.is_module else str(Path(self.named).resolve().parent)
        sys.modules["__main__"] = self.module

    def code(self) -> tuple[CodeType, str]:
        """Compiles the program, and imports the parent packages of a module.

        Returns:
            The code, and its text (empty if there is only compiled code).

        Raises:
            NoProgram: There is no such module.
            SyntaxError: The program has one. Importing the parent packages may raise any other error.
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
            raise NoProgram(f"The module {self.named} cannot be run: it is not Python code.")
        code = loader.get_code(spec.name)
        sys.argv[0] = spec.origin or self.named
        self.names.update(__file__=spec.origin, __cached__=spec.cached, __loader__=loader)
        self.names.update(__package__=spec.parent, __spec__=spec)
        return code, loader.get_source(spec.name) or ""


def _spec_of(name: str) -> ModuleSpec:
    """Returns the spec of a module.

    Raises:
        NoProgram: There is no such module.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a parent package of the module lacks another module
        spec = None
    except (ValueError, ImportError) as error:
        raise NoProgram(f"There is no module named {name}: {error}.") from None
    if spec is None:
        raise NoProgram(f"There is no module named {name}: give a name that `python -m` takes, from this folder.")
    return spec
