"""How the statements of a loop are read for graphs: their order, what they bind, and which values carry a graph.

By the syntax tree alone; nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, TypeAlias

LETS_GO: Final = {"item", "detach", "tolist", "numpy", "size", "dim", "numel", "argmax", "data_ptr", "nelement"}
PLAIN: Final = {"float", "int", "len", "str", "bool", "round", "repr", "print", "range", "isinstance", "type"}
NO_GRAPH: Final = {"no_grad", "inference_mode", "set_grad_enabled"}

Loop: TypeAlias = "ast.For | ast.While | ast.AsyncFor"


def within(inner: ast.AST, outer: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def in_order(body: list[ast.stmt], graphless: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements of a body, inner ones too, as they stand; with whether they stand under no_grad."""
    for one in body:
        yield one, graphless
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        under = graphless or (
            isinstance(one, (ast.With, ast.AsyncWith))
            and any(name in ast.unparse(item.context_expr) for item in one.items for name in NO_GRAPH)
        )
        for name in ("body", "orelse", "finalbody"):
            yield from in_order(getattr(one, name, []), under)
        for handler in getattr(one, "handlers", []):
            yield from in_order(handler.body, under)


def assigned(one: ast.stmt) -> set[str]:
    """Names that a statement binds anew; `x = x + loss` and `x[i] = loss` do not."""
    if isinstance(one, ast.Assign):
        targets, value = one.targets, one.value
    elif isinstance(one, ast.AnnAssign):
        targets, value = [one.target], one.value or one.target
    else:
        return set()
    flat = [part for each in targets for part in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])]
    names = {ast.unparse(part) for part in flat if isinstance(part, (ast.Name, ast.Attribute))}
    own = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} if isinstance(value, ast.BinOp) else set()
    return names - own


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
    for one, _ in in_order(loop.body):
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
