"""Which lines of a training loop train nothing, read off the text: what neither the loss nor the update depends on.

From the backward pass and the optimizer one asks back through the assignments of the body of the loop, or of the
function that makes a step. A statement that nothing of this reads, and that changes nothing in place, can go without
changing what is trained: norms as numbers, averages of weights, metrics. What the text does not tell is taken for
training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.feeding_syntax import LOOPS, lines_of, paths_of_loops, writes
from gpu_doctor.cell.modelbeside import idle_rows
from gpu_doctor.cell.statements import (
    FUNCTIONS,
    Function,
    bound,
    changes_unknown,
    condition,
    differentiates,
    harmless_functions,
    name_of,
    parsed,
    parts_of,
    rows_of,
    tells,
    trains,
    unneeded,
)
from gpu_doctor.recording import LineCost

_KEEPING: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
_SIMPLE: Final = (*_KEEPING, ast.Return, ast.If, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STEPS: Final = {"training_step", "compute_loss"}
"""Methods that return a loss which the caller (Lightning, transformers) takes the gradients of."""
_LONGEST: Final = 200_000
"""Characters of a text that is parsed for this, at most: some 5000 lines."""


def beside_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in statements of the training loop that train nothing.

    Args:
        source: the cell's text. lines: what its lines cost.
    """
    return _on_rows(source, lines, _rows(source)[0])


def needed_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in the other statements of the training loop: the loss or the update needs them.

    Args:
        source: the cell's text. lines: what its lines cost.
    """
    return _on_rows(source, lines, _rows(source)[1])


def trains_nothing(text: str, line: int, others: tuple[str, ...] = ()) -> str | None:
    """Whether a line of a file lies in a statement that trains nothing.

    Args:
        text: all of the file. line: its number, from 1.
        others: the texts of all other files of the user's that are known: what a step returns, or a forward keeps, may
            be used there.

    Returns:
        `step` where it lies in a training step and neither loss nor update need it, `model` where it lies in a model's
        forward whose output does not; "" where a training step needs it, None where it is in none.
    """
    if len(text) > _LONGEST:
        return None
    others = tuple(dict.fromkeys(one for one in others if one != text and len(one) <= _LONGEST))
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
    tree = parsed(text) if len(text) <= _LONGEST else None
    loops = [one for one in ast.walk(tree or ast.Module([], [])) if isinstance(one, (*LOOPS, *_COMPREHENSIONS))]
    return frozenset(row for one in loops if not differentiates(one) for row in lines_of(one))


def _on_rows(source: str, lines: Sequence[LineCost], rows: frozenset[int]) -> tuple[LineCost, ...]:
    text = source.splitlines()
    return tuple(
        one
        for one in lines
        if one.line in rows and one.line <= len(text) and text[one.line - 1].strip() == one.text and not one.in_worker
    )


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
        statements = [] if scope is step else list(_within(scope))
        called = [one for one in statements if _calls(one, step.name)]
        found = found or bool(called)
        given = {name for one in called for name in writes(one)}
        users = [one for one in statements if isinstance(one, _SIMPLE) and _reads_itself(one) & given]
        if not all(isinstance(one, _KEEPING) and _tells_only(one, step.name) for one in (*called, *users)):
            return False
    return found


def _within(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a scope, those in its blocks too, without those of the functions in it."""
    for one in ast.iter_child_nodes(scope):
        if isinstance(one, ast.stmt):
            yield one
        if not isinstance(one, (*FUNCTIONS, ast.expr)):
            yield from _within(one)


def _calls(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one) == name for one in _of_itself(statement))


def _of_itself(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement without those of the statements in it."""
    blocks = [one for one in ast.iter_child_nodes(statement) if not isinstance(one, (ast.stmt, ast.ExceptHandler))]
    return [node for one in blocks for node in ast.walk(one)]


def _reads_itself(statement: ast.stmt) -> set[str]:
    return {one.id for one in _of_itself(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


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
