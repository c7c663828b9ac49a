"""Calls in the user's cells that make an object of training, each with the call of the helper that it stands in.

Nothing is executed: a name is looked up in the namespace where it is there, else in the imports of the cells. A class
of the user's is known by the namespace alone.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import FUNCTIONS, Function, dotted, full_name, imported, name_of, pairs

__all__ = ["Cells", "Made", "Site", "function_around"]


@dataclass(frozen=True, eq=False)
class Site:
    """A call as it is written."""

    cell: CellSource
    call: ast.Call
    parameters: tuple[str, ...]
    """Names of the positional parameters, in order."""
    keywords: frozenset[str] | None = None
    """Parameters that can be given by name; None if any keyword is taken."""
    function: Function | None = None
    """The definition around the call."""

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"line {self.call.lineno} of {self.cell.label}"

    def argument(self, name: str) -> ast.expr | None:
        """The expression given for a parameter; None if it is not among those written out."""
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        index = self.parameters.index(name) if name in self.parameters else len(self.call.args)
        before = self.call.args[: index + 1]
        if index < len(self.call.args) and not any(isinstance(one, ast.Starred) for one in before):
            return self.call.args[index]
        return None

    def takes(self, name: str) -> bool:
        """Whether the argument can be added as a keyword: it is taken, and does not come out of a `*args`."""
        starred = any(isinstance(one, ast.Starred) for one in self.call.args)
        return (self.keywords is None or name in self.keywords) and not (starred and name in self.parameters)


@dataclass(frozen=True, eq=False)
class Made:
    """A call that makes the object, and the call of the function around it where there is one."""

    site: Site
    caller: Site | None = None

    @property
    def outermost(self) -> Site:
        """The call of the function that makes it; its own where it stands in none."""
        return self.caller or self.site

    @property
    def targets(self) -> tuple[ast.expr, ...]:
        """What the object is assigned to, outermost call first."""
        found = (target_of(one.cell, one.call) for one in (self.caller, self.site) if one is not None)
        return tuple(one for one in found if one is not None)


@dataclass
class Cells:
    """The cells of a notebook, oldest first, and what their names mean."""

    cells: Sequence[CellSource]
    namespace: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.imports: dict[str, str] = {}
        self._newest: dict[tuple[str, str], int] = {}
        for cell in self.cells:
            self.imports |= imported(cell.tree) if cell.tree is not None else {}
            for node in cell.walk(*FUNCTIONS):
                self._newest[_owner(cell, node), node.name] = cell.index

    def meant(self, func: ast.expr) -> Any:
        """The class, function or module that an expression names: the object itself, else its qualified name."""
        parts = dotted(func)
        if not parts:
            return ""
        found: Any = self.namespace.get(parts[0])
        for part in parts[1:]:
            known = inspect.ismodule(found) or inspect.isclass(found)
            found = inspect.getattr_static(found, part, None) if known else None
        return full_name(func, self.imports) if found is None else found

    def value(self, parts: Sequence[str], missing: Any = None) -> Any:
        """What a dotted name holds, of objects what they keep themselves; no property is asked."""
        found = self.namespace.get(parts[0], missing)
        for part in parts[1:]:
            found = getattr(found, "__dict__", {}).get(part, missing)
        return found

    def held(self, name: str, cell: CellSource, node: ast.AST) -> Any:
        """The object of a name; for a method's `self`, an object of its class in the namespace; None if none is."""
        owner = next((one.name for one in cell.ancestors(node) if isinstance(one, ast.ClassDef)), "")
        if name == "self" and owner and name not in self.namespace:
            return next((one for one in self.namespace.values() if type(one).__name__ == owner), None)
        return self.namespace.get(name)

    def calls(self, name: str) -> list[tuple[CellSource, ast.Call]]:
        """Every call of a function or method of that name, oldest cell first."""
        return [(cell, call) for cell in self.cells for call in cell.walk(ast.Call) if name_of(call) == name]

    def made_by(self, is_kind: Callable[[Any], bool], parameters: tuple[str, ...]) -> Iterator[Made]:
        """Every call that makes an object of a kind, oldest cell first, once for each call of the function around it.

        Args:
            is_kind: whether an object (or qualified name) is the class.
            parameters: its positional ones, where its signature does not tell them.
        """
        for cell in self.cells:
            for call in cell.walk(ast.Call):
                meant, function = self.meant(call.func), function_around(cell, call)
                # Before Python 3.12 the positions of what stands in an f-string are not its own.
                quoted = any(isinstance(one, ast.JoinedStr) for one in cell.ancestors(call))
                if quoted or not is_kind(meant) or self._outdated(cell, function):
                    continue
                site = Site(cell, call, *_signature(meant, parameters), function)
                yield from (Made(site, caller) for caller in self._callers(site) or [None])

    def _outdated(self, cell: CellSource, function: Function | None) -> bool:
        """Whether a later cell has defined the function again."""
        return function is not None and self._newest.get((_owner(cell, function), function.name), 0) > cell.index

    def _callers(self, site: Site) -> Sequence[Site | None]:
        """The calls of the function that a call stands in; a class' `__init__` is called by the class."""
        function = site.function
        if function is None:
            return []
        owner = _owner(site.cell, function)
        kind: type[ast.expr] = ast.Attribute if owner and function.name != "__init__" else ast.Name
        name = owner if owner and function.name == "__init__" else function.name
        named = frozenset(one.arg for one in (*function.args.args, *function.args.kwonlyargs))
        keywords = named if function.args.kwarg is None else None
        return [
            Site(cell, call, parameters_of(site.cell, function), keywords, around)
            for cell, call in self.calls(name)
            if isinstance(call.func, kind) and cell.index >= site.cell.index
            if (around := function_around(cell, call)) is not function and not self._outdated(cell, around)
        ]


