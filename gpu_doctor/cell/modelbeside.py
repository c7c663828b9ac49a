"""Which lines of a model's forward its output does not depend on, read off the text: statistics, prints, checks.

As in a training step one asks back from what is returned. What a statement keeps (`self.seen.append(...)`) may be read
by anybody who has the model, so it counts as needed where gradients may go through it (a loss of its own), and where
any of the texts at hand reads an attribute or a name like it. What calls a method of the model's own, or an unknown
function for its effect, is needed. A function that is put on a module as a forward hook, and returns nothing, is such a
forward of which nothing is returned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.feeding_syntax import key
from gpu_doctor.cell.statements import (
    FUNCTIONS,
    Function,
    bound,
    changes_unknown,
    harmless_functions,
    name_of,
    parsed,
    parts_of,
    rows_of,
    tells,
    trains,
    unneeded,
)

_CUTS: Final = {"item", "detach", "tolist", "numpy", "float", "int"}
_HOOKED: Final = {"register_forward_hook", "register_forward_pre_hook"}


@lru_cache(maxsize=32)
def idle_rows(text: str, others: tuple[str, ...] = ()) -> frozenset[int]:
    """Rows of the statements in forwards that no returned value depends on, and that keep nothing that is read.

    Args:
        text: of the file in which the model is defined. others: all other texts that are known.
    """
    tree = parsed(text) if "def forward" in text or "_hook(" in text else None
    if tree is None:
        return frozenset()
    trees = [tree, *(other for one in others if (other := parsed(one)) is not None)]
    harmless = harmless_functions(trees)
    found: set[int] = set()
    for one in _forwards(tree):
        parts = list(parts_of(one.body))
        numbers = _numbers(parts)
        needed = [
            part
            for part in parts
            if trains(part)
            or any(isinstance(each, ast.stmt) and changes_unknown(each, harmless) for each in ast.walk(part))
            or _keeps(part, one, trees, numbers)
        ]
        rest = unneeded(parts, needed, harmless)
        found |= rows_of(rest) - rows_of([part for part in parts if part not in rest])
    return frozenset(found)


def _forwards(tree: ast.Module) -> Iterator[Function]:
    """Forwards, and hooks that change no output."""
    hooks = {name for one in ast.walk(tree) if isinstance(one, ast.Call) for name in _put_on(one)}
    for one in ast.walk(tree):
        if isinstance(one, FUNCTIONS):
            if one.name == "forward":
                if one.args.args and one.args.args[0].arg == "self":  # not of a torch.autograd.Function
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


def _numbers(parts: Sequence[ast.stmt]) -> frozenset[str]:
    """Names of values that no gradient goes through any more: made by `.item()`, `.detach()` and the like."""
    found: set[str] = set()
    for one in parts:
        if _is_cut(one, found):
            found |= bound(one)
    return frozenset(found)


def _is_cut(statement: ast.stmt, numbers: Set[str]) -> bool:
    return any(
        (isinstance(one, ast.Call) and name_of(one) in _CUTS) or (isinstance(one, ast.Name) and one.id in numbers)
        for one in ast.walk(statement)
    )


def _keeps(statement: ast.stmt, function: Function, trees: Sequence[ast.Module], numbers: Set[str]) -> bool:
    """Whether it changes what outlives the forward and may be trained on, or is read somewhere, as the texts tell."""
    kept: set[str] = set()
    for one in ast.walk(statement):
        if isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return True
        if isinstance(one, ast.Call) and _of_self(one.func):
            return True
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store):
            return True
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript):  # a kernel's launch
            return True
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            kept.add(one.attr)
    own = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)} - {"self"}
    changed = {name.removesuffix("()") for name in bound(statement)} - _told_to(statement)
    if changed & given:  # who handed it over may read it
        return True
    own -= {name for one in ast.walk(function) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
    kept |= {name.removeprefix("self.") for name in changed if name not in own}
    if not kept:
        return False
    if not _is_cut(statement, numbers):  # a loss of its own, read by whoever has the model
        return True
    inside = {id(one) for one in ast.walk(statement)}
    return any(_reads(one, kept) for tree in trees for one in _values(tree) if id(one) not in inside)


def _told_to(statement: ast.stmt) -> set[str]:
    """The objects that are only told of something: `self.writer.add_scalar(...)`; not those that keep it in a list."""
    calls = [one.value for one in ast.walk(statement) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    told = [one.func for one in calls if tells(name_of(one)) and name_of(one) not in ("append", "extend")]
    return {key(one.value) for one in told if isinstance(one, ast.Attribute)}


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
    if isinstance(one, ast.Constant):
        return isinstance(one.value, str) and one.value in kept  # getattr(model, "aux")
    if isinstance(one, ast.Attribute):
        return isinstance(one.ctx, ast.Load) and one.attr in kept
    return isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in kept
