"""The forwards that a loop trains, as lines: each in an autocast, what comes out float32 again, the loss outside.

So it stands in the same places as in a trial of the knob (`autocast.py`): whatever reads the outputs, such as `BCELoss`
or numpy, was written for float32. Forwards without gradients, such as those of an evaluation, stay as they are in both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import torch

from gpu_doctor.cell import CellSource, Edit, Edits, LoopLines, NotPlaced
from gpu_doctor.cell.calls import function_around
from gpu_doctor.cell.dataflow import graphless, trained
from gpu_doctor.cell.loop import block_of, names_in, statement_of
from gpu_doctor.trials.knobs.amp.autocast import opened

FLOAT: Final = ".float()"
_SIMPLE: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_MAYBE: Final = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.comprehension, ast.JoinedStr, ast.Await, ast.Yield)
_MANY: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Around a call: it may run never, often or elsewhere, so that it cannot be taken out of its statement."""
_LOSSES: Final = torch.nn.modules.loss.__name__
_SAME: Final = ("to", "cuda", "cpu", "train")
"""Methods of a module that give the module."""
_UNKNOWN: Final = object()


def in_autocast(lines: LoopLines, head: str) -> Edits:
    """Every forward with gradients of the models that the loop trains, in a block of `head`.

    Raises:
        NotPlaced: if none is found, or one stands where it cannot be taken out of its statement.
    """
    assert lines.cell is not None
    found: dict[ast.stmt, list[ast.Call]] = {}
    for call in _calls(lines):
        found.setdefault(statement_of(lines.cell, call), []).append(call)
    if not found:
        raise NotPlaced(f"No call of the model was found in the loop of {lines.cell.label}.")
    names = _free_names(lines)
    edits: Edits = []
    for statement, calls in found.items():
        edits += [(lines.cell, edit) for edit in _Block(lines, statement, calls, head, names).edits()]
    return edits


def _calls(lines: LoopLines) -> list[ast.Call]:
    """The calls of the trained models in the cell of the loop, those that stand in others first."""
    cell, loop = lines.loop()
    known = [(call, model) for call in cell.walk(ast.Call) if (model := lines.model(call.func)) is not None]
    known = [(call, model) for call, model in known if not graphless(cell, call)]
    inside = set(ast.walk(loop))
    if not known:
        return sorted(_calls_of_a_local(lines), key=cell.end)
    models = {id(model): model for call, model in known if call in inside}
    wanted = trained(models or {id(model): model for _, model in known}, lines.cells.namespace)
    return sorted((call for call, model in known if id(model) in wanted), key=cell.end)


def _calls_of_a_local(lines: LoopLines) -> list[ast.Call]:
    """The calls of the one model that the function of the loop makes and calls; empty where there are several."""
    cell, loop = lines.loop()
    around = function_around(cell, loop)
    made: set[str] = set()
    for one in cell.walk(ast.Assign):
        value, target = one.value, one.targets[0]
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            value = value.func.value
        kind = lines.cells.meant(value.func) if isinstance(value, ast.Call) else None
        model = isinstance(kind, type) and issubclass(kind, torch.nn.Module) and kind.__module__ != _LOSSES
        if model and function_around(cell, one) is around:
            made |= {target.id} if isinstance(target, ast.Name) else set()
    calls = (one for one in ast.walk(loop) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name))
    named = [(one.func.id, one) for one in calls if isinstance(one.func, ast.Name) and not graphless(cell, one)]
    found = [(name, one) for name, one in named if name in made]
    return [one for _, one in found] if len({name for name, _ in found}) == 1 else []


def _free_names(lines: LoopLines) -> Iterator[str]:
    """Names for outputs that no cell uses."""
    used = set().union(*(names_in(one) for one in lines.cells.cells))
    number = 1
    while True:
        name = "output" if number == 1 else f"output_{number}"
        if name not in used:
            yield name
        number += 1