def is_of(meant: Any, names: Collection[str], module: str) -> bool:
    """Whether a class, or the qualified name of one, has one of some names in a module; or a class derives from one.

    Args:
        meant: the class or its name, see `Cells.meant`.
        names: of classes; one of them alone will do, where the text does not say whose it is.
        module: how the names of its modules begin.
    """
    if inspect.isclass(meant):
        return any(one.__name__ in names and one.__module__.startswith(module) for one in meant.__mro__)
    told = isinstance(meant, str) and meant.rpartition(".")[2] in names
    return told and (meant.startswith(module) or meant in names)


def parameters_of(cell: CellSource, function: Function) -> tuple[str, ...]:
    """The positional parameters that a call of a function writes out, without the `self` of a method."""
    names = tuple(one.arg for one in (*function.args.posonlyargs, *function.args.args))
    static = any(name_of(one) == "staticmethod" for one in function.decorator_list)
    return names[1:] if _owner(cell, function) and not static else names


def function_around(cell: CellSource, node: ast.AST) -> Function | None:
    """The innermost definition around a node."""
    around = next((one for one in cell.ancestors(node) if isinstance(one, (*FUNCTIONS, ast.ClassDef))), None)
    return around if isinstance(around, FUNCTIONS) else None


def target_of(cell: CellSource, call: ast.expr) -> ast.expr | None:
    """What a call's value is assigned to; None if it is not assigned as it is."""
    around = next((one for one in cell.ancestors(call) if not isinstance(one, (ast.Tuple, ast.List))), None)
    if isinstance(around, (ast.NamedExpr, ast.AnnAssign)):
        return around.target if around.value is call else None
    if not isinstance(around, ast.Assign):
        return None
    return next((target for target, value in pairs(around.targets[0], around.value) if value is call), None)


def _owner(cell: CellSource, function: Function) -> str:
    parent = cell.parents.get(function)
    return parent.name if isinstance(parent, ast.ClassDef) else ""


def _signature(meant: Any, parameters: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """The positional parameters of a class, and those that it takes by name (None = any), by its own signature."""
    try:
        found = list(inspect.signature(meant).parameters.values()) if inspect.isclass(meant) else None
    except (ValueError, TypeError):
        found = None
    if found is None:
        return parameters, None
    names = tuple(one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))
    keywords = frozenset(one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    return names, None if any(one.kind is one.VAR_KEYWORD for one in found) else keywords
