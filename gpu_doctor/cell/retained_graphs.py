"""Lines of a cell that keep a tensor with its graph from every step: `losses.append(loss)`, `total += loss`.

Read from the source alone, by its syntax tree; nothing is run. What is kept is judged by where it comes from: a value
that went through backward, or one that such a value was made of, or the result of a function that made one elsewhere
in the cell, unless it went through `.item()`, `.detach()`, `float(...)` or the like, or was made under `no_grad`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.syntax import (
    LOOPS,
    Loop,
    blocks,
    nested,
    parsed,
    parts_of_target,
    targets_of,
)

LETS_GO: Final = {"item", "detach", "tolist", "numpy", "size", "dim", "numel", "argmax", "data_ptr", "nelement"}
PLAIN: Final = {"float", "int", "len", "str", "bool", "round", "repr", "print", "range", "isinstance", "type"}
NO_GRAPH: Final = {"no_grad", "inference_mode", "set_grad_enabled"}
_MOVES: Final = {"to", "cuda", "cpu", "float", "half", "long", "view", "reshape", "pop", "get"}
_DATA: Final = {"torch", "np", "numpy", "random", "time", "math", "next", "iter", "os", "enumerate", "zip"}
"""Where plain data comes from; what a function of torch makes of a tensor with a graph is told by its arguments."""
_TAKES: Final = {"append", "extend", "add", "insert", "appendleft"}


def _within(inner: ast.AST, outer: ast.AST) -> bool:
    return inner is not outer and any(node is inner for node in ast.walk(outer))


def _graphless(tree: ast.AST) -> set[int]:
    """The nodes that run under no_grad: in blocks that open it, and in functions that are decorated with it."""
    found: set[int] = set()
    for one in ast.walk(tree):
        heads = getattr(one, "decorator_list", ()) or [item.context_expr for item in getattr(one, "items", ())]
        if any(name in ast.unparse(head) for head in heads for name in NO_GRAPH):
            found |= {id(node) for block in blocks(one) for inside in block for node in ast.walk(inside)}
    return found


def assigned(one: ast.stmt) -> set[str]:
    """Names that a statement binds anew; `x = x + loss` and `x[i] = loss` do not."""
    if not isinstance(one, (ast.Assign, ast.AnnAssign)):
        return set()
    flat = [part for target in targets_of(one) for part in parts_of_target(target)]
    names = {ast.unparse(part) for part in flat if isinstance(part, (ast.Name, ast.Attribute))}
    if isinstance(one.value, ast.BinOp):
        names -= {node.id for node in ast.walk(one.value) if isinstance(node, ast.Name)}
    return names


def carries(value: ast.expr, carrying: set[str], makers: set[str]) -> bool:
    """Whether an expression's value has a graph, as far as the text tells."""
    if isinstance(value, (ast.Name, ast.Attribute)):
        if isinstance(value, ast.Attribute) and value.attr in ("data", "shape", "dtype", "device"):
            return False
        return ast.unparse(value) in carrying or (
            isinstance(value, ast.Attribute) and carries(value.value, carrying, makers)
        )
    if isinstance(value, ast.Call):
        function = ast.unparse(value.func)
        if function in PLAIN or (isinstance(value.func, ast.Attribute) and value.func.attr in LETS_GO):
            return False
        inside = [*value.args, *(one.value for one in value.keywords)]
        if isinstance(value.func, ast.Attribute):
            inside.append(value.func.value)
        return function in makers or any(carries(one, carrying, makers) for one in inside)
    if isinstance(value, (ast.Compare, ast.JoinedStr, ast.Constant, ast.Lambda)):
        return False
    return any(carries(one, carrying, makers) for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr))


def opaque(value: ast.expr) -> bool:
    """A call whose text does not say that the graph is let go: the value on which backward is called comes from it."""
    if isinstance(value, ast.Call):
        function = ast.unparse(value.func)
        return function not in PLAIN and not (isinstance(value.func, ast.Attribute) and value.func.attr in LETS_GO)
    return isinstance(value, (ast.BinOp, ast.Subscript, ast.Attribute))


