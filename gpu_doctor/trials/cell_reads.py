"""Finds the names that a cell takes from the namespace: those that it reads before it surely binds them."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TRIES: tuple[Any, ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
"""`except*` is there from Python 3.11 on."""


@dataclass
class Reach:
    """The names that a cell takes from the namespace, and those that it binds."""

    needed: set[str] = field(default_factory=set)
    """Read before the cell surely made them."""
    perhaps: set[str] = field(default_factory=set)
    """Read by a function that stands above the line that makes them, or bound by one: taken where they can travel."""
    made: dict[str, int] = field(default_factory=dict)
    """Names that the cell surely makes -> the line from which they stand."""


def reached(source: str) -> Reach:
    """Returns the names that a cell reads and binds.

    Args:
        source: Python text.

    Raises:
        SyntaxError: if it is no plain Python.
    """
    found = Reach()
    _block(ast.parse(source).body, found, set(), top=True)
    for line, name, read in _inner(symtable.symtable(source, "<cell>", "exec")):
        made = found.made.get(name)
        if made is None and read:
            found.needed.add(name)
        elif made is None or made > line:
            found.perhaps.add(name)
    found.perhaps -= found.needed
    return found


def _inner(table: symtable.SymbolTable) -> Iterator[tuple[int, str, bool]]:
    """Yields line, global name, and whether it is surely read, for each scope inside the cell."""
    for child in table.get_children():
        for scope in (child, *_below(child)):
            for symbol in scope.get_symbols():
                if symbol.is_global():  # `global n` and then `n += 1` counts as an assignment only
                    yield child.get_lineno(), symbol.get_name(), symbol.is_referenced()


def _below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _below(child)


def _block(body: Iterable[ast.stmt], found: Reach, bound: set[str], top: bool) -> None:
    """Collects reads and bindings of statements in order; only top-level statements surely bind."""
    for statement in body:
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            _reads([statement.iter], found, bound)
            _block(statement.body, found, bound | stored([statement.target]), top=False)
            _block(statement.orelse, found, set(bound), top=False)
        elif isinstance(statement, (ast.While, ast.If)):
            _reads([statement.test], found, bound)
            _block(statement.body, found, set(bound), top=False)
            _block(statement.orelse, found, set(bound), top=False)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):  # its body is run once, like the lines around it
            _reads([item.context_expr for item in statement.items], found, bound)
            targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
            _bind(stored(targets), statement, found, bound, top)
            _block(statement.body, found, bound, top)
        elif isinstance(statement, _TRIES):
            for block in (statement.body, statement.orelse, statement.finalbody):
                _block(block, found, set(bound), top=False)
            for handler in statement.handlers:
                _reads([handler.type] if handler.type else [], found, bound)
                _block(handler.body, found, bound | {handler.name or ""}, top=False)
        else:
            _reads([statement], found, bound)
            _bind(stored([statement]), statement, found, bound, top)


def _bind(names: set[str], where: ast.stmt, found: Reach, bound: set[str], top: bool) -> None:
    bound |= names
    if top:
        for name in names:
            found.made.setdefault(name, where.end_lineno or where.lineno)


def _reads(nodes: Iterable[ast.AST], found: Reach, bound: set[str]) -> None:
    """Collects the names read in the cell's own scope; inner scopes are in the symbol table."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Store) and node.id not in bound:
                found.needed.add(node.id)
        elif isinstance(node, ast.AugAssign):
            stack += [node.value, node.target]
            if isinstance(node.target, ast.Name) and node.target.id not in bound:
                found.needed.add(node.target.id)
        elif isinstance(node, _SCOPES):
            stack += _outside(node)
        elif isinstance(node, _COMPREHENSIONS):
            first = node.generators[0]
            stack.append(first.iter)  # evaluated outside; the rest is a scope of its own,
            if not isinstance(node, ast.GeneratorExp):  # read at once; Python 3.12's symbol tables leave it out
                inner = bound | stored(generator.target for generator in node.generators)
                _reads(
                    (*(child for child in ast.iter_child_nodes(node) if child is not first), *first.ifs), found, inner
                )
        else:
            stack += ast.iter_child_nodes(node)


def _outside(node: ast.AST) -> list[ast.AST]:
    """Returns the parts of a definition that are evaluated in place: decorators, defaults, bases."""
    outside: list[ast.AST] = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
    outside += [word.value for word in getattr(node, "keywords", [])]
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        outside += [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    return outside


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the names that statements bind in the cell's own scope."""
    names: set[str] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            stack += ast.iter_child_nodes(node)
    return names
