"""Finds lines of a cell that keep a tensor with its graph from every step: `losses.append(loss)`, `total += loss`.

The recording proves that graphs are kept (`KeptGraphs`); the text only shows which lines may keep them. Such a line is
in a loop and stores a value on which the cell calls backward, or a value that the same functions make. A line is left
out if it drops the graph with `.item()`, `.detach()`, `float(...)` or the like, or if it is under `no_grad`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.dataflow import graphless
from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import LOOPS, calls_of, name_of, nested, parts_of_target, targets_of

LETS_GO: Final = {"item", "detach", "tolist", "numpy", "size", "dim", "numel", "argmax", "data", "shape", "dtype"}
PLAIN: Final = {"float", "int", "len", "str", "bool", "round", "repr", "print", "range", "type", "next", "iter"}
LONGEST: Final = 200_000
"""Longest text that is read, in characters: some 5000 lines."""
_TAKES: Final = ("append", "extend")


@dataclass(frozen=True)
class Kept:
    """A line that may keep a graph from every step."""

    line: int
    """Number of the line in the source, from 1."""
    text: str
    """The line as written."""
    value: str
    """The value that it keeps, as written."""
    cure: str
    """The line changed so that it drops the graph; empty if that takes more than one insertion."""


@lru_cache(maxsize=8)
def kept_graphs(source: str) -> tuple[Kept, ...]:
    """Returns the lines in a cell's loops that may keep graphs across steps, from top to bottom.

    Returns none if the cell is not valid Python.
    """
    cell = CellSource(source if len(source) <= LONGEST else "")
    assigned = list(_assignments(cell.walk(ast.Assign)))
    losses = {value.id for value in _backwards(cell) if isinstance(value, ast.Name)}
    made = {name: value for name, value in assigned if _calls_a_function(value)}
    summed = ((ast.unparse(node.target), node.value) for node in cell.walk(ast.AugAssign))
    sources = [*_backwards(cell), *(value for name, value in (*assigned, *summed) if name in losses)]
    outputs = {part for value in sources for part in _chain(value) if part in made}
    makers = {part for value in (*sources, *(made[name] for name in outputs)) for part in _chain(value)}
    trained = [loop for loop in cell.walk(*LOOPS) if any(True for _ in calls_of(loop, "backward"))]
    trained = [loop for loop in trained if not any(loop in cell.ancestors(other) for other in trained)]
    found: dict[int, Kept] = {}
    for loop in cell.walk(*LOOPS):
        around = [node for node in (loop, *cell.ancestors(loop)) if node in trained]
        assigned_in_loop = {name for node in (loop, *around[:1]) for name, _ in _assignments(nested(node.body))}
        carrying = losses | outputs
        for statement in nested(loop.body):
            for name, value in _assignments([statement]):
                has = _carries(value, carrying, makers) or (name in losses and not _lets_go(value))
                carrying = carrying | {name} if has else carrying - {name}
            kept = _keeping(statement)
            if (
                kept
                and kept[0] not in assigned_in_loop
                and _carries(kept[1], carrying, makers)
                and not graphless(cell, statement)
            ):
                found[statement.lineno] = _described(cell, statement, kept[1], losses)
    return tuple(found[line] for line in sorted(found))


def _described(cell: CellSource, statement: ast.stmt, value: ast.expr, losses: set[str]) -> Kept:
    """Describes a line that keeps a value, with a cure that adds `.item()` to a loss or a sum, else `.detach()`."""
    line, end = statement.lineno, cell.end(value)
    begin, behind = cell.line_begin(line), cell.line_end(line)
    number = isinstance(statement, ast.AugAssign) or (isinstance(value, ast.Name) and value.id in losses)
    cure = ""
    if end <= behind and isinstance(value, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)):
        cure = f"{cell.text[begin:end]}.{'item' if number else 'detach'}(){cell.text[end:behind]}".strip()
    return Kept(line, cell.text[begin:behind].strip(), ast.unparse(value), cure)


def _keeping(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Returns the target that a statement adds to (`+=`, `append`, `extend`) and the value; None for any other."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        return ast.unparse(statement.target), statement.value
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _TAKES and call.args:
        return ast.unparse(call.func.value), call.args[0]
    return None


def _backwards(cell: CellSource) -> Iterator[ast.expr]:
    """Yields the values that the cell calls backward on: `loss` of `loss.backward()`, `(loss / 2).backward()`, ..."""
    for call in calls_of(cell.tree or ast.Module([], []), "backward"):
        value = call.args[0] if call.args else getattr(call.func, "value", call.func)
        if isinstance(value, ast.Call) and name_of(value) == "scale" and value.args:
            value = value.args[0]
        yield value.left if isinstance(value, ast.BinOp) else value


def _assignments(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yields every target that statements assign to, with the value; parts of a tuple get the whole value."""
    for statement in statements:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            for target in targets_of(statement):
                yield from ((ast.unparse(part), statement.value) for part in parts_of_target(target))


def _calls_a_function(value: ast.expr) -> bool:
    """Returns True for a call such as `model(x)` or `self.model(x)`, False for a method of data, as `x.to(device)`."""
    func = value.func if isinstance(value, ast.Call) else None
    own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
    return own or (isinstance(func, ast.Name) and func.id not in PLAIN)


def _chain(value: ast.expr | None) -> Iterator[str]:
    """Yields the functions that make a value, and the name that they make it from.

    Only first arguments are followed; others are targets, as in `criterion(output, target)`.
    """
    while value is not None:
        if isinstance(value, ast.Call):
            method = value.func.value if isinstance(value.func, ast.Attribute) else None
            if method is not None and (isinstance(method, ast.Call) or not value.args):
                value = method
                continue
            yield ast.unparse(value.func)
            value = value.args[0] if value.args else None
        elif isinstance(value, ast.Name):
            yield value.id
            return
        else:
            value = getattr(value, "left", None) or getattr(value, "value", None)


def _lets_go(value: ast.expr) -> bool:
    """Returns True if an expression drops the graph, such as `loss.item()` or `float(loss)`."""
    node = value.func if isinstance(value, ast.Call) else value
    if isinstance(node, ast.Attribute):
        return node.attr in LETS_GO
    return isinstance(value, ast.Call) and isinstance(node, ast.Name) and node.id in PLAIN


def _carries(value: ast.AST, carrying: set[str], makers: set[str]) -> bool:
    """Returns True if an expression's value has a graph, as far as the text shows.

    Args:
        value: The expression.
        carrying: Names whose values have a graph.
        makers: Functions that return values with a graph.
    """
    if isinstance(value, (ast.Compare, ast.JoinedStr, ast.Lambda)) or (isinstance(value, ast.expr) and _lets_go(value)):
        return False
    if isinstance(value, ast.Name):
        return value.id in carrying
    if isinstance(value, ast.Call) and ast.unparse(value.func) in makers:
        return True
    return any(_carries(part, carrying, makers) for part in ast.iter_child_nodes(value))