def backwards(loop: Loop) -> set[str]:
    """Names on which the loop calls backward: `loss.backward()`, `scaler.scale(loss).backward()`."""
    found: set[str] = set()
    for one in nested(loop.body):
        if not isinstance(one, ast.Expr):
            continue
        for node in ast.walk(one):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
                found |= names(node.func.value) if not node.args else {n for a in node.args for n in names(a)}
    return found


def names(value: ast.expr) -> set[str]:
    """The names that an expression is computed from, without the functions it calls."""
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    owners = {id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute) and id(node) in called}
    return {
        n.id for n in ast.walk(value) if isinstance(n, ast.Name) and id(n) not in called and id(n) not in owners
    } or {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}


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
def kept_graphs(source: str, models: tuple[str, ...] = ()) -> tuple[Kept, ...]:
    """The lines in a cell's loops that keep graphs across steps, top to bottom; empty where the source is no Python.

    Args:
        source: the cell's text.
        models: names under which it finds models that were made elsewhere.
    """
    tree = parsed(source)
    if tree is None:
        return ()
    rows = source.splitlines()
    graphless = _graphless(tree)
    every = [node for node in ast.walk(tree) if isinstance(node, LOOPS)]
    loops = [loop for loop in every if id(loop) not in graphless]
    innermost = [loop for loop in loops if not any(_within(other, loop) for other in every)]
    trained = [loop for loop in loops if backwards(loop)]
    makers = {call for loop in trained for call in _makers(loop)} | _returners(tree) | _models(tree) | {*models}
    bounded = _bounded(tree)
    found: dict[int, Kept] = {}
    for loop in {id(one): one for one in (*trained, *innermost)}.values():
        for kept in _in_loop(loop, makers, bounded | _begun_anew(loop, trained, tree, makers), rows, graphless):
            found.setdefault(kept.line, kept)
    return tuple(found[line] for line in sorted(found))


def _begun_anew(loop: Loop, trained: list[Loop], tree: ast.AST, makers: set[str]) -> set[str]:
    """Names that each training step around an inner loop binds anew: `loss = 0` before `for t in ...: loss += ...`.

    The step is a turn of the innermost training loop around it, or a call of a function that makes the step's loss.
    """
    steps = [one for one in trained if not any(_within(other, one) for other in trained)]
    bodies = [one.body for one in steps if _within(loop, one)]
    for function in ast.walk(tree):
        makes = isinstance(function, ast.FunctionDef) and function.name in makers and _within(loop, function)
        if makes and not any(_within(one, function) for one in trained):
            bodies.append(function.body)  # type: ignore[attr-defined]
    return {name for body in bodies for one in nested(body) for name in assigned(one)}


def _in_loop(loop: Loop, makers: set[str], bounded: set[str], rows: list[str], graphless: set[int]) -> Iterator[Kept]:
    """The keeping lines of one loop: what carries a graph is followed from assignment to assignment."""
    statements = list(nested(loop.body))
    backward = backwards(loop)
    fresh = {name for one in statements for name in assigned(one)} | bounded
    carrying: set[str] = set(backward)
    for one in statements:
        kept = _keeping(one, fresh)
        if kept is None and isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            has = id(one) not in graphless and carries(one.value, carrying, makers)
            for name in assigned(one):
                carrying.add(name) if has or (name in backward and opaque(one.value)) else carrying.discard(name)
            continue
        if kept is None or id(one) in graphless or not carries(kept[0], carrying, makers):
            continue
        yield Kept(
            one.lineno,
            rows[one.lineno - 1].strip(),
            ast.unparse(kept[0]),
            _cured(kept[0], "item" if ast.unparse(kept[0]) in backward else kept[1], rows),
        )


def _cured(value: ast.expr, letting_go: str, rows: list[str]) -> str:
    """The line with `.detach()` or `.item()` behind what it keeps."""
    if value.lineno != value.end_lineno or isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Set)):
        return ""
    raw = rows[value.lineno - 1].encode()  # columns of the syntax tree are bytes
    begin, end = value.col_offset, value.end_col_offset or 0
    kept = raw[begin:end].decode()
    whole = kept if isinstance(value, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)) else f"({kept})"
    return f"{raw[:begin].decode()}{whole}.{letting_go}(){raw[end:].decode()}".strip()


