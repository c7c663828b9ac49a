"""Lines that train nothing, read off the text: in a training loop, and in the forward of a model.

From the backward pass and the optimizer one asks back through the assignments of the body of the loop, or of the
function that makes a step. A statement that nothing of this reads, and that changes nothing in place, can go without
changing what is trained: norms as numbers, averages of weights, metrics. What the text does not tell is taken for
training.

From a model's forward one asks back from what is returned. What a statement keeps (`self.seen.append(...)`) may be read
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

from gpu_doctor.cell.statements import (
    bound,
    changes_unknown,
    condition,
    differentiates,
    harmless_functions,
    parts_of,
    paths_of_loops,
    rows_of,
    tells,
    trains,
    unneeded,
    writes,
)
from gpu_doctor.cell.syntax import (
    COMPREHENSIONS,
    FUNCTIONS,
    LONGEST,
    LOOPS,
    Function,
    is_read,
    key,
    lines_of,
    name_of,
    nested,
    of_itself,
    on_rows,
    parsed,
)
from gpu_doctor.recording import LineCost

_KEEPING: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
_SIMPLE: Final = (*_KEEPING, ast.Return, ast.If, ast.While)
_STEPS: Final = {"training_step", "compute_loss"}
"""Methods that return a loss which the caller (Lightning, transformers) takes the gradients of."""
_CUTS: Final = {"item", "detach", "tolist", "numpy", "float", "int"}
_HOOKED: Final = {"register_forward_hook", "register_forward_pre_hook"}


def beside_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in statements of the training loop that train nothing.

    Args:
        source: the cell's text.
        lines: what its lines cost.
    """
    return on_rows(source, lines, _rows(source)[0])


def needed_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in the other statements of the training loop: the loss or the update needs them.

    Args:
        source: the cell's text.
        lines: what its lines cost.
    """
    return on_rows(source, lines, _rows(source)[1])


def trains_nothing(text: str, line: int, others: tuple[str, ...] = ()) -> str | None:
    """Whether a line of a file lies in a statement that trains nothing.

    Args:
        text: all of the file.
        line: its number, from 1.
        others: the texts of all other files of the user's that are known: what a step returns, or a forward keeps, may
            be used there.

    Returns:
        `step` where it lies in a training step and neither loss nor update need it, `model` where it lies in a model's
        forward whose output does not; "" where a training step needs it, None where it is in none.
    """
    if len(text) > LONGEST:
        return None
    others = tuple(dict.fromkeys(one for one in others if one != text and len(one) <= LONGEST))
    if line in idle_rows(text, others):
        return "model"
    beside, needed = _rows(text, others)
    return "step" if line in beside else "" if line in needed else None


@lru_cache(maxsize=32)
def loop_rows(text: str) -> frozenset[int]:
    """Lines inside of loops, comprehensions too, that do not train themselves: inner loops of a step.

    Args:
        text: all of a file.
    """
    tree = parsed(text)
    loops = [one for one in ast.walk(tree or ast.Module([], [])) if isinstance(one, (*LOOPS, *COMPREHENSIONS))]
    return frozenset(row for one in loops if not differentiates(one) for row in lines_of(one))


@lru_cache(maxsize=64)
def _rows(source: str, others: tuple[str, ...] = ()) -> tuple[frozenset[int], frozenset[int]]:
    """Rows of the training loops' statements that train nothing, and of those that training needs."""
    tree = parsed(source) if any(word in source for word in ("backward", *_STEPS)) else None
    if tree is None:
        return frozenset(), frozenset()
    trees = [tree, *(found for one in others if (found := parsed(one)) is not None)]
    harmless = harmless_functions(trees)
    beside: set[int] = set()
    needed: set[int] = set()
    for path in (*paths_of_loops(tree), *((one,) for one in ast.walk(tree) if isinstance(one, FUNCTIONS))):
        block, around = path[-1], path[0]  # an epoch's end may read what a step keeps
        inside = [one for one in ast.walk(block) if isinstance(one, LOOPS) and one is not block]
        own = any(differentiates(one) for one in block.body)
        if not (own or getattr(block, "name", "") in _STEPS) or any(differentiates(one) for one in inside):
            continue
        told = own and isinstance(block, FUNCTIONS) and _only_told(trees, block)
        parts = list(parts_of(around.body))
        outer = {name for one in ast.walk(block) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
        sinks = [one for one in parts if trains(one) and not (told and isinstance(one, ast.Return))]
        sinks += [one for one in parts if changes_unknown(one, harmless) or bound(one) & outer]
        sinks += [condition(one.test) for one in path if isinstance(one, ast.While)]
        rest = unneeded(parts, sinks, harmless)
        within = set(lines_of(block))
        beside |= rows_of(rest) & within
        needed |= rows_of([one for one in parts if one not in rest]) & within
    return frozenset(beside - needed), frozenset(needed)


def _only_told(trees: Sequence[ast.AST], step: Function) -> bool:
    """Whether what a step returns only tells how it went: it is called, its values are printed, kept or added up."""
    scopes = (one for tree in trees for one in ast.walk(tree) if isinstance(one, (ast.Module, *FUNCTIONS)))
    found = False
    for scope in scopes:
        statements = [] if scope is step else list(nested(scope.body))
        called = [one for one in statements if _calls(one, step.name)]
        found = found or bool(called)
        given = {name for one in called for name in writes(one)}
        users = [one for one in statements if isinstance(one, _SIMPLE) and _reads_itself(one) & given]
        if not all(isinstance(one, _KEEPING) and _tells_only(one, step.name) for one in (*called, *users)):
            return False
    return found


def _calls(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one) == name for one in of_itself(statement))


def _reads_itself(statement: ast.stmt) -> set[str]:
    return {one.id for one in of_itself(statement) if isinstance(one, ast.Name) and is_read(one)}


def _tells_only(statement: ast.stmt, step: str) -> bool:
    """`losses.append(step(x, y))`, `total += loss`, `print(loss)`, `history[i] = loss`, `loss, acc = step(x, y)`."""
    if isinstance(statement, ast.Expr):
        call = statement.value
        return isinstance(call, ast.Call) and (tells(name_of(call)) or name_of(call) in (step, "update"))
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add)
    return (_calls(statement, step) and not writes(statement) & _reads_itself(statement)) or (
        isinstance(statement, ast.Assign) and all(isinstance(one, ast.Subscript) for one in statement.targets)
    )


@lru_cache(maxsize=32)
def idle_rows(text: str, others: tuple[str, ...] = ()) -> frozenset[int]:
    """Rows of the statements in forwards that no returned value depends on, and that keep nothing that is read.

    Args:
        text: of the file in which the model is defined.
        others: all other texts that are known.
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
            yield name_of(given)


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
        return is_read(one) and one.attr in kept
    return isinstance(one, ast.Name) and is_read(one) and one.id in kept
