"""Where an argument of a call is decided, what its value is, and how it is changed.

An argument is changed where it is written; where a helper only passes it through, at the call of the helper.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.calls import Cells, Made, Site
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.syntax import Function, dotted

__all__ = ["ADD", "HIDDEN", "REPLACE", "Slot", "given", "set_arguments", "slot"]

UNKNOWN: Final = object()
"""A value that only running the code would tell."""
REPLACE, ADD, SPREAD, HIDDEN = "replace", "add", "spread", "hidden"


@dataclass(frozen=True, eq=False)
class Slot:
    """Where an argument is decided.

    It is written out (REPLACE), left to its default (ADD), may be in a `**options` that is then overridden (SPREAD), or
    cannot be read (HIDDEN).
    """

    kind: str
    site: Site
    name: str
    node: ast.expr | None = None


def slot(made: Made, name: str) -> Slot:
    """Where the argument `name` of the call that makes an object is decided."""
    found, function = _at(made.site, name), made.site.function
    if made.caller is None or function is None or not isinstance(found.node, ast.Name):
        return found
    passed = found.node.id
    if found.kind == SPREAD:
        kwarg = function.args.kwarg
        return _at(made.caller, name) if kwarg is not None and kwarg.arg == passed else found
    return _at(made.caller, passed) if _is_parameter(function, passed) and not _stores(function, passed) else found


def _at(site: Site, name: str) -> Slot:
    node = site.argument(name)
    if node is not None:
        return Slot(REPLACE, site, name, node)
    options = [one.value for one in site.call.keywords if one.arg is None]
    if not site.takes(name) or len(options) > 1:
        return Slot(HIDDEN, site, name)
    if not options:
        return Slot(ADD, site, name)
    if isinstance(options[0], ast.Dict):
        for key, value in zip(options[0].keys[::-1], options[0].values[::-1], strict=True):
            if key is None:  # what is spread into it may hold the name as well, and comes later
                break
            if isinstance(key, ast.Constant) and key.value == name:
                return Slot(REPLACE, site, name, value)
    return Slot(SPREAD, site, name, options[0])


def given(made: Made, name: str) -> ast.expr | None:
    """What is written out for an argument; None where nothing or `None` is."""
    found = slot(made, name)
    nothing = isinstance(found.node, ast.Constant) and found.node.value is None
    return found.node if found.kind == REPLACE and not nothing else None


def value_of(cells: Cells, made: Made, name: str, default: Any) -> Any:
    """The value of an argument where it can be told without running anything, else UNKNOWN."""
    found = slot(made, name)
    if found.node is None:
        return default if found.kind == ADD and found.site is made.site else UNKNOWN
    try:
        held = ast.literal_eval(found.node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        held = _held(cells, found.node, found.site.function)
    if found.kind == SPREAD:
        return held.get(name, default) if type(held) is dict else UNKNOWN
    return held if held is None or isinstance(held, (int, float, str)) else UNKNOWN


def _held(cells: Cells, node: ast.expr, function: Function | None) -> Any:
    """What a name holds outside of the function that reads it; UNKNOWN for a name of the function's own."""
    parts = dotted(node)
    own = function is not None and bool(parts) and (_is_parameter(function, parts[0]) or _stores(function, parts[0]))
    return cells.value(parts, UNKNOWN) if parts and not own else UNKNOWN


def _is_parameter(function: Function, name: str) -> bool:
    return any(isinstance(one, ast.arg) and one.arg == name for one in ast.iter_child_nodes(function.args))


def _stores(function: Function, name: str) -> bool:
    """Whether a body gives a name a value of its own."""
    names = (one for one in ast.walk(function) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load))
    return any(one.id == name for one in names)


def set_arguments(found: Mapping[Slot, str]) -> Iterator[tuple[CellSource, Edit]]:
    """The edits that give arguments their new values.

    Args:
        found: slots of any kind but HIDDEN -> the new value as code.
    """
    added: dict[ast.Call, tuple[Site, list[str]]] = {}
    spread: dict[ast.expr, tuple[Site, list[str]]] = {}
    for one, text in found.items():
        cell = one.site.cell
        if one.kind == REPLACE and one.node is not None:
            yield cell, Edit(cell.begin(one.node), cell.end(one.node), text)
        elif one.kind == SPREAD and one.node is not None:
            spread.setdefault(one.node, (one.site, []))[1].append(f'"{one.name}": {text}')
        elif one.kind == ADD:
            added.setdefault(one.site.call, (one.site, []))[1].append(f"{one.name}={text}")
    for node, (site, items) in spread.items():
        cell, new = site.cell, ", ".join(items)
        if isinstance(node, ast.Dict) and node.values:
            end = cell.end(node.values[-1])
            yield cell, Edit(end, end, f", {new}")
        else:
            yield cell, Edit(cell.begin(node), cell.end(node), f"{{**{cell.of(node)}, {new}}}")
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