@dataclass
class _Block:
    """One statement with forwards in it."""

    lines: LoopLines
    statement: ast.stmt
    calls: list[ast.Call]
    head: str
    names: Iterator[str]

    @property
    def cell(self) -> CellSource:
        assert self.lines.cell is not None
        return self.lines.cell

    def edits(self) -> Iterator[Edit]:
        """The statement itself in the block where it only keeps an output, else the forwards before it.

        Raises:
            NotPlaced: with the reason.
        """
        last = self.calls[-1]
        whole = isinstance(self.statement, ast.Assign) and self.statement.value is last and self._has_its_lines()
        targets = _names_bound(self.statement) if whole else None
        taken = self.calls if targets is None else self.calls[:-1]
        if taken:
            yield from self._taken_out(taken)
        if targets is not None:
            yield self.lines.before(self.cell, self.statement, (self.head,))
            yield from _indented(self.cell, self.statement)
            for name in targets:
                yield from self._float_again(name, len(targets) == 1)

    def _has_its_lines(self) -> bool:
        """Whether nothing else stands on the statement's lines."""
        block, at = block_of(self.cell, self.statement)
        return at + 1 == len(block) or block[at + 1].lineno > (self.statement.end_lineno or 0)

    def _taken_out(self, calls: list[ast.Call]) -> Iterator[Edit]:
        """Lines that run forwards before the statement, and their outputs in the places of the calls."""
        if not isinstance(self.statement, _SIMPLE):
            raise self._by_hand(calls[0])
        block, names = list[str](), dict[ast.Call, str]()
        for call in calls:
            self._comes_first(call)
            text = self._text(call, names)
            names[call] = next(self.names)
            # One block would share the weights' half-precision copies, in which their gradients are then summed.
            block += [self.head, f"{self.cell.unit}{names[call]} = {text}"]
        yield self.lines.before(self.cell, self.statement, tuple(block))
        for call in self._outermost(names, self.statement):
            place = self._part(call)
            yield Edit(self.cell.begin(call), self.cell.end(call), names[call])
            yield Edit(self.cell.end(place), self.cell.end(place), FLOAT)

    def _comes_first(self, call: ast.Call) -> None:
        """Lets a call pass that is always run, and before anything else of its statement that does something.

        Raises:
            NotPlaced: if it is not.
        """
        around = takewhile(lambda one: one is not self.statement, self.cell.ancestors(call))
        does = (one for one in ast.walk(self.statement) if isinstance(one, (ast.Call, ast.NamedExpr, ast.Await)))
        early = [one for one in does if self.cell.end(one) <= self.cell.begin(call) and one not in self.calls]
        early = [one for one in early if not any(one in set(ast.walk(model)) for model in self.calls)]
        early = [one for one in early if not self._makes_a_loss(one)]
        if early or any(isinstance(one, (*_MAYBE, *_MANY)) for one in around):
            raise self._by_hand(call)

    def _makes_a_loss(self, node: ast.AST) -> bool:
        """Whether a call makes one of torch's losses, such as `nn.BCELoss()`, which does nothing else."""
        made = self.lines.cells.meant(node.func) if isinstance(node, ast.Call) else None
        return getattr(made, "__module__", "") == _LOSSES

    def _by_hand(self, call: ast.Call) -> NotPlaced:
        return NotPlaced(
            f"Assign the output of {self.cell.of(call.func)} on line {call.lineno} of {self.cell.label} to a variable."
        )

    def _text(self, node: ast.expr, names: Mapping[ast.Call, str]) -> str:
        """A node's text, with the names of outputs in it for calls that were taken out."""
        begin, text = self.cell.begin(node), self.cell.of(node)
        for call in reversed(self._outermost(names, node)):
            places = self.cell.begin(call), self.cell.end(call), self.cell.end(self._part(call))
            first, end, after = (at - begin for at in places)
            text = text[:first] + names[call] + text[end:after] + FLOAT + text[after:]
        return text

    def _outermost(self, names: Mapping[ast.Call, str], node: ast.AST) -> list[ast.Call]:
        inside = [one for one in names if one is not node and one in set(ast.walk(node))]
        return [one for one in inside if not any(other in names for other in self.cell.ancestors(one))]

    def _part(self, node: ast.expr) -> ast.expr:
        """What of an output is read: a field or an element of it, else all of it."""
        parent = self.cell.parents.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return parent
        return parent if isinstance(parent, ast.Attribute) and not hasattr(torch.Tensor, parent.attr) else node

    def _float_again(self, name: str, alone: bool) -> Iterator[Edit]:
        """The edits that make what a name holds float32 again.

        Args:
            name: of a variable that the statement binds.
            alone: the name has the whole output.

        Raises:
            NotPlaced: if what it holds is not known.
        """
        uses, held = self._uses(name), self._held(name)
        parts = [self._part(use) for use in uses]
        fields = any(isinstance(one, ast.Attribute) for one in parts)
        whole = [part for part, use in zip(parts, uses, strict=True) if part is use]
        if held is _UNKNOWN and not alone and uses and not self._is_loss(name):
            raise NotPlaced(f"What {name} holds on line {self.statement.lineno} of {self.cell.label} is not known.")
        if (held is _UNKNOWN and not fields and (whole or not uses)) or _is_tensor(held):
            if (uses or alone) and getattr(getattr(held, "dtype", None), "is_floating_point", True):
                end = self.cell.line_end(self.statement.end_lineno or 0)
                line = f"{self.cell.indent(self.statement.lineno)}{name} = {name}{FLOAT}"
                yield Edit(end, end, f"{self.cell.newline}{line}")
            return
        if held is not _UNKNOWN and not opened(held):
            return
        if whole:
            raise NotPlaced(
                f"{name} on line {self.statement.lineno} of {self.cell.label} is no tensor: make what it holds float32."
            )
        for part in parts:
            value = _part_of(held, part)
            if opened(value):
                raise NotPlaced(f"{self.cell.of(part)} on line {part.lineno} of {self.cell.label} is no tensor.")
            if value is _UNKNOWN or (_is_tensor(value) and value.dtype.is_floating_point):
                yield Edit(self.cell.end(part), self.cell.end(part), FLOAT)

    def _uses(self, name: str) -> list[ast.expr]:
        around = function_around(self.cell, self.statement)
        named = [one for one in self.cell.walk(ast.Name) if one.id == name and isinstance(one.ctx, ast.Load)]
        outside = (one for one in named if not any(other is self.statement for other in self.cell.ancestors(one)))
        return [one for one in outside if function_around(self.cell, one) is around]

    def _held(self, name: str) -> Any:
        """What the name holds after a run; unknown where another statement binds it too, or a function."""
        if function_around(self.cell, self.statement) is not None:
            return _UNKNOWN
        stored = [one for one in self.cell.walk(ast.Name) if one.id == name and not isinstance(one.ctx, ast.Load)]
        return self.lines.cells.namespace.get(name, _UNKNOWN) if len(stored) == 1 else _UNKNOWN

    def _is_loss(self, name: str) -> bool:
        backward = (one for one in self.cell.walk(ast.Attribute) if one.attr == "backward")
        return any(isinstance(one, ast.Name) and one.id == name for each in backward for one in ast.walk(each.value))


