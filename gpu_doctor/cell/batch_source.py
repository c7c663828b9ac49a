"""Which lines of a cell make the batches that its model is fed with, read off the text: no line is run, only parsed.

From the backward pass one asks back: what does the loss depend on that does not itself depend on the model's output?
Those statements, the generator that the loop pulls from, and the functions they call make the batch. What the loop
does with losses and outputs (logging, metrics) is no part of it, nor what it computes for the loss alone from data that
is there already (see `targets.py`). Where the text does not tell, no line is named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.statements import (
    called,
    defined_in,
    definitions,
    is_known,
    is_lazy,
    makers_of,
    names,
    paths_of_loops,
    reads,
    stored,
    writes,
)
from gpu_doctor.cell.syntax import (
    DEFINITIONS,
    FUNCTIONS,
    LOOPS,
    Loop,
    key,
    lines_of,
    name_of,
    parsed,
    stands_at,
    statements,
)
from gpu_doctor.cell.targets import computed_targets
from gpu_doctor.recording import LineCost

_ITERATION: Final = {"__iter__", "__next__", "__getitem__", "__call__"}


def batch_lines(source: str, lines: Sequence[LineCost], models: Iterable[str] = ()) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in the making of training batches; empty where the text does not tell.

    Args:
        source: the cell's text.
        lines: what its lines cost, with the phase in which they did.
        models: names under which the cell finds models that were made elsewhere.
    """
    rows, found = _read(source, lines, models)
    if found is None:
        return ()
    return tuple(
        one for one, row in rows.items() if (row in found.rows if row is not None else one.function in found.called)
    )


def elsewhere_lines(source: str, lines: Sequence[LineCost], models: Iterable[str] = ()) -> tuple[LineCost, ...]:
    """Line costs of other cells and files that only the making of the batches, or the loss, can have caused.

    A generator of another cell calls functions of which this cell's text knows nothing. Where its loop calls nothing
    else of unknown make, what they cost is the batches'; empty where it does, or where batches come from nowhere else.
    """
    rows, found = _read(source, lines, models)
    if found is None or not (found.called and found.alone):
        return ()
    return tuple(one for one, row in rows.items() if row is None)


def target_lines(source: str, lines: Sequence[LineCost], models: Iterable[str] = ()) -> tuple[LineCost, ...]:
    """Line costs of the cell in what a step computes for the loss alone, from data that is there already."""
    rows, found = _read(source, lines, models)
    return tuple(one for one, row in rows.items() if found is not None and row in found.targets - found.rows)


@lru_cache(maxsize=8)
def _feeding(source: str, forward: frozenset[int], models: tuple[str, ...]) -> _Feeding | None:
    """What a text says; None if it is no Python. A diagnosis asks nine times, a live one anew every second."""
    tree = parsed(source)
    return None if tree is None else _Text(tree, forward, models).feeding()


def _read(
    source: str, lines: Sequence[LineCost], models: Iterable[str]
) -> tuple[dict[LineCost, int | None], _Feeding | None]:
    """The row of the cell on which each line lies, and what the text says beside the rows on which a forward ran."""
    text = source.splitlines()
    rows = {one: _row(one, text) for one in lines}
    forward = frozenset(row for one, row in rows.items() if one.phase == "forward" and row is not None)
    return rows, _feeding(source, forward, tuple(models))


def _row(cost: LineCost, text: Sequence[str]) -> int | None:
    """The line of the cell (from 1) that a cost lies on; None if it lies in another cell or file."""
    if cost.text and stands_at(cost, text):
        return cost.line
    same = [at for at, line in enumerate(text, 1) if line.strip() == cost.text]
    return same[0] if len(same) == 1 and cost.text else None


@dataclass
class _Feeding:
    """Lines of the text, and names of functions that stand elsewhere, which make batches."""

    rows: set[int] = field(default_factory=set)
    targets: set[int] = field(default_factory=set)
    """Lines that compute what the loss alone needs."""
    called: set[str] = field(default_factory=set)
    alone: bool = True
    """The loop calls nothing else whose work is unknown."""


