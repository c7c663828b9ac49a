"""Where an argument of a call is decided, through helpers and `**options`; what its value is; how it is changed.

An argument is changed where it is written; where it only passes through (a helper's parameter), at the helper's call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.calls import Cells, Made, Site
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.syntax import Function, dotted, nested, targets_of

__all__ = ["ADD", "HIDDEN", "REPLACE", "Slot", "given", "set_arguments", "slot"]

UNKNOWN: Final = object()
"""A value that only running the code would tell."""
REPLACE, ADD, SPREAD, HIDDEN = "replace", "add", "spread", "hidden"


@dataclass(frozen=True, eq=False)
class Slot:
    """Where an argument is decided: written out (replace), left to its default (add), maybe in `**options` (spread)."""

    kind: str
    site: Site
    name: str
    node: ast.expr | None = None
    cell: CellSource | None = None
    """Where `node` stands, if not in the call's own cell."""


def slot(cells: Cells, made: Made, name: str) -> Slot:
    """Where the argument `name` of the call that makes an object is decided."""
    levels = (made.site, *made.callers)
    for level, site in enumerate(levels):
        function = site.function if level + 1 < len(levels) else None
        node = site.argument(name)
        if node is not None:
            if function is not None and isinstance(node, ast.Name) and _passes_through(function, node.id):
                name = node.id
                continue
            return Slot(REPLACE, site, name, node)
        if site.hidden(name) or not (site.open or name in site.parameters):
            return Slot(HIDDEN, site, name)
        passed = False
        for one in site.call.keywords:
            if one.arg is not None:
                continue
            kwarg = function.args.kwarg if function is not None else None
            if kwarg is not None and isinstance(one.value, ast.Name) and one.value.id == kwarg.arg:
                passed = True
                continue
            where, held = _in_options(cells, site, one.value, name)
            if held is UNKNOWN:
                return Slot(SPREAD, site, name, one.value)
            if held is not None:
                return Slot(REPLACE, site, name, held, where)
        if not passed:
            return Slot(ADD, site, name)
    return Slot(ADD, levels[-1], name)


def given(cells: Cells, made: Made, name: str) -> ast.expr | None:
    """What is written out for an argument; None where nothing or `None` is."""
    found = slot(cells, made, name)
    nothing = isinstance(found.node, ast.Constant) and found.node.value is None
    return found.node if found.kind == REPLACE and not nothing else None


def value_of(cells: Cells, made: Made, name: str, default: Any) -> Any:
    """The value of an argument where it can be told without running anything, else UNKNOWN."""
    found = slot(cells, made, name)
    if found.kind == REPLACE and found.node is not None:
        return literal(cells, found.node, found.site.function)
    if found.kind == SPREAD and isinstance(found.node, ast.Name):
        options = cells.namespace.get(found.node.id)
        return options.get(name, default) if type(options) is dict else UNKNOWN
    if found.kind != ADD:
        return UNKNOWN
    levels = (made.site, *made.callers)
    level = levels.index(found.site)
    function = levels[level - 1].function if level else None
    left = _default(function, found.name) if function is not None else None
    return literal(cells, left, None) if left is not None else default


