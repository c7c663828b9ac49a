"""Lines of a cell that keep a tensor with its graph from every step: `losses.append(loss)`, `total += loss`.

Whether graphs are kept, the recording proves (`KeptGraphs`). The text only says which line may do it: a line in a loop
that keeps a value on which the cell calls backward, or one that the same functions make, unless the line lets the graph
go by `.item()`, `.detach()`, `float(...)` or the like, or stands under `no_grad`.
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
"""Characters of a text that is read at most: some 5000 lines."""
_TAKES: Final = ("append", "extend")


@dataclass(frozen=True)
class Kept:
    """A line that keeps something of every step."""

    line: int
    """1 = the first line of the source."""
    text: str
    """The line as written."""
    value: str
    """What it keeps, as written."""
    cure: str
    """The line with the graph let go; empty where that takes more than one insertion."""


@lru_cache(maxsize=8)
def kept_graphs(source: str) -> tuple[Kept, ...]:
    """The lines in a cell's loops that may keep graphs across steps, top to bottom; none where it is no Python."""
    cell = CellSource(source if len(source) <= LONGEST else "")
    assigned = list(_assignments(cell.walk(ast.Assign)))
    learned = {one.id for one in _backwards(cell) if isinstance(one, ast.Name)}
    made = {name: value for name, value in assigned if _calls_a_function(value)}
    summed = ((ast.unparse(one.target), one.value) for one in cell.walk(ast.AugAssign))
    sources = [*_backwards(cell), *(value for name, value in (*assigned, *summed) if name in learned)]
    outputs = {end for one in sources for end in _chain(one) if end in made}
    makers = {one for value in (*sources, *(made[name] for name in outputs)) for one in _chain(value)}
    trained = [loop for loop in cell.walk(*LOOPS) if any(True for _ in calls_of(loop, "backward"))]
    trained = [one for one in trained if not any(one in cell.ancestors(other) for other in trained)]
    found: dict[int, Kept] = {}
    for loop in cell.walk(*LOOPS):
        steps = [one for one in (loop, *cell.ancestors(loop)) if one in trained]
        anew = {name for one in (loop, *steps[:1]) for name, _ in _assignments(nested(one.body))}
        carrying = learned | outputs
        for one in nested(loop.body):
            for name, value in _assignments([one]):
                has = _carries(value, carrying, makers) or (name in learned and not _lets_go(value))
                carrying = carrying | {name} if has else carrying - {name}
            kept = _keeping(one)
            if kept and kept[0] not in anew and _carries(kept[1], carrying, makers) and not graphless(cell, one):
                found[one.lineno] = _told(cell, one, kept[1], learned)
    return tuple(found[line] for line in sorted(found))


def _told(cell: CellSource, statement: ast.stmt, value: ast.expr, learned: set[str]) -> Kept:
    line, end = statement.lineno, cell.end(value)
    begin, behind = cell.line_begin(line), cell.line_end(line)
    number = isinstance(statement, ast.AugAssign) or (isinstance(value, ast.Name) and value.id in learned)
    cure = ""
    if end <= behind and isinstance(value, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)):
        cure = f"{cell.text[begin:end]}.{'item' if number else 'detach'}(){cell.text[end:behind]}".strip()
    return Kept(line, cell.text[begin:behind].strip(), ast.unparse(value), cure)


def _keeping(one: ast.stmt) -> tuple[str, ast.expr] | None:
    """What a statement adds to, and the value that it adds; None for any other statement."""
    if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add):
        return ast.unparse(one.target), one.value
    call = one.value if isinstance(one, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _TAKES and call.args:
        return ast.unparse(call.func.value), call.args[0]
    return None


def _backwards(cell: CellSource) -> Iterator[ast.expr]:
    """On what the cell calls backward: `loss` of `loss.backward()`, `(loss / 2).backward()` and the like."""
    for call in calls_of(cell.tree or ast.Module([], []), "backward"):
        value = call.args[0] if call.args else getattr(call.func, "value", call.func)
        if isinstance(value, ast.Call) and name_of(value) == "scale" and value.args:
            value = value.args[0]
        yield value.left if isinstance(value, ast.BinOp) else value


def _assignments(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Every name that statements bind, with the value; parts of a tuple have the whole value."""
    for one in statements:
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            for target in targets_of(one):
                yield from ((ast.unparse(part), one.value) for part in parts_of_target(target))


def _calls_a_function(value: ast.expr) -> bool:
    """Whether a value comes of `model(x)` or `self.model(x)`, not of a method of the data such as `x.to(device)`."""
    func = value.func if isinstance(value, ast.Call) else None
    own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
    return own or (isinstance(func, ast.Name) and func.id not in PLAIN)


def _chain(value: ast.expr | None) -> Iterator[str]:
    """The functions that make a value, and the name that they make it of; first arguments alone: others are targets."""
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
    """Whether a value's own text says that it has no graph."""
    node = value.func if isinstance(value, ast.Call) else value
    if isinstance(node, ast.Attribute):
        return node.attr in LETS_GO
    return isinstance(value, ast.Call) and isinstance(node, ast.Name) and node.id in PLAIN


def _carries(value: ast.AST, carrying: set[str], makers: set[str]) -> bool:
    """Whether an expression's value has a graph, as far as the text tells."""
    if isinstance(value, (ast.Compare, ast.JoinedStr, ast.Lambda)) or (isinstance(value, ast.expr) and _lets_go(value)):
        return False
    if isinstance(value, ast.Name):
        return value.id in carrying
    if isinstance(value, ast.Call) and ast.unparse(value.func) in makers:
        return True
    return any(_carries(one, carrying, makers) for one in ast.iter_child_nodes(value))