def _part_of(held: Any, part: ast.expr) -> Any:
    """A field or an element of what is held; unknown where it cannot be looked at."""
    try:
        if isinstance(part, ast.Attribute):
            return vars(held)[part.attr]
        assert isinstance(part, ast.Subscript)
        return held[ast.literal_eval(part.slice)] if isinstance(held, (dict, list, tuple)) else _UNKNOWN
    except (KeyError, IndexError, TypeError, ValueError):
        return _UNKNOWN


def _names_bound(statement: ast.stmt) -> list[str] | None:
    """The names that an assignment binds, in one target; None for any other target."""
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    plain = len(statement.targets) == 1 and all(isinstance(one, ast.Name) for one in parts)
    return [one.id for one in parts if isinstance(one, ast.Name)] if plain else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _indented(cell: CellSource, statement: ast.stmt) -> Iterator[Edit]:
    """A statement's lines one level deeper; what lies in a text over several lines stays as it is."""
    inside: set[int] = set()
    for one in ast.walk(statement):
        if isinstance(one, (ast.Constant, ast.JoinedStr)) and one.end_lineno is not None:
            inside.update(range(one.lineno + 1, one.end_lineno + 1))
    for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
        begin = cell.line_begin(line)
        if line not in inside and cell.text[begin : cell.line_end(line)].strip():
            yield Edit(begin, begin, cell.unit)