def literal(cells: Cells, node: ast.expr, function: Function | None) -> Any:
    """The plain value of an expression, UNKNOWN where it takes running."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    parts = dotted(node)
    if not parts:
        return UNKNOWN
    if function is not None and len(parts) == 1:
        own = list(_assigned(function.body, parts[0]))
        if own:
            return literal(cells, own[0], None) if len(own) == 1 else UNKNOWN
        if _is_parameter(function, parts[0]):
            return UNKNOWN
    found = cells.value(parts, UNKNOWN)
    if found is UNKNOWN and len(parts) == 1:
        for one in reversed(cells.cells):
            own = list(_assigned(one.tree.body, parts[0])) if one.tree is not None else []
            if own:
                return literal(cells, own[-1], None) if not isinstance(own[-1], ast.Name) else UNKNOWN
    return found if isinstance(found, (int, float, str, bool)) else UNKNOWN


def set_arguments(found: Mapping[Slot, str]) -> Iterator[tuple[CellSource, Edit]]:
    """The edits that give arguments their new values.

    Args:
        found: slots of any kind but HIDDEN -> the new value as code.
    """
    added: dict[ast.Call, tuple[Site, list[str]]] = {}
    spread: dict[ast.expr, tuple[Site, list[str]]] = {}
    for one, text in found.items():
        cell = one.cell or one.site.cell
        if one.kind == REPLACE and one.node is not None:
            yield cell, Edit(cell.begin(one.node), cell.end(one.node), text)
        elif one.kind == SPREAD and one.node is not None:
            spread.setdefault(one.node, (one.site, []))[1].append(f'"{one.name}": {text}')
        elif one.kind == ADD:
            added.setdefault(one.site.call, (one.site, []))[1].append(f"{one.name}={text}")
    for node, (site, items) in spread.items():
        cell = site.cell
        whole = f"{{**{cell.of(node)}, {', '.join(items)}}}"
        yield cell, Edit(cell.begin(node), cell.end(node), whole)
    for call, (site, items) in added.items():
        yield from ((site.cell, edit) for edit in _added(site.cell, call, items))


def _added(cell: CellSource, call: ast.Call, items: list[str]) -> Iterator[Edit]:
    """New keywords at the end of a call, in the form that the call has: one a line where the others are."""
    close = cell.end(call) - 1
    written = sorted((*call.args, *call.keywords), key=cell.end)
    if not written:
        # `)` may stand on a line of its own behind a comment: the keywords go right behind the bracket that opens.
        begin = cell.text.index("(", cell.end(call.func))
        yield Edit(begin + 1, begin + 1, ", ".join(items))
        return
    tail, comma = _tail(cell.text, cell.end(written[-1]), close)
    last_line = cell.line_of(tail)
    own_lines = (
        last_line < cell.line_of(close)
        and cell.indent(cell.line_of(close)) == cell.text[cell.line_begin(cell.line_of(close)) : close]
    )
    if not own_lines:
        text = ", ".join(items)
        place = comma + 1 if comma is not None else tail
        yield Edit(place, place, f" {text}," if comma is not None else f", {text}")
        return
    first = cell.line_of(cell.begin(written[-1]))
    indent = cell.indent(first)
    if first == call.lineno:  # the only line of arguments is the call's own
        indent = cell.indent(call.lineno) + cell.unit
    if comma is None:
        yield Edit(tail, tail, ",")
    end = cell.line_end(cell.line_of(comma if comma is not None else tail))
    yield Edit(end, end, "".join(f"{cell.newline}{indent}{item}," for item in items))


def _tail(text: str, begin: int, close: int) -> tuple[int, int | None]:
    """Behind the last argument, its own brackets with it; and where a comma follows."""
    tail, comma, at = begin, None, begin
    while at < close:
        if text[at] == "#":
            while at < close and text[at] not in "\r\n":
                at += 1
            continue
        if text[at] == ")":
            tail = at + 1
        elif text[at] == ",":
            comma = at
        at += 1
    return tail, comma


def _in_options(cells: Cells, site: Site, node: ast.expr, name: str) -> tuple[CellSource | None, Any]:
    """The value expression under `name` in what `**` spreads, None where it is not in it, UNKNOWN where it may be."""
    where: CellSource | None = site.cell
    if isinstance(node, ast.Name):
        bodies = [(site.cell, site.function.body)] if site.function is not None else []
        # A parameter hides what is outside.
        if site.function is None or not _is_parameter(site.function, node.id):
            bodies += [(one, one.tree.body) for one in reversed(cells.cells) if one.tree is not None]
        made = next(((one, own) for one, body in bodies if (own := list(_assigned(body, node.id)))), None)
        used = sum(_uses(one, node.id) for one in cells.cells)
        if made is not None and len(made[1]) == 1 and used == 1:
            where, node = made[0], made[1][0]
        else:
            options = cells.namespace.get(node.id) if site.function is None else None
            return None, None if type(options) is dict and name not in options else UNKNOWN
    pairs: list[tuple[Any, ast.expr]] = []
    if isinstance(node, ast.Dict):
        keys = [one.value if isinstance(one, ast.Constant) else None for one in node.keys]
        pairs = list(zip(keys, node.values, strict=True))
    elif isinstance(node, ast.Call) and dotted(node.func) == ["dict"] and not node.args:
        pairs = [(one.arg, one.value) for one in node.keywords]
    else:
        return None, UNKNOWN
    if any(one is None for one, _ in pairs):  # what is spread into it may hold the name as well
        return None, UNKNOWN
    held = [two for one, two in pairs if one == name]
    return where, held[-1] if held else None


def _uses(cell: CellSource, name: str) -> int:
    return sum(one.id == name and isinstance(one.ctx, ast.Load) for one in cell.walk(ast.Name))


def _assigned(body: list[ast.stmt], name: str) -> Iterator[ast.expr]:
    """Every value that statements of a body assign to a name, blocks included, definitions not."""
    for one in nested(body):
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets_of(one))
        if named and isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            yield one.value


def _is_parameter(function: Function, name: str) -> bool:
    """Of any kind: `*args` and `**kwargs` hide what is outside as the others do."""
    taken = (one for one in ast.iter_child_nodes(function.args) if isinstance(one, ast.arg))
    return any(one.arg == name for one in taken)


def _passes_through(function: Function, name: str) -> bool:
    """A parameter that the body leaves as it came."""
    return _is_parameter(function, name) and not any(_assigned(function.body, name))


def _default(function: Function, name: str) -> ast.expr | None:
    taken = function.args
    places = [*taken.posonlyargs, *taken.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(zip(places[::-1], taken.defaults[::-1], strict=False))
    pairs += list(zip(taken.kwonlyargs, taken.kw_defaults, strict=True))
    return next((value for one, value in pairs if one.arg == name), None)
