"""Finds the names of the namespace that a cell can reach, also through functions and objects.

The cell's text shows what the cell reads, and compiled code shows what functions of earlier cells read. Objects are
followed as a snapshot follows them, so that a callback in a list or a model in a trainer counts. Nothing is run or
changed. A name that the cell certainly binds before it reads it belongs to the cell, not to the namespace.
"""

from __future__ import annotations

import ast
import dis
import functools
import re
import types
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from gpu_doctor.trials.cell_reads import reached
from gpu_doctor.trials.snapshot.kinds import internal
from gpu_doctor.trials.snapshot.parts import is_users
from gpu_doctor.trials.snapshot.walk import Walk, uncollected

_BY_NAME: Final = frozenset(("eval", "exec", "globals", "get_ipython"))
"""Functions that can reach names which the code does not contain."""
_MAIN: Final = "__main__"
_GLOBAL: Final = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_HERE: Final = frozenset(("locals", "vars"))
"""Functions that return all names of the cell if they are called there without an argument."""
_IPYTHON_LINE: Final = re.compile(r"(\s*)(?:(%%?)\s*(\w*)|!|\?|[\w.]+\?+\s*$)")
_HARMLESS: Final = frozenset(
    ("", "gpudoctor", "matplotlib", "config", "load_ext", "reload_ext", "autoreload", "env", "pip", "conda", "cd", "ls")
)
"""Magics that run nothing with the names of the notebook; `!command` and `?` are nameless."""


class Coded(Protocol):
    """An object with code and a namespace, such as a case."""

    made_of: Any
    """Text or callable."""
    source: str
    """Text; empty for a callable."""
    namespace: dict[str, Any]


_walked: ContextVar[dict[int, Reached] | None] = ContextVar("walked", default=None)


@contextmanager
def walked_once() -> Iterator[None]:
    """Caches the walk of each case for all checks inside the context, in which none of the user's code may run."""
    token = _walked.set({})
    try:
        yield
    finally:
        _walked.reset(token)


class Reached(Walk):
    """The walk over everything that a case's code can reach, also through functions of earlier cells."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        """Starts a walk that has reached nothing.

        Args:
            space: namespace of the code.
        """
        super().__init__()
        self.names: set[str] = set()
        """Names of the namespace that were reached, without those of IPython and the interpreter."""
        self.iterators: dict[int, tuple[Any, str]] = {}
        """Iterators that were reached, which a run uses up, by id, with a variable that leads there."""
        self._namespace = space
        self._codes: list[tuple[types.CodeType, dict[str, Any]]] = []
        self._taken: dict[int, set[str]] = {}
        self._made: Set[str] = frozenset()
        """Names that the cell has bound itself before the line that is being followed."""
        self._blind = False
        """True if some code can reach names that it does not contain."""
        self.every_name = False
        """True if the names were unknown, so that all were followed."""

    @classmethod
    def of(cls, case: Coded) -> Reached:
        """Returns the walk of a case's code; over the whole namespace if the names are unknown."""
        walked = _walked.get()
        if walked is None or id(case) not in walked:
            with uncollected():
                found = cls.by(case) or cls.every(case)
            if walked is None:
                return found
            walked[id(case)] = found
        return walked[id(case)]

    @classmethod
    def by(cls, case: Coded) -> Reached | None:
        """Returns the walk of a case's code; None if the names are unknown, as with `eval`."""
        self = cls(case.namespace)
        if callable(case.made_of):
            self.over([], [case.made_of])
        else:
            read = _read(case.source)
            if read is None:
                return None
            names, made = read
            self._blind = bool(names.keys() & _BY_NAME)
            for line in sorted(set(names.values())):  # a call before the cell binds a name uses its old value
                self._made = {name for name, at in made.items() if at < line}
                self._follow({name for name, at in names.items() if at == line}, case.namespace)
                self._through_codes()
        self._through_codes()
        return None if self._blind else self

    @classmethod
    def every(cls, case: Coded) -> Reached:
        """Returns the walk over the whole namespace."""
        self = cls(case.namespace)
        self.every_name = True
        self._follow(set(case.namespace), case.namespace)
        self.over([], [case.made_of])
        self._through_codes()
        return self

    def _through_codes(self) -> None:
        """Follows the names that the reached code reads, and the code that these lead to."""
        while self._codes and not self._blind:
            self._reads(*self._codes.pop())

    def _reads(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """Follows the names of its module that some compiled code reads."""
        names = names_in(code)
        by_name = any(name in _BY_NAME and name not in space for name in names)
        if space is self._namespace:
            self._blind |= by_name
            self._follow(names - self._made, space)
        else:
            self._follow(space.keys() if by_name else names, space)

    def _follow(self, names: Set[str], space: Mapping[str, Any]) -> None:
        """Walks the values of some names, each once."""
        taken = self._taken.setdefault(id(space), set())
        new = sorted(name for name in (names & space.keys()) - taken if not internal(name, space))
        taken.update(new)
        if space is self._namespace:
            self.names.update(new)
        if new:
            self.over([{name: space[name] for name in new}], [])

    def _function(self, value: types.FunctionType, name: str) -> None:
        super()._function(value, name)
        if is_users(value.__globals__.get("__name__") or _MAIN):
            self._codes.append((value.__code__, value.__globals__))

    def _space(self, space: dict[str, Any], name: str) -> None:
        """Does nothing: the code decides which names of a module's namespace are followed."""

    def _module(self, value: types.ModuleType, name: str) -> None:
        if value.__name__ == _MAIN and vars(value) is self._namespace:
            self._blind = True
        elif is_users(value.__name__):
            space = vars(value)  # any of its names may be used
            self._stack.extend((held, key) for key, held in space.items() if not internal(key, space))

    def _iterator(self, value: Any, name: str) -> None:
        self.iterators[id(value)] = value, name


def _read(source: str) -> tuple[dict[str, int], dict[str, int]] | None:
    """Returns the names that a cell reads from the namespace, and its own names; None if they cannot be determined.

    Each name has a line: the first line that reads it, or the line from which on it is the cell's own.
    """
    lines = source.split("\n")
    for number, line in enumerate(lines):
        magic = _IPYTHON_LINE.match(line)
        if magic is not None:
            if (magic[3] or "") not in _HARMLESS:
                return None
            lines[number] = f"{magic[1]}pass"
    text = "\n".join(lines)
    try:
        found, tree = reached(text), ast.parse(text)
        compile(text, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if any(
        isinstance(node, ast.Call) and not node.args and getattr(node.func, "id", "") in _HERE
        for node in ast.walk(tree)
    ):
        return None
    needed = found.needed | found.perhaps
    first = dict.fromkeys(needed, 0)  # 0 for a name that is only deleted or added to
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in needed and isinstance(node.ctx, ast.Load):
            first[node.id] = min(first[node.id] or node.lineno, node.lineno)
    return first, {name: at for name, at in found.made.items() if name not in needed}


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Returns the global names in compiled code, and in the functions and classes inside it."""
    names = {str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname in _GLOBAL}
    return frozenset(
        names.union(*(names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)))
    )