class _Text:
    """A parsed cell and what is known of it."""

    def __init__(self, tree: ast.Module, forward: frozenset[int], models: Iterable[str]) -> None:
        """`forward`: lines on which a forward was seen to run. `models`: names of models, as far as known."""
        self._tree, self._forward = tree, forward
        self._defined = defined_in(tree, DEFINITIONS)
        self._calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
        self._models = {*models, *self._owners_of_parameters()}
        for place in (place for places in self._defined.values() for place in places):
            for name, value in self._arguments(place):
                if key(value) in self._models:
                    self._models.add(name)
        self._trains = self._training_functions()

    def _owners_of_parameters(self) -> set[str]:
        asked = [
            one.func.value
            for one in self._calls
            if isinstance(one.func, ast.Attribute)
            if one.func.attr == "parameters"
        ]
        return {key(one) for one in asked} - {""}

    def _arguments(self, place: ast.AST) -> list[tuple[str, ast.expr]]:
        """Parameters of a function of the cell, each with what the cell's calls hand over for it."""
        if not isinstance(place, FUNCTIONS):
            return []
        order = [one.arg for one in (*place.args.posonlyargs, *place.args.args)]
        found: list[tuple[str, ast.expr]] = []
        for call in self._calls:
            if key(call.func) == place.name:
                found += zip(order, call.args, strict=False)
                found += [(one.arg, one.value) for one in call.keywords if one.arg]
        return found

    def _training_functions(self) -> set[str]:
        """Functions of the cell that hold a backward pass, or call one that does."""
        found: set[str] = set()
        while True:
            more = {
                name
                for name, places in self._defined.items()
                if name not in found and any(self._is_sink(node, found) for one in places for node in ast.walk(one))
            }
            if not more:
                return found
            found |= more

    @staticmethod
    def _is_sink(node: ast.AST, trains: set[str]) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = name_of(node)
        return name in trains or (name == "backward" and isinstance(node.func, ast.Attribute))

    def feeding(self) -> _Feeding:
        """Lines and functions that feed the innermost loops with a backward pass."""
        found = _Feeding()
        for path in paths_of_loops(self._tree):
            inside = [one for stmt in path[-1].body for one in ast.walk(stmt)]
            own = [one for one in inside if self._is_sink(one, self._trains)]
            if own and not any(isinstance(one, LOOPS) and self._holds_sink(one) for one in inside):
                self._of_loop(path, found)
        return found

    def _holds_sink(self, node: ast.AST) -> bool:
        return any(self._is_sink(one, self._trains) for one in ast.walk(node))

    def _of_loop(self, path: Sequence[Loop], found: _Feeding) -> None:
        body = list(statements(path[-1].body))
        sinks = [one for one in body if self._holds_sink(one)]
        forwards = [one for one in body if self._is_forward(one)]
        if not forwards and any("backward" in called((one,)) for one in sinks):
            return  # what is the model's work and what the batch's cannot be told apart
        needed = {name for one in sinks for name in reads(one)}
        depended = makers_of(needed, body)
        tainted = {name for one in forwards for name in writes(one)}
        makers = [one for one in depended if one not in forwards and one not in sinks]
        answers: list[ast.stmt] = []
        while more := [one for one in makers if reads(one) & tainted]:
            tainted |= {name for one in more for name in writes(one)}
            makers = [one for one in makers if one not in more]
            answers += more
        inputs = [arg for one in forwards for arg in self._arguments_of_models(one)]
        targets = computed_targets(makers, inputs or forwards, path, self._defined) if forwards else []
        makers = [one for one in makers if one not in targets]
        rest = [one for one in body if one not in depended and one not in forwards and one not in sinks] + targets
        found.alone &= all(is_known(call) for one in rest for call in ast.walk(one) if isinstance(call, ast.Call))
        fed: list[ast.AST] = [*makers, *inputs]
        for loop in path:
            if isinstance(loop, (ast.For, ast.AsyncFor)) and stored(loop.target) & needed - tainted:
                fed.append(loop.iter)
                found.rows.update(range(loop.lineno, (loop.iter.end_lineno or loop.lineno) + 1))
        fed += self._passed(names(fed), path[0])
        fed += self._sources_of(names(fed), path[0])
        for one in (*targets, *definitions(targets, self._defined)):
            found.targets.update(lines_of(one))
        others = names(one for one in body if one not in (*makers, *forwards, *targets))
        self._collect(found, fed, makers, others | (names(targets) - names(fed)))
        # An environment's step takes what the model gave: it makes no batch, though the first observation does.
        for name in called(answers) - called(fed):
            for place in self._methods_of(name):
                found.rows.difference_update(lines_of(place))

    def _methods_of(self, name: str) -> list[ast.AST]:
        """Methods of that name of the cell's classes."""
        classes = (one for places in self._defined.values() for one in places if isinstance(one, ast.ClassDef))
        return [one for place in classes for one in place.body if isinstance(one, FUNCTIONS) and one.name == name]

    def _passed(self, wanted: set[str], loop: Loop) -> list[ast.AST]:
        """What the loop's function is called with for those of its parameters that are wanted."""
        places = [place for places in self._defined.values() for place in places if loop in ast.walk(place)]
        return [value for place in places for name, value in self._arguments(place) if name in wanted]

    def _is_forward(self, statement: ast.stmt) -> bool:
        if self._forward.intersection(lines_of(statement)):
            return True
        return any(isinstance(one, ast.Call) and key(one.func) in self._models for one in ast.walk(statement))

    def _arguments_of_models(self, statement: ast.stmt) -> list[ast.AST]:
        calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call) and key(one.func) in self._models]
        return [arg for one in calls for arg in one.args]

    def _sources_of(self, wanted: set[str], loop: Loop) -> list[ast.AST]:
        """What stands outside of the loop under these names and does its work when it is pulled from."""
        inside = set(ast.walk(loop))
        made = [
            part
            for one in ast.walk(self._tree)
            if isinstance(one, ast.Assign) and one not in inside and {key(target) for target in one.targets} & wanted
            for part in ast.walk(one.value)
        ]
        return [one for one in made if isinstance(one, (ast.GeneratorExp, ast.Lambda)) or self._names_lazy(one)]

    def _names_lazy(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and any(is_lazy(place) for place in self._defined.get(node.id, ()))

    def _collect(self, found: _Feeding, fed: Sequence[ast.AST], makers: Sequence[ast.stmt], others: set[str]) -> None:
        """Adds the lines of what feeds and of all functions that it calls and nothing else in the loop does."""
        for one in (*makers, *(one for one in fed if isinstance(one, (ast.GeneratorExp, ast.Lambda)))):
            found.rows.update(lines_of(one))
        found.called |= called(fed) - others
        for place in definitions(fed, self._defined, others):
            found.rows.update(lines_of(place))
            found.called |= called((place,)) - others - _ITERATION
