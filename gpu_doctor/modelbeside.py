"""Which lines of a model's forward its output does not depend on, read off the text: statistics, prints, checks.

As in a training step one asks back from what is returned. What a statement keeps (`self.seen.append(...)`) may be read
by anybody who has the model, so it counts as needed where any of the texts at hand reads an attribute or a name like
it. What calls a method of the model's own is needed, since nobody knows what that changes. A function that is put on a
module as a forward hook, and returns nothing, is such a forward of which nothing is returned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from gpu_doctor.steptext import FUNCTIONS, Function, bound, name_of, parsed, parts_of, rows_of, trains, unneeded

_HOOKED: Final = {"register_forward_hook", "register_forward_pre_hook"}


@lru_cache(maxsize=32)
def idle_rows(text: str, callers: tuple[str, ...] = ()) -> frozenset[int]:
    """Rows of the statements in forwards that no returned value depends on, and that keep nothing that is read.

    Args:
        text: of the file in which the model is defined. callers: the texts from which it is called.
    """
    tree = parsed(text) if "def forward" in text or "_hook(" in text else None
    if tree is None:
        return frozenset()
    trees = [tree, *(other for one in callers if (other := parsed(one)) is not None)]
    found: set[int] = set()
    for one in _forwards(tree):
        parts = list(parts_of(one.body))
        needed = [part for part in parts if trains(part) or _keeps(part, one, trees)]
        rest = unneeded(parts, needed)
        found |= rows_of(rest) - rows_of([part for part in parts if part not in rest])
    return frozenset(found)


def _forwards(tree: ast.Module) -> Iterator[Function]:
    """Forwards, and hooks that change no output."""
    hooks = {name for one in ast.walk(tree) if isinstance(one, ast.Call) for name in _put_on(one)}
    for one in ast.walk(tree):
        if isinstance(one, FUNCTIONS):
            if one.name == "forward":
                yield one
            elif one.name in hooks:
                inside = [part for part in ast.walk(one) if isinstance(part, FUNCTIONS) and part is not one]
                yield from (part for part in (inside or [one]) if not _returns(part))


def _put_on(call: ast.Call) -> Iterator[str]:
    """The name of the function that a call puts on a module as a hook, or of the one that makes it."""
    if name_of(call) in _HOOKED and call.args:
        given = call.args[0].func if isinstance(call.args[0], ast.Call) else call.args[0]
        if isinstance(given, (ast.Name, ast.Attribute)):
            yield given.id if isinstance(given, ast.Name) else given.attr


def _returns(function: Function) -> bool:
    return any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(function))


def _keeps(statement: ast.stmt, function: Function, trees: Sequence[ast.Module]) -> bool:
    """Whether it changes what outlives the forward and is read somewhere, as far as the texts tell."""
    kept: set[str] = set()
    for one in ast.walk(statement):
        if isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return True
        if isinstance(one, ast.Call) and _of_self(one.func):
            return True
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store):
            return True
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            kept.add(one.attr)
    own = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    own -= {name for one in ast.walk(function) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
    kept |= {name.removeprefix("self.") for name in bound(statement) if name not in own}
    inside = {id(one) for one in ast.walk(statement)}
    return any(_reads(one, kept) for tree in trees for one in _values(tree) if id(one) not in inside)


def _values(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node but the objects of which a statement only calls a method: `writer.add_scalar(...)` reads no writer."""
    called = {
        id(one.value.func.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and isinstance(one.value.func, ast.Attribute)
    }
    return (one for one in ast.walk(tree) if id(one) not in called)


def _of_self(called: ast.expr) -> bool:
    """`self.head(x)`, and `super().forward(x)`: not `self.seen.append(x)`."""
    if not isinstance(called, ast.Attribute):
        return False
    held = called.value
    if isinstance(held, ast.Call):
        return name_of(held) == "super"
    return isinstance(held, ast.Name) and held.id == "self"


def _reads(one: ast.AST, kept: set[str]) -> bool:
    if isinstance(one, ast.Attribute):
        return isinstance(one.ctx, ast.Load) and one.attr in kept
    return isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in kept
