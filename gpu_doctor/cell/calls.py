"""Finds calls in the user's cells that make an object for training, each with the call of the helper around it.

No code is run: a name is looked up in the namespace, and if it is missing there, in the imports of the cells. A class
that the user defined is known only through the namespace.
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
    """A call in the text of a cell."""

    cell: CellSource
    call: ast.Call
    parameters: tuple[str, ...]
    """Names of the positional parameters, in order."""
    keywords: frozenset[str] | None = None
    """Names of the parameters that accept a keyword; None if any keyword is accepted."""
    function: Function | None = None
    """Function definition around the call, None if there is none."""

    @property
    def place(self) -> str:
        """Line and cell of the call, for messages."""
        return f"line {self.call.lineno} of {self.cell.label}"

    def argument(self, name: str) -> ast.expr | None:
        """Returns the expression written for a parameter; None if there is none.

        None also if `*args` or `**named` may hold it.
        """
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        index = self.parameters.index(name) if name in self.parameters else len(self.call.args)
        before = self.call.args[: index + 1]
        if index < len(self.call.args) and not any(isinstance(argument, ast.Starred) for argument in before):
            return self.call.args[index]
        return None

    def takes(self, name: str) -> bool:
        """Returns True if the argument can be added as a keyword: it is accepted, and no `*args` may contain it."""
        starred = any(isinstance(argument, ast.Starred) for argument in self.call.args)
        return (self.keywords is None or name in self.keywords) and not (starred and name in self.parameters)


@dataclass(frozen=True, eq=False)
class Made:
    """A call that makes an object, and the call of the function around it, if there is one."""

    site: Site
    """The call that makes the object."""
    caller: Site | None = None
    """The call of the function that contains `site`."""

    @property
    def outermost(self) -> Site:
        """The call of the function that makes the object; the call that makes it if no function is around."""
        return self.caller or self.site

    @property
    def targets(self) -> tuple[ast.expr, ...]:
        """Expressions that the object is assigned to, those of the outermost call first."""
        found = (target_of(site.cell, site.call) for site in (self.caller, self.site) if site is not None)
        return tuple(target for target in found if target is not None)


@dataclass
class Cells:
    """The cells of a notebook, oldest first, and the objects that their names refer to."""

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
        """Returns the class, function or module that an expression names; its qualified name if no object is there."""
        parts = dotted(func)
        if not parts:
            return ""
        found: Any = self.namespace.get(parts[0])
        for part in parts[1:]:
            known = inspect.ismodule(found) or inspect.isclass(found)
            found = inspect.getattr_static(found, part, None) if known else None
        return full_name(func, self.imports) if found is None else found

    def value(self, parts: Sequence[str], missing: Any = None) -> Any:
        """Returns the value of a dotted name, reading instance attributes only: no property is evaluated."""
        found = self.namespace.get(parts[0], missing)
        for part in parts[1:]:
            found = getattr(found, "__dict__", {}).get(part, missing)
        return found

    def held(self, name: str, cell: CellSource, node: ast.AST) -> Any:
        """Returns the object that a name holds, None if there is none.

        For the `self` of a method, that is an object of the method's class in the namespace.
        """
        owner = next((around.name for around in cell.ancestors(node) if isinstance(around, ast.ClassDef)), "")
        if name == "self" and owner and name not in self.namespace:
            return next((value for value in self.namespace.values() if type(value).__name__ == owner), None)
        return self.namespace.get(name)

    def calls(self, name: str) -> list[tuple[CellSource, ast.Call]]:
        """Returns every call of a function or method with this name, those of the oldest cell first."""
        return [(cell, call) for cell in self.cells for call in cell.walk(ast.Call) if name_of(call) == name]

    def made_by(self, is_kind: Callable[[Any], bool], parameters: tuple[str, ...]) -> Iterator[Made]:
        """Yields every call that makes an object of a kind, those of the oldest cell first.

        A call inside a function appears once for each call of that function.

        Args:
            is_kind: Returns True if an object or a qualified name is the class.
            parameters: Positional parameters of the class, used if its signature cannot be read.
        """
        for cell in self.cells:
            for call in cell.walk(ast.Call):
                meant, function = self.meant(call.func), function_around(cell, call)
                # Before Python 3.12, nodes inside an f-string have wrong positions.
                quoted = any(isinstance(around, ast.JoinedStr) for around in cell.ancestors(call))
                if quoted or not is_kind(meant) or self._outdated(cell, function):
                    continue
                site = Site(cell, call, *_signature(meant, parameters), function)
                yield from (Made(site, caller) for caller in self._callers(site) or [None])

    def _outdated(self, cell: CellSource, function: Function | None) -> bool:
        """Returns True if a later cell has defined the function again."""
        return function is not None and self._newest.get((_owner(cell, function), function.name), 0) > cell.index

    def _callers(self, site: Site) -> Sequence[Site | None]:
        """Returns the calls of the function around a call; for an `__init__`, those of its class."""
        function = site.function
        if function is None:
            return []
        owner = _owner(site.cell, function)
        kind: type[ast.expr] = ast.Attribute if owner and function.name != "__init__" else ast.Name
        name = owner if owner and function.name == "__init__" else function.name
        named = frozenset(parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs))
        keywords = named if function.args.kwarg is None else None
        return [
            Site(cell, call, parameters_of(site.cell, function), keywords, around)
            for cell, call in self.calls(name)
            if isinstance(call.func, kind) and cell.index >= site.cell.index
            if (around := function_around(cell, call)) is not function and not self._outdated(cell, around)
        ]


def is_of(meant: Any, names: Collection[str], module: str) -> bool:
    """Returns True if a class or its qualified name is one of some names in a module, or the class derives from one.

    Args:
        meant: The class or its name, see `Cells.meant`.
        names: Names of the classes. A bare name in the text also counts, if its module is unknown.
        module: Start of the name of the module.
    """
    if inspect.isclass(meant):
        return any(base.__name__ in names and base.__module__.startswith(module) for base in meant.__mro__)
    named = isinstance(meant, str) and meant.rpartition(".")[2] in names
    return named and (meant.startswith(module) or meant in names)


def parameters_of(cell: CellSource, function: Function) -> tuple[str, ...]:
    """Returns a function's positional parameters, without the `self` of a method."""
    names = tuple(parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args))
    static = any(name_of(decorator) == "staticmethod" for decorator in function.decorator_list)
    return names[1:] if _owner(cell, function) and not static else names


