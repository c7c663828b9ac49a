"""Cell variables as knobs: a literal that the cell assigns once at its top (`lr = 1e-3`) is another for a trial.

Settings name them `vary.NAME`. The cell runs from its own tree with the one literal replaced, so that every line keeps
its number in tracebacks and line costs; the user's text stays as it is.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from gpu_doctor.cellsource import CellSource
from gpu_doctor.knobs.knob import Choice, Knob, Refused, TrialScope
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.rules.rule import Safety

PREFIX: Final = "vary."
MOST_OFFERED: Final = 8
"""So many numbers and switches of the cell are offered in the panel unasked; `--vary` reaches the others."""
FACTORS: Final = (0.5, 2, 4)
"""Offered times a whole number as written, such as a batch size;"""
SCALES: Final = (0.1, 0.3, 3.0, 10.0)
"""and times any other number, such as a learning rate."""
FORM: Final = "--vary takes NAME=VALUE,VALUE, such as --vary lr=1e-3,3e-4."
_KINDS: Final = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


class CellVariable:
    """See `Knob`; made for one name, with the values to offer where a person named some."""

    safety = Safety.CHANGES_TRAINING

    def __init__(
        self,
        variable: str,
        written: SettingValue | None = None,
        offered: tuple[SettingValue, ...] = (),
        front: bool = True,
    ) -> None:
        """`offered`: values beside the one as written. `front`: shown at once rather than under 'more'."""
        self.variable, self.front = variable, front
        self.name = PREFIX + variable
        self.label = variable
        self.changes = f"The cell runs with another value of {variable}: compare the loss over the same samples."
        self._written, self._offered = written, offered

    def found(self, setup: Setup) -> SettingValue | None:
        return self._written

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        if self._written is None:
            return (Choice("", "as written"),)
        values = dict.fromkeys((self._written, *self._offered))
        return tuple(Choice(value, str(value), self.refusal(value, setup)) for value in values)

    def parsed(self, text: str) -> SettingValue:
        value = _literal(text)
        if isinstance(self._written, str):
            return text
        if value is None:
            value = text
        said = "" if self._written is None else unfit(self.variable, self._written, value)
        if said:
            raise ValueError(said)
        return fitted(self._written, value)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        return "" if self._written is None else unfit(self.variable, self._written, value)

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(self.variable, value, scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"{self.variable} = {value!r}"


@contextmanager
def _turned(variable: str, value: SettingValue, scope: TrialScope) -> Iterator[None]:
    """What runs the cell replaces the literal (see `replaced`); here it is only made sure that it can."""
    check({PREFIX + variable: value}, scope.source)
    yield


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
        Refused: if a name is not assigned by one literal at the top of the cell, or the value is of another kind.
    """
    twin = copy.deepcopy(tree)
    for name, value in variables.items():
        statement = assignment(twin, name)
        written = literal_of(statement)
        said = unfit(name, written, value)
        if said:
            raise Refused(said)
        assert statement.value is not None
        statement.value = ast.copy_location(ast.Constant(fitted(written, value)), statement.value)
    return twin


def assignment(tree: ast.Module, name: str) -> ast.Assign | ast.AnnAssign:
    """The one statement at the top of the cell that gives `name` its literal.

    Raises:
        Refused: if there is none, or if it is not the only place that binds the name.
    """
    found: list[ast.Assign | ast.AnnAssign] = []
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
            assert isinstance(one, (ast.Assign, ast.AnnAssign))
            found.append(one)
    bindings = sum(bound == name for bound in _bound(tree.body))
    if bindings > 1:
        raise Refused(f"{name} is assigned more than once in the cell: only what is assigned once can be varied.")
    if not found or literal_of(found[0]) is None:
        raise Refused(
            f"{name} is not assigned by a literal at the top of the cell: write {name} = VALUE there, not in a block, "
            "and it can be varied."
        )
    return found[0]


def literal_of(statement: ast.Assign | ast.AnnAssign) -> SettingValue | None:
    """The int, float, bool or text that a statement assigns, None if it is something else."""
    try:
        value = ast.literal_eval(statement.value) if statement.value is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = type(value) in _KINDS and not (isinstance(value, float) and not math.isfinite(value))
    return value if plain else None


def variables_of(source: str) -> dict[str, SettingValue]:
    """Every variable of a cell that can be varied, with its value as written."""
    tree, found = CellSource(source).tree, dict[str, SettingValue]()
    for one in tree.body if tree is not None else ():
        target = (
            one.targets[0] if isinstance(one, ast.Assign) else one.target if isinstance(one, ast.AnnAssign) else None
        )
        if tree is not None and isinstance(target, ast.Name):
            try:
                value = literal_of(assignment(tree, target.id))
            except Refused:
                continue
            if value is not None:
                found[target.id] = value
    return found


def knobs_of(source: str, offered: Mapping[str, Iterable[str]]) -> dict[str, Knob]:
    """One knob for each variable that a person wants to vary, by its key in settings, then the cell's other numbers.

    Args:
        source: the cell's text. offered: variable -> values to offer, as they were typed.

    Raises:
        ValueError: one sentence, if a variable cannot be varied or a value is of another kind.
    """
    table: dict[str, Knob] = {}
    tree = CellSource(source).tree or ast.Module([], [])
    for name, texts in offered.items():
        try:
            written = literal_of(assignment(tree, name))
        except Refused as refused:
            raise ValueError(str(refused)) from None
        values = tuple(CellVariable(name, written).parsed(text) for text in texts)
        knob = CellVariable(name, written, values)
        table[knob.name] = knob
    others = [(name, value) for name, value in variables_of(source).items() if PREFIX + name not in table]
    others = [(name, value) for name, value in others if not isinstance(value, str) and not name.startswith("_")]
    for name, value in others[:MOST_OFFERED]:
        table[PREFIX + name] = CellVariable(name, value, around(value), front=False)
    return table


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
    for assignment_text in assignments:
        name, equals, text = assignment_text.partition("=")
        name, values = name.strip(), tuple(one.strip() for one in text.split(","))
        if not equals or not name.isidentifier() or not all(values):
            raise ValueError(f"{assignment_text!r} varies nothing: {FORM}")
        if name in found:
            raise ValueError(f"{name} is varied twice: give all its values at once. {FORM}")
        found[name] = values
    return found


def unfit(name: str, written: SettingValue | None, value: SettingValue) -> str:
    """Why a value cannot stand where the cell has `written`; empty if it can."""
    if written is None or type(value) is type(written) or (type(written) is float and type(value) is int):
        return f"{name} takes a finite number." if isinstance(value, float) and not math.isfinite(value) else ""
    return f"{_wants(name, written)}, and {value!r:.60} is none."


def fitted(written: SettingValue | None, value: SettingValue) -> SettingValue:
    """The value in the kind that the cell has: 1 is 1.0 where a float stands."""
    return float(value) if type(written) is float else value


def _wants(name: str, written: SettingValue) -> str:
    return f"{name} is {_KINDS[type(written)]} in the cell ({written!r:.60})"


def _literal(text: str) -> SettingValue | None:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if type(value) in _KINDS else None


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Every name that the cell itself binds, once for each place; what its functions bind is their own."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
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
