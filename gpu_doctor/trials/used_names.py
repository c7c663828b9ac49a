"""Finds the names of the namespace that a cell can reach, also through functions and objects.

What the cell reads stands in its text, what functions of earlier cells read in their compiled code. Objects are
followed as a snapshot follows them, so that a callback in a list or a model in a trainer counts; nothing is run or
changed. A name that the cell surely makes before it reads it is its own, and not of the namespace.
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
"""Functions that reach names which no code contains."""
_MAIN: Final = "__main__"
_GLOBAL: Final = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_HERE: Final = frozenset(("locals", "vars"))
"""Without an argument, in the cell itself, these are its names too."""
_IPYTHON_LINE: Final = re.compile(r"(\s*)(?:(%%?)\s*(\w*)|!|\?|[\w.]+\?+\s*$)")
_HARMLESS: Final = frozenset(
    ("", "gpudoctor", "matplotlib", "config", "load_ext", "reload_ext", "autoreload", "env", "pip", "conda", "cd", "ls")
)
"""Magics that run nothing with the names of the notebook; `!command` and `?` are nameless."""


class Coded(Protocol):
    """Something with code and a namespace, such as a case."""

    made_of: Any
    """The text or the callable."""
    source: str
    """The text; empty for a callable."""
    namespace: dict[str, Any]


_walked: ContextVar[dict[int, Reached] | None] = ContextVar("walked", default=None)


@contextmanager
def walked_once() -> Iterator[None]:
    """Within it, what a case reaches is walked through once for all checks; nothing of the user's may run meanwhile."""
    token = _walked.set({})
    try:
        yield
    finally:
        _walked.reset(token)


class Reached(Walk):
    """The walk over everything that a case's code can reach, also through functions of earlier cells."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        """Nothing is reached yet of the names in `space`."""
        super().__init__()
        self.names: set[str] = set()
        """Of the namespace; those that IPython or the interpreter owns are left out."""
        self.iterators: dict[int, tuple[Any, str]] = {}
        """What going through uses up, by id, with a variable that leads there."""
        self._namespace = space
        self._codes: list[tuple[types.CodeType, dict[str, Any]]] = []
        self._taken: dict[int, set[str]] = {}
        self._made: Set[str] = frozenset()
        """Names that the cell has made itself by the line that is followed."""
        self._blind = False
        """Some code takes names that do not stand in it."""
        self.every_name = False
        """The code did not tell which names it takes: all were followed."""

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
            for line in sorted(set(names.values())):  # what is called before the cell makes a name takes the old one
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
        """Follows what the code reads that was reached, and what that leads to."""
        while self._codes and not self._blind:
            self._reads(*self._codes.pop())

    def _reads(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """Follows what some compiled code reads of the names of its module."""
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
        new = sorted(one for one in (names & space.keys()) - taken if not internal(one, space))
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
        """Not all of a module: which of its names are read is told by the code."""

    def _module(self, value: types.ModuleType, name: str) -> None:
        if value.__name__ == _MAIN and vars(value) is self._namespace:
            self._blind = True
        elif is_users(value.__name__):
            space = vars(value)  # whatever may be asked for of it
            self._stack.extend((one, key) for key, one in space.items() if not internal(key, space))

    def _iterator(self, value: Any, name: str) -> None:
        self.iterators[id(value)] = value, name


def _read(source: str) -> tuple[dict[str, int], dict[str, int]] | None:
    """Names that a cell takes from the namespace, and those of its own; None where that cannot be told.

    Names stand with a line: the first that reads them, or the one from which on they are the cell's own.
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
        isinstance(one, ast.Call) and not one.args and getattr(one.func, "id", "") in _HERE for one in ast.walk(tree)
    ):
        return None
    needed = found.needed | found.perhaps
    first = dict.fromkeys(needed, 0)  # one that is only deleted or added to
    for one in ast.walk(tree):
        if isinstance(one, ast.Name) and one.id in needed and isinstance(one.ctx, ast.Load):
            first[one.id] = min(first[one.id] or one.lineno, one.lineno)
    return first, {name: at for name, at in found.made.items() if name not in needed}


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Returns the global names in compiled code, and in the functions and classes inside it."""
    names = {str(one.argval) for one in dis.get_instructions(code) if one.opname in _GLOBAL}
    return frozenset(names.union(*(names_in(one) for one in code.co_consts if isinstance(one, types.CodeType))))
