"""Which statements of a training loop come after the batch was copied to its device, read off the text.

What is done to the batch there runs on the device: the host only launches it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.syntax import FUNCTIONS, LOOPS, Loop, lines_of, name_of, parsed, stands_at, statements
from gpu_doctor.recording import LineCost

_MOVES: Final = {"to", "cuda"}


def moved_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that the text puts after the copy of the batch: in the loop, or called there alone.

    Args:
        source: the cell's text.
        lines: what lines cost, in the cell or in functions that it calls.
    """
    rows, functions = _after_the_copy(source)
    text = source.splitlines()
    return tuple(
        one
        for one in lines
        if (one.line in rows and stands_at(one, text)) or (one.function in functions and not one.in_worker)
    )


def has_copy(source: str) -> bool:
    """Whether a training loop of the text copies anything to a device."""
    return bool(_after_the_copy(source)[0])


@lru_cache(maxsize=8)
def _after_the_copy(source: str) -> tuple[frozenset[int], frozenset[str]]:
    """Rows of the training loops' statements after the first `.to(` or `.cuda(`, and names that only they call."""
    tree = parsed(source)
    rows: set[int] = set()
    before: list[ast.AST] = []
    after: list[ast.AST] = []
    for path in _paths_of_loops(tree or ast.Module([], [])):
        if not any(_differentiates(one) for one in path[-1].body):
            continue
        body = list(statements(path[-1].body))
        moves = [one.lineno for one in body if _moves(one)]
        for one in body:
            late = bool(moves) and one.lineno > moves[0]
            (after if late else before).append(one)
            rows.update(lines_of(one) if late else ())
    return frozenset(rows), frozenset(_called(after) - _called(before))


def _moves(statement: ast.stmt) -> bool:
    """`x = x.to(device)`, and not `x = augment(x).to(device)`: what is done in it to the batch comes before."""
    calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)]
    return any(name_of(one) in _MOVES for one in calls)


def _differentiates(node: ast.AST) -> bool:
    """Whether anything in it asks for gradients: `loss.backward()`, `self.manual_backward(loss)`."""
    return any("backward" in name for name in _called((node,)))


def _called(nodes: Iterable[ast.AST]) -> set[str]:
    """Last names of what is called in some nodes."""
    return {name_of(one) for node in nodes for one in ast.walk(node) if isinstance(one, ast.Call)} - {""}


def _paths_of_loops(tree: ast.AST, above: tuple[Loop, ...] = ()) -> Iterator[tuple[Loop, ...]]:
    """Every loop with the loops around it, outermost first; a function's body begins anew."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            yield from _paths_of_loops(child)
        elif isinstance(child, LOOPS):
            yield (*above, child)
            yield from _paths_of_loops(child, (*above, child))
        else:
            yield from _paths_of_loops(child, above)
