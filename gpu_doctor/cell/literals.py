"""The literals that a cell assigns at its top: which name takes which, and how a literal stands in settings.

A setting is a number, a text or a switch; any other literal (None, a tuple, a dict) stands in settings as its source,
so that files and pages carry it as text. Sources are read by `ast.literal_eval`: nothing of them is ever executed.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.syntax import DEFINITIONS, pairs, targets_of
from gpu_doctor.recording import SettingValue

NONE: Final = type(None)
PLAIN: Final = (bool, int, float, str)
"""What stands in settings as it is;"""
BY_SOURCE: Final = (NONE, tuple, list, dict, set, bytes, complex)
"""and what stands there as its source."""
_BROKEN: Final = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)


class Source(str):
    """The source of a literal, such as `(0.9, 0.99)` or `None`; it is written into code without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class NoLiteral(Exception):
    """A name of a cell has no literal that could be another; the message is the reason, in one sentence."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where the literal of a name stands."""

    node: ast.expr
    targets: tuple[str, ...]
    """What takes it: one name, or all targets of `a = b = 3`, which is one literal and stays one."""

    @property
    def written(self) -> SettingValue | None:
        """The literal as a setting; None if something else stands there."""
        value = _setting(self.node)
        return None if isinstance(value, float) and not math.isfinite(value) else value


def find(tree: ast.Module, name: str) -> Place:
    """Where the cell gives `name` its one literal.

    Raises:
        NoLiteral: if it does not, or if that is not the only place that binds the name.
    """
    if sum(bound == name for bound in _bound(tree.body)) > 1:
        raise NoLiteral(f"{name} is assigned more than once in the cell: assign it once to vary it.")
    place = next((place for one, place in _assigned(tree) if one == name), None)
    if place is None or place.written is None:
        raise NoLiteral(
            f"To vary {name}, assign it a plain value at the top level of the cell, not in a block or a function: "
            f"{name} = VALUE."
        )
    return place


def places(tree: ast.Module) -> dict[str, Place]:
    """Every name of a cell that `find` finds, in the order of the text; whether a literal stands there is not asked."""
    bound = Counter(_bound(tree.body))
    return {name: place for name, place in _assigned(tree) if bound[name] == 1}


def read(text: str) -> SettingValue | None:
    """A text that is a literal as a setting; None if it is none."""
    try:
        return _setting(ast.parse(text.strip(), mode="eval").body)
    except _BROKEN:
        return None


def given(value: Any) -> Any:
    """A value from Python as a setting: a literal that is no plain value becomes its source, all else stays."""
    found = read(repr(value)) if type(value) in BY_SOURCE else None
    return value if found is None else found


def node_of(value: SettingValue) -> ast.expr:
    """The tree of a setting's literal.

    Raises:
        NoLiteral: if it has none, as infinity and a number of numpy's own.
    """
    try:
        node = ast.parse(repr(value), mode="eval").body
        ast.literal_eval(node)
    except _BROKEN:
        raise NoLiteral(f"{value!r:.60} cannot be written as a literal.") from None
    return node


def kind(value: SettingValue) -> type[Any]:
    """The type that a setting has in the cell."""
    return type(ast.literal_eval(value)) if isinstance(value, Source) else type(value)


def fitted(written: SettingValue | None, value: SettingValue) -> SettingValue:
    """The value in the kind that the cell has.

    1 is 1.0 where a float stands. Where a source stands a text is read as one, and in the place of None, which says
    nothing of a kind, all is: a text that is no literal is then itself.
    """
    if type(written) is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(written, Source) or isinstance(value, Source):
        return value
    if isinstance(value, str):
        found = read(value)
        value = value if found is None else found
    plain = isinstance(value, Source) or (isinstance(value, float) and not math.isfinite(value))
    return value if plain or kind(written) is not NONE else Source(repr(value))


def parts(text: str) -> list[str]:
    """A text split at its commas, those in brackets and quotations aside.

    Raises:
        ValueError: if a bracket or a quotation is not closed.
    """
    found, depth, quotation, escaped = [""], 0, "", False
    for one in text:
        if quotation:
            if one == quotation and not escaped:
                quotation = ""
            escaped = one == "\\" and not escaped
        elif one == "," and not depth:
            found.append("")
            continue
        # An apostrophe inside of a bare word opens nothing.
        elif one in "'\"" and (depth or found[-1].strip().lower() in ("", "b", "r", "u", "br", "rb")):
            quotation = one
        elif one in "([{":
            depth += 1
        elif one in ")]}":
            depth = max(0, depth - 1)
        found[-1] += one
    if depth or quotation:
        raise ValueError(f"a {'quotation' if quotation else 'bracket'} is not closed")
    return [one.strip() for one in found]


def _setting(node: ast.expr) -> SettingValue | None:
    try:
        value = ast.literal_eval(node)
        if type(value) in PLAIN:
            found: SettingValue = value
            return found
        return Source(ast.unparse(node)) if type(value) in BY_SOURCE else None
    except _BROKEN:
        return None


def _assigned(tree: ast.Module) -> Iterator[tuple[str, Place]]:
    """The names that assignments at the top give one expression each."""
    for one in tree.body:
        if not isinstance(one, (ast.Assign, ast.AnnAssign)) or one.value is None:
            continue
        targets, value = targets_of(one), one.value
        if len(targets) == 1:
            taken = pairs(targets[0], value)
            yield from ((name.id, Place(node, (name.id,))) for name, node in taken if isinstance(name, ast.Name))
        elif not any(isinstance(target, (ast.Tuple, ast.List)) for target in targets):
            # In `whole = a, b = 1, 2` a literal would be part of another: that is left alone.
            place = Place(value, tuple(ast.unparse(target) for target in targets))
            yield from ((target.id, place) for target in targets if isinstance(target, ast.Name))


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Every name that the cell itself binds, once for each place; what its functions bind is their own."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, DEFINITIONS):
            yield node.name
            shared = {n for one in ast.walk(node) if isinstance(one, ast.Global) for n in one.names}
            stored = (
                one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
            )
            yield from (one for one in stored if one in shared)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.comprehension):
            stack.extend((node.iter, *node.ifs))
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        stack.extend(ast.iter_child_nodes(node))
