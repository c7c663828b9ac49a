"""Changes around the training loop itself: autocast, gradient scaling, copies, layouts, switches set once before it.

GPU: not yet run on one; the changed loops were run on the CPU.
"""

from __future__ import annotations

import ast
from typing import Any, Final, TypeAlias

from gpu_doctor.cell.calls import Cells, Site, function_around, is_of, parameters_of
from gpu_doctor.cell.constructors import training_loops
from gpu_doctor.cell.dataflow import batch_names, graphless, trained
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.syntax import LOOPS, Loop, blocks, dotted, name_of

__all__ = ["Edits", "LoopLines", "NotPlaced", "block_of", "names_in", "statement_of"]

Edits: TypeAlias = "list[tuple[CellSource, Edit]]"
_SAME: Final = ("to", "cuda", "cpu", "train")
"""Methods of a module that give the module."""
_LOSSES: Final = "torch.nn.modules.loss"


class NotPlaced(Exception):
    """Where a change belongs cannot be told from the text; the message is the reason, in one sentence."""


class LoopLines:
    """The newest training loop of some cells, and the changes it can be given."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        found = list(training_loops(cells.cells))
        newest = [one for one in found if one[0] is found[-1][0]]
        self.loops: list[Loop] = list(dict.fromkeys(one for _, one in newest))
        self.cell = newest[0][0] if newest else None

    def loop(self) -> tuple[CellSource, Loop]:
        """The cell and the innermost loop that trains.

        Raises:
            NotPlaced: if there is none, or more than one.
        """
        if self.cell is None:
            raise NotPlaced("No loop that calls backward() was found in the cells.")
        if len(self.loops) > 1:
            lines = " and ".join(str(one.lineno) for one in self.loops)
            raise NotPlaced(f"Several loops of {self.cell.label} train (lines {lines}).")
        return self.cell, self.loops[0]

    def outermost(self) -> tuple[CellSource, Loop]:
        """The cell and the outermost loop around the training loop, within its function.

        Raises:
            NotPlaced: as `loop`.
        """
        cell, loop = self.loop()
        return cell, _outermost(cell, loop) or loop

    def before_loop(self, *lines: str) -> Edits:
        """Lines before the outermost loop.

        Raises:
            NotPlaced: as `loop`.
        """
        cell, loop = self.outermost()
        return [(cell, self.before(cell, loop, lines))]

    def before(self, cell: CellSource, statement: ast.stmt, lines: tuple[str, ...]) -> Edit:
        """Lines of their own before a statement, as deep as it stands.

        Raises:
            NotPlaced: if something else stands on its line.
        """
        begin = cell.line_begin(statement.lineno)
        indent = cell.text[begin : cell.begin(statement)]
        if indent.strip():
            raise NotPlaced(f"Line {statement.lineno} of {cell.label} holds more than one statement.")
        return Edit(begin, begin, "".join(f"{indent}{line}{cell.newline}" for line in lines))

    def model_calls(self) -> list[tuple[ast.stmt, ast.Call]]:
        """The forwards in the training loop of the models that it trains, each model's first: statement and call.

        Raises:
            NotPlaced: if none is found.
        """
        cell, loop = self.loop()
        models: dict[int, Any] = {}
        first: dict[int, ast.Call] = {}
        for call in sorted((n for n in ast.walk(loop) if isinstance(n, ast.Call)), key=cell.begin):
            model = self.model(call.func)
            if model is not None and not graphless(cell, call):
                models[id(model)] = model
                first.setdefault(id(model), call)
        wanted = trained(models, self.cells.namespace)
        found = [call for key, call in first.items() if key in wanted] or self._calls_of_a_local()
        if not found:
            raise NotPlaced(f"No call of the model was found in the loop of {cell.label}.")
        return [(statement_of(cell, call), call) for call in found]

    def _calls_of_a_local(self) -> list[ast.Call]:
        """The first call of the one model that the function of the loop makes; empty where there are several."""
        cell, loop = self.loop()
        calls = sorted((one for one in ast.walk(loop) if isinstance(one, ast.Call)), key=cell.begin)
        calls = [one for one in calls if self._class_made(one.func) is not None and not graphless(cell, one)]
        return calls[:1] if len({cell.of(one.func) for one in calls}) == 1 else []

    def _class_made(self, func: ast.expr) -> type | None:
        """The class of the module that the function of the loop makes for a name; None if it makes none."""
        cell, loop = self.loop()
        for one in cell.walk(ast.Assign) if isinstance(func, ast.Name) else ():
            value, target = one.value, one.targets[0]
            while isinstance(value, ast.Call) and name_of(value) in _SAME and isinstance(value.func, ast.Attribute):
                value = value.func.value
            kind = self.cells.meant(value.func) if isinstance(value, ast.Call) else None
            known = is_of(kind, ("Module",), "torch.nn") and isinstance(kind, type) and kind.__module__ != _LOSSES
            bound = isinstance(target, ast.Name) and isinstance(func, ast.Name) and target.id == func.id
            if known and bound and function_around(cell, one) is function_around(cell, loop):
                return kind
        return None

    def model(self, func: ast.expr) -> Any:
        """The module with parameters that an expression names; None if it names none."""
        handed = self._handed(func)
        parts = dotted(handed[2]) if handed is not None else dotted(func)
        held: Any = self.cells.held(parts[0], self.cell, func) if parts and self.cell is not None else None
        for part in parts[1:]:
            values = getattr(held, "__dict__", {})
            held = values.get(part, (values.get("_modules") or {}).get(part))
        own = vars(held) if is_of(type(held), ("Module",), "torch.nn") else {}
        return held if own.get("_parameters") or own.get("_modules") else None

    def _handed(self, func: ast.expr) -> tuple[CellSource, ast.Call, ast.expr] | None:
        """The newest call that hands a model to the function of the loop, and what it hands; None for any other."""
        function = function_around(self.cell, self.loops[0]) if self.cell is not None else None
        if function is None or self.cell is None or not isinstance(func, ast.Name):
            return None
        names = parameters_of(self.cell, function)
        for where, call in reversed(self.cells.calls(function.name) if func.id in names else []):
            given = Site(where, call, names).argument(func.id)
            if given is not None:
                return where, call, given
        return None

    def before_training(self, func: ast.expr, line: str) -> tuple[CellSource, Edit]:
        """A line that does something to the model once: before the loop, or before the loop's function is called.

        Args:
            func: the model, as the loop calls it.
            line: with `{}` for the model.

        Raises:
            NotPlaced: if something else stands on that line.
        """
        node: ast.stmt
        cell, node = self.outermost()
        handed = self._handed(func)
        if handed is not None:
            cell, call, func = handed
            node = _outermost(cell, call) or statement_of(cell, call)
        return cell, self.before(cell, node, (line.format(cell.of(func)),))

    # ---- the changes --------------------------------------------------------------------------------------------

    def compiled(self, torch: str) -> Edits:
        """The trained models are compiled before the loop.

        `compile()` of a module whose forward is torch's own, such as that of nn.Sequential, compiles nothing (torch
        2.13): it is in the files that the compiler passes over.

        Raises:
            NotPlaced: if loop or model are not found.
        """
        said, edits = "  # the first steps are slow", list[tuple[CellSource, Edit]]()
        for _, call in self.model_calls():
            model = self.model(call.func)
            kind = type(model) if model is not None else self._class_made(call.func)
            of_torch = str(getattr(getattr(kind, "forward", None), "__module__", "")).startswith("torch.")
            line = f"{{0}}.forward = {torch}.compile({{0}}.forward)" if of_torch else "{0}.compile()"
            edits.append(self.before_training(call.func, line + said))
        return edits

    def channels_last(self, torch: str) -> Edits:
        """Weights and images channels last.

        Raises:
            NotPlaced: if loop, model or images are not found, or several models are trained.
        """
        cell, loop = self.loop()
        calls = self.model_calls()
        if len(calls) > 1:
            names = " and ".join(cell.of(call.func) for _, call in calls)
            raise NotPlaced(f"Several models are trained ({names}): change the one that takes images by hand.")
        statement, call = calls[0]
        images = call.args[0] if call.args else None
        if not isinstance(images, ast.Name):
            raise NotPlaced(f"Assign the model's input on line {call.lineno} of {cell.label} to a variable first.")
        batch = batch_names(loop, call.lineno)
        if batch is not None and images.id not in batch:
            raise NotPlaced(f"The model's input on line {call.lineno} of {cell.label} is not the loader's batch.")
        layout = f".to(memory_format={torch}.channels_last)"
        placed = self.before(cell, statement, (f"{images.id} = {images.id}{layout}",))
        return [self.before_training(call.func, "{}" + layout), (cell, placed)]


def _outermost(cell: CellSource, node: ast.AST) -> Loop | None:
    """The outermost loop around a node within its function; None if there is none."""
    around = function_around(cell, node)
    loops = [one for one in cell.ancestors(node) if isinstance(one, LOOPS) and function_around(cell, one) is around]
    return loops[-1] if loops else None


def names_in(cell: CellSource) -> set[str]:
    """Every name that a cell reads or binds."""
    return {one.id for one in cell.walk(ast.Name)}


def statement_of(cell: CellSource, node: ast.AST) -> ast.stmt:
    """The innermost statement that a node is part of."""
    while not isinstance(node, ast.stmt):
        node = cell.parents[node]
    return node


def block_of(cell: CellSource, statement: ast.stmt) -> tuple[list[ast.stmt], int]:
    """The statements among which one stands, and its place in them."""
    block = next(one for one in blocks(cell.parents[statement]) if statement in one)
    return block, block.index(statement)
