"""Cell variables as knobs: a literal that the cell assigns once at its top (`lr = 1e-3`) is another for a trial.

Settings name them `vary.NAME`. The cell runs from its own tree with the one literal replaced, so that every line keeps
its number in tracebacks and line costs; the user's text stays as it is. `a = b = 3` is one literal: turning either name
turns both. In `lr, size = 1e-3, 32` each name has its own.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.cell import CellSource, Edit, Edits, NotPlaced, Place, literals
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import Choice, Knob, Refused, TrialScope

PREFIX: Final = "vary."
MOST_OFFERED: Final = 8
"""So many numbers and switches of the cell are offered in the panel unasked; `--vary` reaches the others."""
FACTORS: Final = (0.5, 2, 4)
"""Offered times a whole number as written, such as a batch size;"""
SCALES: Final = (0.1, 0.3, 3.0, 10.0)
"""and times any other number, such as a learning rate."""
FORM: Final = '--vary takes NAME=VALUE,VALUE, such as --vary lr=1e-3,3e-4 or --vary "betas=(0.9,0.99),(0.8,0.95)".'
_KINDS: Final[Mapping[type[Any], str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a tuple",
    list: "a list",
    dict: "a dict",
    set: "a set",
    bytes: "bytes",
    complex: "a complex number",
}


class CellVariable(Knob):
    """See `Knob`; made for one name, with the values to offer where a person named some."""

    safety = Safety.CHANGES_TRAINING

    def __init__(
        self,
        variable: str,
        written: SettingValue | None = None,
        offered: tuple[SettingValue, ...] = (),
        front: bool = True,
        targets: tuple[str, ...] = (),
    ) -> None:
        """`offered`: values beside the one as written. `front`: shown at once rather than under 'more'.

        `targets`: all that the cell assigns the literal to, this variable among them.
        """
        self.variable, self.front = variable, front
        self.name = PREFIX + variable
        self.label = variable
        self._written, self._offered, self._targets = written, offered, targets or (variable,)
        every = " and ".join(self._targets)
        self.changes = f"The cell runs with another value of {every}: compare the loss over the same samples."

    def found(self, setup: Setup) -> SettingValue | None:
        """See `Knob`."""
        return self._written

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        if self._written is None:
            return (Choice("", "as written"),)
        values = dict.fromkeys((self._written, *self._offered))
        return tuple(Choice(value, str(value), self.refusal(value, setup)) for value in values)

    def parsed(self, text: str) -> SettingValue:
        """See `Knob`."""
        if type(self._written) is str:
            return text
        found = literals.read(text)
        value = text if found is None else found
        said = unfit(self.variable, self._written, value)
        if said:
            raise ValueError(said)
        return literals.fitted(self._written, value)

    def why_not(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return unfit(self.variable, self._written, value)

    def no_value(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`: of what kind it has to be is in the cell, and is judged when it is turned."""
        said = f"{self.name} takes a literal: a number, a text, True, False, None, or a tuple, list or dict of such."
        return "" if isinstance(value, (str, int, float)) else said

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`; what runs the cell replaces the literal (see `replaced`), here it is made sure that it can."""
        check({self.name: value}, scope.source)
        yield

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return f"{' = '.join(self._targets)} = {literals.fitted(self._written, value)!r}"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        cell = draft.cells.cells[-1] if draft.cells.cells else CellSource("")
        try:
            place = literals.find(cell.tree or ast.Module([], []), self.name[len(PREFIX) :])
            other = literals.node_of(literals.fitted(place.written, settings[self.name]))
        except literals.NoLiteral as reason:
            raise NotPlaced(str(reason)) from None
        return [(cell, edit) for edit in _rewritten(cell, place.node, other)]


def varied(settings: Settings) -> dict[str, SettingValue]:
    """The cell variables among settings: name -> value."""
    return {name[len(PREFIX) :]: value for name, value in settings.items() if name.startswith(PREFIX)}


def check(settings: Settings, source: str) -> None:
    """Lets cell variables pass that the cell of `source` can be run with.

    Raises:
        Refused: with the reason, in one sentence.
    """
    variables = varied(settings)
    if not variables:
        return
    if not source:
        raise Refused("Only the variables of a cell given as text can be varied, and this case is a function.")
    tree = CellSource(source).tree
    if tree is None:
        raise Refused("The cell could not be read as Python, so none of its variables can be varied.")
    replaced(tree, variables)


def replaced(tree: ast.Module, variables: Mapping[str, SettingValue]) -> ast.Module:
    """A copy of a cell's tree with other literals, every node in its old place.

    Raises:
        Refused: if a name is not assigned by one literal at the top of the cell, or the value is of another kind, or
            two names that share a literal are given two values.
    """
    twin, swap = copy.deepcopy(tree), _Swap()
    for name, value in variables.items():
        place, written = _place(twin, name)
        said = unfit(name, written, value)
        if said:
            raise Refused(said)
        try:
            other = literals.node_of(literals.fitted(written, value))
        except literals.NoLiteral as reason:
            raise Refused(str(reason)) from None
        if ast.dump(swap.others.setdefault(place.node, other)) != ast.dump(other):
            raise Refused(f"{' and '.join(place.targets)} are assigned one literal together: give them one value.")
    swapped: ast.Module = swap.visit(twin)
    return swapped


class _Swap(ast.NodeTransformer):
    """Puts other literals where some nodes of a tree stand."""

    def __init__(self) -> None:
        self.others: dict[ast.AST, ast.expr] = {}

    def visit(self, node: ast.AST) -> Any:
        other = self.others.get(node)
        if other is None:
            return self.generic_visit(node)
        for one in ast.walk(other):
            ast.copy_location(one, node)
        return other


def _place(tree: ast.Module, name: str) -> tuple[Place, SettingValue]:
    """Where the literal of a name stands, and what it is.

    Raises:
        Refused: with the reason, in one sentence.
    """
    try:
        place = literals.find(tree, name)
    except literals.NoLiteral as reason:
        raise Refused(str(reason)) from None
    written = place.written
    assert written is not None
    return place, written


def variables_of(source: str) -> dict[str, SettingValue]:
    """Every variable of a cell that can be varied, with its value as written."""
    tree = CellSource(source).tree
    found = {name: place.written for name, place in literals.places(tree).items()} if tree is not None else {}
    return {name: written for name, written in found.items() if written is not None}


def knob_of(source: str, variable: str) -> CellVariable:
    """The knob of one variable of a cell; one that knows nothing of the cell, where it cannot be varied."""
    try:
        place, written = _place(CellSource(source).tree or ast.Module([], []), variable)
    except Refused:
        return CellVariable(variable)
    return CellVariable(variable, written, targets=place.targets)


def knobs_of(source: str, offered: Mapping[str, Iterable[str]]) -> dict[str, Knob]:
    """One knob for each variable that a person wants to vary, by its key in settings, then the cell's other numbers.

    Args:
        source: the cell's text.
        offered: variable -> values to offer, as they were typed.

    Raises:
        ValueError: one sentence, if a variable cannot be varied or a value is of another kind.
    """
    table: dict[str, Knob] = {}
    tree, shown = CellSource(source).tree or ast.Module([], []), set[ast.expr]()
    for name, texts in offered.items():
        try:
            place, written = _place(tree, name)
        except Refused as refused:
            raise ValueError(str(refused)) from None
        knob = CellVariable(name, written, targets=place.targets)
        values = tuple(knob.parsed(_unquoted(text) if type(written) is str else text) for text in texts)
        table[PREFIX + name] = CellVariable(name, written, values, targets=place.targets)
        shown.add(place.node)
    for name, place in literals.places(tree).items():
        if len(table) - len(offered) == MOST_OFFERED:
            break
        if place.node in shown or name.startswith("_") or not isinstance(place.node, (ast.Constant, ast.UnaryOp)):
            continue
        found = place.written
        if found is not None and not isinstance(found, str):
            table[PREFIX + name] = CellVariable(name, found, around(found), front=False, targets=place.targets)
            shown.add(place.node)
    return table


def _unquoted(text: str) -> str:
    """A text as it is meant where it was typed in quotation marks, so that it can hold a comma."""
    found = literals.read(text)
    return found if type(found) is str else text


def around(written: SettingValue) -> tuple[SettingValue, ...]:
    """Values to offer where nobody has named any: the other state of a switch, smaller and larger numbers."""
    if isinstance(written, bool):
        return (not written,)
    if isinstance(written, int):
        near = (round(written * factor) for factor in FACTORS) if written else (1, 2, 4)
        return tuple(dict.fromkeys(value for value in near if value not in (0, written)))
    if isinstance(written, float) and written:
        return tuple(float(f"{written * scale:.3g}") for scale in SCALES)
    return ()


def parse_variations(assignments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Variables and the values to offer for them, from texts such as `lr=1e-3,3e-4`.

    Raises:
        ValueError: one sentence that names the right form.
    """
    found: dict[str, tuple[str, ...]] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        try:
            values = tuple(literals.parts(text))
        except ValueError as open_end:
            raise ValueError(f"{assignment!r} varies nothing, {open_end}: {FORM}") from None
        if not equals or not name.isidentifier() or not all(values):
            raise ValueError(f"{assignment!r} varies nothing: {FORM}")
        if name in found:
            raise ValueError(f"{name} is varied twice: give all its values at once. {FORM}")
        found[name] = values
    return found


def unfit(name: str, written: SettingValue | None, value: SettingValue) -> str:
    """Why a value cannot stand where the cell has `written`; empty if it can."""
    value = literals.fitted(written, value)
    if isinstance(value, float) and not math.isfinite(value) and written is not None:
        return f"{name} takes a finite number."
    wanted = literals.NONE if written is None else literals.kind(written)
    if wanted is literals.NONE or literals.kind(value) is wanted:
        return ""
    return f"{name} must be {_KINDS[wanted]}, as in the cell ({written!r:.60}), not {value!r:.60}."


def _rewritten(cell: CellSource, old: ast.expr, new: ast.expr) -> Iterator[Edit]:
    """The edits that make one literal another: of collections of one shape only the elements that differ."""
    if ast.dump(old) == ast.dump(new):
        return
    inside: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(old, (ast.Tuple, ast.List)) and isinstance(new, type(old)) and len(old.elts) == len(new.elts):
        inside = list(zip(old.elts, new.elts, strict=True))
    elif isinstance(old, ast.Dict) and isinstance(new, ast.Dict) and _keys(old) == _keys(new):
        inside = list(zip(old.values, new.values, strict=True))
    if not inside:
        yield Edit(cell.begin(old), cell.end(old), ast.unparse(new))
    for before, after in inside:
        yield from _rewritten(cell, before, after)


def _keys(one: ast.Dict) -> list[str]:
    return [ast.dump(key) for key in one.keys if key is not None]
