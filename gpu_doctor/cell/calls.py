"""Calls in the user's cells that make an object of training, with the calls of helpers through which it is made.

Nothing is executed: a name is looked up in the namespace where it is there, else in the imports of the cells.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import FUNCTIONS, Function, dotted, full_name, imported, name_of

__all__ = ["Cells", "Made", "Site", "function_around"]

KEYWORDS: Final = {"persistent_workers", "fused", "precision", "mixed_precision"}
"""Keyword-only arguments by which a class is known to take the one that is looked for."""
DEEPEST: Final = 3
"""So many helpers may stand between a call and the line that decides its arguments."""


@dataclass(frozen=True, eq=False)
class Site:
    """A call as it is written."""

    cell: CellSource
    call: ast.Call
    parameters: tuple[str, ...]
    """Names of the positional parameters, in order, from argument `skip` on."""
    skip: int = 0
    open: bool = True
    """It takes keywords that are not among the parameters."""
    function: Function | None = None
    """The definition around it."""

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"line {self.call.lineno} of {self.cell.label}"

    def argument(self, name: str) -> ast.expr | None:
        """The expression given for a parameter; None if it is not among those written out."""
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        index = self.parameters.index(name) + self.skip if name in self.parameters else len(self.call.args)
        before = self.call.args[: index + 1]
        if index < len(self.call.args) and not any(isinstance(one, ast.Starred) for one in before):
            return self.call.args[index]
        return None

    def hidden(self, name: str) -> bool:
        """Whether the argument may come out of a `*args`."""
        return name in self.parameters and any(isinstance(one, ast.Starred) for one in self.call.args)


@dataclass(frozen=True, eq=False)
class Made:
    """A call that makes the object, and the calls of the functions around it, innermost first."""

    site: Site
    callers: tuple[Site, ...] = ()

    @property
    def outermost(self) -> Site:
        """The call of the outermost function that makes it; its own where it stands in none."""
        return self.callers[-1] if self.callers else self.site

    @property
    def targets(self) -> tuple[ast.expr, ...]:
        """What the object is assigned to, outermost call first."""
        found = (target_of(one.cell, one.call) for one in (self.site, *self.callers)[::-1])
        return tuple(one for one in found if one is not None)


@dataclass
class Cells:
    """The cells of a notebook, oldest first, and what their names mean."""

    cells: Sequence[CellSource]
    namespace: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.classes: dict[str, tuple[CellSource, ast.ClassDef]] = {}
        self.partials: dict[str, ast.Call] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._calls: dict[str, list[tuple[CellSource, ast.Call]]] | None = None
        for cell in self.cells:
            self.imports |= imported(cell.tree) if cell.tree is not None else {}
            for node in cell.walk(ast.ClassDef):
                self.classes[node.name] = (cell, node)
            for node in cell.walk(*FUNCTIONS):
                self._newest[_owner(cell, node), node.name] = cell.index
            for node in cell.walk(ast.Assign):
                call, target = node.value, node.targets[0]
                if isinstance(target, ast.Name):
                    self.partials.pop(target.id, None)
                    if isinstance(call, ast.Call) and name_of(call) == "partial" and call.args:
                        self.partials[target.id] = call

    def meant(self, func: ast.expr) -> Any:
        """The class, function or module that an expression names: the object itself, else its qualified name."""
        parts = dotted(func)
        if not parts:
            return ""
        found: Any = self.namespace.get(parts[0])
        for part in parts[1:]:
            known = inspect.ismodule(found) or inspect.isclass(found)
            found = inspect.getattr_static(found, part, None) if known else None
        if found is not None:
            return found
        return full_name(func, self.imports)

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

    def made_by(self, is_kind: Any, parameters: tuple[str, ...]) -> Iterator[Made]:
        """Every call that makes an object of a kind, oldest cell first, once for each way in which it is reached.

        Args:
            is_kind: whether an object (or qualified name) is the class.
            parameters: its positional ones.
        """
        own = {name for name, (_, node) in self.classes.items() if self._derives(node, is_kind) and _init(node)}
        for cell in self.cells:
            for call in cell.walk(ast.Call):
                site = self._site(cell, call, is_kind, parameters, own)
                if site is not None and not self._outdated(cell, site.function):
                    for callers in self._callers(site, DEEPEST):
                        yield Made(site, callers)

    def _site(
        self, cell: CellSource, call: ast.Call, is_kind: Any, parameters: tuple[str, ...], own: set[str]
    ) -> Site | None:
        function, name = function_around(cell, call), name_of(call)
        if any(isinstance(one, ast.JoinedStr) for one in cell.ancestors(call)):
            return None  # before Python 3.12 the positions of what stands in an f-string are not its own
        if name == "__init__" and isinstance(call.func, ast.Attribute):
            held = call.func.value
            inside = function is not None and _owner(cell, function) in own
            if inside and isinstance(held, ast.Call) and name_of(held.func) == "super":
                return Site(cell, call, parameters, 0, True, function)
            return Site(cell, call, parameters, 1, True, function) if inside and self._is(held, is_kind) else None
        if name == "partial" and call.args and self._is(call.args[0], is_kind):
            held_by = target_of(cell, call)
            if isinstance(held_by, ast.Name) and held_by.id in self.partials and self.calls(held_by.id):
                return None  # the calls of it decide
            return Site(cell, call, parameters, 1, True, function)
        partial = self.partials.get(name) if isinstance(call.func, ast.Name) else None
        if partial is not None and self._is(partial.args[0], is_kind):
            return Site(cell, call, parameters[len(partial.args) - 1 :], 0, True, function)
        if name in own or not self._is(call.func, is_kind):
            return None
        return Site(cell, call, *_signature(self.meant(call.func), parameters), function)

    def _is(self, func: ast.expr, is_kind: Any) -> bool:
        if is_kind(self.meant(func)):
            return True
        known = self.classes.get(name_of(func)) if isinstance(func, ast.Name) else None
        return known is not None and self._derives(known[1], is_kind)

    def _derives(self, node: ast.ClassDef, is_kind: Any, depth: int = DEEPEST) -> bool:
        for base in node.bases:
            known = self.classes.get(name_of(base))
            if is_kind(self.meant(base)) or (depth and known and self._derives(known[1], is_kind, depth - 1)):
                return True
        return False

    def calls(self, name: str) -> list[tuple[CellSource, ast.Call]]:
        """Every call of a function or method of that name, oldest cell first."""
        if self._calls is None:
            self._calls = {}
            for cell in self.cells:
                for call in cell.walk(ast.Call):
                    self._calls.setdefault(name_of(call), []).append((cell, call))
        return self._calls.get(name, [])

    def _outdated(self, cell: CellSource, function: Function | None) -> bool:
        """Whether a later cell has defined the function again."""
        return function is not None and self._newest.get((_owner(cell, function), function.name), 0) > cell.index

    def _callers(self, site: Site, depth: int) -> list[tuple[Site, ...]]:
        """The ways in which a call is reached; one empty way where it stands in no function or nobody calls that."""
        function = site.function
        if function is None or depth == 0:
            return [()]
        owner = _owner(site.cell, function)
        name = owner if owner and function.name == "__init__" else function.name
        names = parameters_of(site.cell, function)
        found: list[tuple[Site, ...]] = []
        for cell, call in self.calls(name):
            around = function_around(cell, call)
            fits = (
                isinstance(call.func, ast.Name) if not owner or name == owner else isinstance(call.func, ast.Attribute)
            )
            if fits and around is not function and cell.index >= site.cell.index and not self._outdated(cell, around):
                caller = Site(cell, call, names, 0, function.args.kwarg is not None, around)
                found += [(caller, *more) for more in self._callers(caller, depth - 1)]
        return found or [()]


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
    for one in cell.ancestors(node):
        if isinstance(one, FUNCTIONS):
            return one
        if isinstance(one, ast.ClassDef):
            return None
    return None


def target_of(cell: CellSource, call: ast.AST) -> ast.expr | None:
    """What a call's value is assigned to; None if it is not assigned as it is."""
    parent, index = cell.parents.get(call), 0
    if isinstance(parent, (ast.Tuple, ast.List)):
        index, call = parent.elts.index(call) if call in parent.elts else 0, parent
        parent = cell.parents.get(parent)
    if isinstance(parent, ast.NamedExpr):
        return parent.target
    if isinstance(parent, ast.AnnAssign):
        return parent.target
    if not isinstance(parent, ast.Assign):
        return None
    target = parent.targets[0]
    if isinstance(call, (ast.Tuple, ast.List)):
        same = isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == len(call.elts)
        return target.elts[index] if same and isinstance(target, (ast.Tuple, ast.List)) else None
    return target


def _owner(cell: CellSource, function: Function) -> str:
    parent = cell.parents.get(function)
    return parent.name if isinstance(parent, ast.ClassDef) else ""


def _init(node: ast.ClassDef) -> bool:
    return any(isinstance(one, FUNCTIONS) and one.name == "__init__" for one in node.body)


def _signature(meant: Any, parameters: tuple[str, ...]) -> tuple[tuple[str, ...], int, bool]:
    """Positional parameters, arguments to skip, whether other keywords are taken: of a class, by its own signature."""
    if not inspect.isclass(meant):
        return parameters, 0, True
    try:
        found = list(inspect.signature(meant).parameters.values())
    except (ValueError, TypeError):
        return parameters, 0, True
    names = tuple(one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))
    keywords = {one.name for one in found if one.kind is one.KEYWORD_ONLY}
    varied = any(one.kind is one.VAR_KEYWORD for one in found)
    return names, 0, varied or bool(keywords & KEYWORDS)
