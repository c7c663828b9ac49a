"""Statements of a cell as the search for its batches needs them: what they read, write, call, and where they stand."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Loop: TypeAlias = "ast.For | ast.AsyncFor | ast.While"
LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MUTATORS: Final = {"append", "extend", "add", "insert", "update", "copy_", "appendleft"}
"""Methods by which a statement changes the object whose method it calls."""
_KNOWN: Final = _MUTATORS | {"step", "zero_grad", "backward", "item", "detach", "cpu", "numpy", "tolist", "mean", "sum"}
_MODULES: Final = {"torch", "nn", "np", "numpy", "math", "time"}


def is_lazy(place: ast.AST) -> bool:
    """A class, or a function that yields: its work is done when it is pulled from."""
    return isinstance(place, ast.ClassDef) or any(
        isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(place)
    )


def is_known(call: ast.Call) -> bool:
    """A call of Python's own or one that every training loop makes: no code of the user's runs in it."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _KNOWN or key(call.func) in _MODULES
    return isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)


def paths_of_loops(tree: ast.AST, above: tuple[Loop, ...] = ()) -> Iterator[tuple[Loop, ...]]:
    """Every loop with the loops around it, outermost first; a function's body begins anew."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _FUNCTIONS):
            yield from paths_of_loops(child)
        elif isinstance(child, LOOPS):
            yield (*above, child)
            yield from paths_of_loops(child, (*above, child))
        else:
            yield from paths_of_loops(child, above)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements of a body and of the blocks in it; definitions are left out."""
    for one in body:
        blocks = [getattr(one, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [handler.body for handler in getattr(one, "handlers", [])]
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if any(blocks):
            for block in blocks:
                yield from statements(block)
        else:
            yield one


def key(node: ast.AST) -> str:
    """The name under which a value is kept: `x` for `x`, `x[0]` and `x.data`; `self.x` for what a self holds."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return f"self.{node.attr}"
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def reads(statement: ast.AST) -> set[str]:
    """Values that a statement reads; the names of functions that it calls are none."""
    functions = {id(one.func) for one in ast.walk(statement) if isinstance(one, ast.Call)}
    return {
        key(one)
        for one in ast.walk(statement)
        if isinstance(one, (ast.Name, ast.Attribute)) and not (isinstance(one, ast.Name) and id(one) in functions)
        if not isinstance(one.ctx, ast.Store)
    } - {"", "self"}


def stored(target: ast.AST) -> set[str]:
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    if len(parts) == 1 and parts[0] is target:
        return {key(target)} - {""}
    return {name for part in parts for name in stored(part)}


def writes(statement: ast.AST) -> set[str]:
    """Values that a statement makes or changes."""
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in stored(target)}
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return stored(statement.target)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in _MUTATORS:
            return {key(function.value)} - {""}
    return set()


def names(nodes: Iterable[ast.AST]) -> set[str]:
    """All names in some nodes, those of functions and methods too."""
    found = {key(one) for node in nodes for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
    return (found | called(nodes)) - {""}


def mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names and methods that may be functions of the cell, called or handed on (`map(f, ...)`)."""
    every = [one for node in nodes for one in ast.walk(node)]
    return {one.id for one in every if isinstance(one, ast.Name)} | {
        one.attr for one in every if isinstance(one, ast.Attribute)
    }


def called(nodes: Iterable[ast.AST]) -> set[str]:
    """Last names of what is called in some nodes."""
    calls = [one.func for node in nodes for one in ast.walk(node) if isinstance(one, ast.Call)]
    return {one.id for one in calls if isinstance(one, ast.Name)} | {
        one.attr for one in calls if isinstance(one, ast.Attribute)
    }


def lines_of(node: ast.AST) -> range:
    begin = getattr(node, "lineno", 0)
    return range(begin, (getattr(node, "end_lineno", None) or begin) + 1)
