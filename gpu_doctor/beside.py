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

from gpu_doctor.feeding_syntax import LOOPS, called, lines_of, paths_of_loops, reads, writes
from gpu_doctor.modelbeside import idle_rows
from gpu_doctor.recording import LineCost
from gpu_doctor.steptext import FUNCTIONS, name_of, parsed, parts_of, rows_of, trains, unneeded

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


def trains_nothing(text: str, line: int, callers: tuple[str, ...] = ()) -> str | None:
    """Whether a line of a file lies in a statement that trains nothing.

    Args:
        text: all of the file. line: its number, from 1.
        callers: the texts of other files from which it was reached: what a step returns is used there.

    Returns:
        `step` where it lies in a training step and neither loss nor update need it, `model` where it lies in a model's
        forward whose output does not; "" where a training step needs it, None where it is in none.
    """
    if len(text) > _LONGEST:
        return None
    callers = tuple(one for one in callers if one != text and len(one) <= _LONGEST)
    if line in idle_rows(text, callers):
        return "model"
    beside, needed = _rows(text, callers)
    return "step" if line in beside else "" if line in needed else None


@lru_cache(maxsize=32)
def loop_rows(text: str) -> frozenset[int]:
    """Lines inside of loops, comprehensions too, that do not train themselves: inner loops of a step.

    Args:
        text: all of a file.
    """
    tree = parsed(text) if len(text) <= _LONGEST else None
    loops = [one for one in ast.walk(tree or ast.Module([], [])) if isinstance(one, (*LOOPS, *_COMPREHENSIONS))]
    return frozenset(row for one in loops if "backward" not in called((one,)) for row in lines_of(one))


def _on_rows(source: str, lines: Sequence[LineCost], rows: frozenset[int]) -> tuple[LineCost, ...]:
    text = source.splitlines()
    return tuple(
        one
        for one in lines
        if one.line in rows and one.line <= len(text) and text[one.line - 1].strip() == one.text and not one.in_worker
    )


@lru_cache(maxsize=32)
def _rows(source: str, callers: tuple[str, ...] = ()) -> tuple[frozenset[int], frozenset[int]]:
    """Rows of the training loops' statements that train nothing, and of those that training needs."""
    if not any(word in source for word in ("backward", *_STEPS)):
        return frozenset(), frozenset()
    tree = parsed(source)
    if tree is None:
        return frozenset(), frozenset()
    trees = [tree, *(found for one in callers if (found := parsed(one)) is not None)]
    beside: set[int] = set()
    needed: set[int] = set()
    for block in (*(path[-1] for path in paths_of_loops(tree)), *_functions(tree)):
        own = [one for one in parts_of(block.body) if "backward" in called((one,))]
        inside = [one for one in ast.walk(block) if isinstance(one, LOOPS) and one is not block]
        if (own or getattr(block, "name", "") in _STEPS) and not any("backward" in called((one,)) for one in inside):
            told = bool(own) and isinstance(block, FUNCTIONS) and _only_told(trees, block.name)
            for rows, more in zip((beside, needed), _of_body(block.body, told), strict=True):
                rows |= more
    return frozenset(beside), frozenset(needed)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """A step may be a function of its own, which the loop calls."""
    yield from (one for one in ast.walk(tree) if isinstance(one, FUNCTIONS))


def _only_told(trees: Sequence[ast.AST], name: str) -> bool:
    """Whether what a function returns only tells how it went: no call of it is handed what such a call gave."""
    found = False
    for statement in (one for tree in trees for one in ast.walk(tree)):
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)):
            continue
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and name_of(call) == name:
                given = {one for part in (*call.args, *call.keywords) for one in reads(part)}
                if not isinstance(statement, ast.Expr) and writes(statement) & given:
                    return False
                found = True
    return found


def _of_body(body: Sequence[ast.stmt], told: bool = False) -> tuple[set[int], set[int]]:
    """Rows of a body's statements that train nothing, and of the others; `told`: what it returns trains nothing."""
    parts = list(parts_of(body))
    training = [one for one in parts if trains(one) and not (told and isinstance(one, ast.Return))]
    rest = unneeded(parts, training)
    return rows_of(rest), rows_of([one for one in parts if one not in rest]) - rows_of(rest)