def function_around(cell: CellSource, node: ast.AST) -> Function | None:
    """Returns the function definition around a node; None if there is none or a class definition is closer."""
    around = next((parent for parent in cell.ancestors(node) if isinstance(parent, (*FUNCTIONS, ast.ClassDef))), None)
    return around if isinstance(around, FUNCTIONS) else None


def target_of(cell: CellSource, call: ast.expr) -> ast.expr | None:
    """Returns the expression that a call's value is assigned to; None if the value itself is not assigned."""
    around = next((parent for parent in cell.ancestors(call) if not isinstance(parent, (ast.Tuple, ast.List))), None)
    if isinstance(around, (ast.NamedExpr, ast.AnnAssign)):
        return around.target if around.value is call else None
    if not isinstance(around, ast.Assign):
        return None
    return next((target for target, value in pairs(around.targets[0], around.value) if value is call), None)


def _owner(cell: CellSource, function: Function) -> str:
    """Returns the name of a method's class; empty for a function."""
    parent = cell.parents.get(function)
    return parent.name if isinstance(parent, ast.ClassDef) else ""


def _signature(meant: Any, parameters: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """Returns a class' positional parameters, and those it accepts as keywords (None for any), from its signature.

    Args:
        meant: The class or its qualified name.
        parameters: Positional parameters to return if the signature cannot be read.
    """
    try:
        found = list(inspect.signature(meant).parameters.values()) if inspect.isclass(meant) else None
    except (ValueError, TypeError):
        found = None
    if found is None:
        return parameters, None
    names = tuple(p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    keywords = frozenset(p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return names, None if any(p.kind is p.VAR_KEYWORD for p in found) else keywords
