"""Finds the place that decides an argument of a call, reads the argument's value, and changes it.

An argument is changed where it is written. If a helper function only passes it through, that is the helper's call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.calls import Cells, Made, Site
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.syntax import Function, dotted

__all__ = ["ADD", "HIDDEN", "REPLACE", "Slot", "given", "set_arguments", "slot", "slot_in"]

UNKNOWN: Final = object()
"""Stands for a value that cannot be known without running the code."""
REPLACE, ADD, SPREAD, HIDDEN = "replace", "add", "spread", "hidden"


@dataclass(frozen=True, eq=False)
class Slot:
    """The place in the text that decides an argument.

    Kinds: the argument is written out (REPLACE), left to its default (ADD), possibly in a `**options`, which is then
    overridden (SPREAD), or cannot be read (HIDDEN).
    """

    kind: str
    site: Site
    """The call that decides it: of the object's class, or of a helper function around that."""
    name: str
    node: ast.expr | None = None
    """Expression written for the argument, or the `**options`; None if there is neither."""


def slot(made: Made, name: str) -> Slot:
    """Returns the place that decides the argument `name` of the call that makes an object."""
    found, function = slot_in(made.site, name), made.site.function
    if made.caller is None or function is None or not isinstance(found.node, ast.Name):
        return found
    passed = found.node.id
    if found.kind == SPREAD:
        kwarg = function.args.kwarg
        return slot_in(made.caller, name) if kwarg is not None and kwarg.arg == passed else found
    return slot_in(made.caller, passed) if _is_parameter(function, passed) and not _stores(function, passed) else found


def slot_in(site: Site, name: str) -> Slot:
    """Returns the place in a call that decides an argument, without following it to the call of a helper."""
    node = site.argument(name)
    if node is not None:
        return Slot(REPLACE, site, name, node)
    options = [keyword.value for keyword in site.call.keywords if keyword.arg is None]
    if not site.takes(name) or len(options) > 1:
        return Slot(HIDDEN, site, name)
    if not options:
        return Slot(ADD, site, name)
    if isinstance(options[0], ast.Dict):
        for key, value in zip(options[0].keys[::-1], options[0].values[::-1], strict=True):
            if key is None:  # a dictionary unpacked here may hold the name as well, and would override the value
                break
            if isinstance(key, ast.Constant) and key.value == name:
                return Slot(REPLACE, site, name, value)
    return Slot(SPREAD, site, name, options[0])


def given(made: Made, name: str) -> ast.expr | None:
    """Returns the expression written for an argument; None if there is none or it is `None`."""
    found = slot(made, name)
    nothing = isinstance(found.node, ast.Constant) and found.node.value is None
    return found.node if found.kind == REPLACE and not nothing else None


def value_of(cells: Cells, made: Made, name: str, default: Any) -> Any:
    """Returns the value of an argument, or UNKNOWN if it cannot be known without running the code."""
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
    """Returns the value of a name from the namespace; UNKNOWN for a local name of the function that reads it."""
    parts = dotted(node)
    own = function is not None and bool(parts) and (_is_parameter(function, parts[0]) or _stores(function, parts[0]))
    return cells.value(parts, UNKNOWN) if parts and not own else UNKNOWN


def _is_parameter(function: Function, name: str) -> bool:
    return any(isinstance(node, ast.arg) and node.arg == name for node in ast.iter_child_nodes(function.args))


def _stores(function: Function, name: str) -> bool:
    """Returns True if a function's body assigns to a name or deletes it."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    return any(node.id == name for node in names)


def set_arguments(values: Mapping[Slot, str]) -> Iterator[tuple[CellSource, Edit]]:
    """Yields the edits that give arguments their new values.

    Args:
        values: New value, as code, of each slot; a slot of the kind HIDDEN is skipped.
    """
    added: dict[ast.Call, tuple[Site, list[str]]] = {}
    spread: dict[ast.expr, tuple[Site, list[str]]] = {}
    for place, text in values.items():
        cell = place.site.cell
        if place.kind == REPLACE and place.node is not None:
            yield cell, Edit(cell.begin(place.node), cell.end(place.node), text)
        elif place.kind == SPREAD and place.node is not None:
            spread.setdefault(place.node, (place.site, []))[1].append(f'"{place.name}": {text}')
        elif place.kind == ADD:
            added.setdefault(place.site.call, (place.site, []))[1].append(f"{place.name}={text}")
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
    """Yields the edits that add keywords at the end of a call: each on a line of its own if the closing bracket is."""
    close = cell.end(call) - 1
    written = sorted((*call.args, *call.keywords), key=cell.end)
    if not written:
        # The closing bracket may follow a comment, so the keywords go right after the opening bracket.
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
    if first == call.lineno:  # the only line of arguments is the line on which the call begins
        indent = cell.indent(call.lineno) + cell.unit
    if comma is None:
        yield Edit(tail, tail, ",")
    end = cell.line_end(cell.line_of(comma if comma is not None else tail))
    yield Edit(end, end, "".join(f"{cell.newline}{indent}{item}," for item in items))


def _tail(text: str, begin: int, close: int) -> tuple[int, int | None]:
    """Returns the end of the last argument, with brackets around it, and the place of a comma after it if any.

    Args:
        text: Text of the cell.
        begin: End of the last argument's expression.
        close: Place of the bracket that closes the call.
    """
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