def _keeping(one: ast.stmt, fresh: set[str]) -> tuple[ast.expr, str] | None:
    """What a statement keeps in something that lives longer than a turn of the loop, and how it would let go."""
    if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add):
        return (one.value, "item") if _holder(one.target) not in fresh else None
    if isinstance(one, ast.Assign) and len(one.targets) == 1:
        target, value = one.targets[0], one.value
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            keyed = not isinstance(target.slice, ast.Constant)  # the same key every step holds the last one only
            return (value, "detach") if keyed and _holder(target) not in fresh else None
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and ast.unparse(target) not in fresh:
            rest = [part for part in (value.left, value.right) if ast.unparse(part) != ast.unparse(target)]
            return (rest[0], "item") if len(rest) == 1 else None
    if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and isinstance(one.value.func, ast.Attribute):
        call, takes = one.value, one.value.func.attr in _TAKES
        if takes and call.args and _holder(one.value.func.value) not in fresh:
            return call.args[-1], "detach"
    return None


def _holder(target: ast.expr) -> str:
    """The name behind `losses[i]` and `history["loss"]`."""
    return ast.unparse(target).split("[")[0]


def _makers(loop: Loop) -> set[str]:
    """Functions whose results the loop's loss is made of: `criterion`, and `model` whose output it takes."""
    losses = backwards(loop)
    direct, outputs = _called_for(loop, losses)
    return direct | _called_for(loop, outputs)[0]


def _called_for(loop: Loop, wanted: set[str]) -> tuple[set[str], set[str]]:
    """Functions called to make some names, and the names that they take; what makes or moves plain data is left out."""
    called: set[str] = set()
    taken: set[str] = set()
    for one in nested(loop.body):
        if isinstance(one, ast.Assign) and assigned(one) & wanted and isinstance(one.value, ast.Call):
            called |= _makes(one.value)
            taken |= {name for argument in one.value.args for name in names(argument)}
    return called, taken


def _makes(call: ast.Call) -> set[str]:
    """Functions that make a call's result: `criterion` and `model` of `criterion(model(x), y)` and `model(x).mean()`.

    Of arguments the first alone is followed: the second holds targets, and what makes those is plain data.
    """
    function = ast.unparse(call.func)
    method = call.func if isinstance(call.func, ast.Attribute) else None
    behind = method.value if method is not None else call.args[0] if call.args else None
    if isinstance(behind, ast.Call):
        inner = _makes(behind)
    else:
        inner = _makes(call.args[0]) if call.args and isinstance(call.args[0], ast.Call) else set()
    moved = method is not None and (method.attr in _MOVES or isinstance(method.value, ast.Call))
    if function in PLAIN or moved or function.split(".")[0] in _DATA:
        return inner
    return {function} | inner


def _models(tree: ast.AST) -> set[str]:
    """What the cell asks for its parameters, or turns to training: `model` in `model.train()`."""
    asked = (one.func for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    return {ast.unparse(one.value) for one in asked if one.attr in ("parameters", "named_parameters", "train")}


def _returners(tree: ast.AST) -> set[str]:
    """Functions of the cell that call backward on what they return."""
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            wrapped = ast.For(ast.Name("_"), ast.Name("_"), function.body, [])
            carrying = backwards(wrapped)
            returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
            if carrying and any(carries(one, carrying, set()) for one in returned):
                found.add(function.name)
    return found


def _bounded(tree: ast.AST) -> set[str]:
    """Containers that forget: `deque(maxlen=50)`, `deque([], 50)`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            limited = any(word.arg == "maxlen" for word in node.value.keywords) or len(node.value.args) > 1
            if limited and ast.unparse(node.value.func).endswith("deque"):
                found |= {ast.unparse(target) for target in node.targets}
    return found
