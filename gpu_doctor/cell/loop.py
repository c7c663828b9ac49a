"""Changes in and around the training loop: autocast, gradient scaling, copies, memory layouts, lines before the loop.

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
"""Methods of a module that return the module."""
_LOSSES: Final = "torch.nn.modules.loss"


class NotPlaced(Exception):
    """Error raised when the text does not show where a change belongs; the message gives the reason in one sentence."""


class LoopLines:
    """The newest training loop in some cells, and changes to its text."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        found = list(training_loops(cells.cells))
        newest = [pair for pair in found if pair[0] is found[-1][0]]
        self.loops: list[Loop] = list(dict.fromkeys(loop for _, loop in newest))
        self.cell = newest[0][0] if newest else None

    def loop(self) -> tuple[CellSource, Loop]:
        """Returns the innermost training loop, and its cell.

        Raises:
            NotPlaced: If there is none, or more than one.
        """
        if self.cell is None:
            raise NotPlaced("No loop that calls backward() was found in the cells.")
        if len(self.loops) > 1:
            lines = " and ".join(str(loop.lineno) for loop in self.loops)
            raise NotPlaced(f"Several loops of {self.cell.label} train (lines {lines}).")
        return self.cell, self.loops[0]

    def outermost(self) -> tuple[CellSource, Loop]:
        """Returns the outermost loop around the training loop, within its function, and its cell.

        Raises:
            NotPlaced: As `loop`.
        """
        cell, loop = self.loop()
        return cell, _outermost(cell, loop) or loop

    def before_loop(self, *lines: str) -> Edits:
        """Returns the edits that insert lines before the outermost loop.

        Raises:
            NotPlaced: As `loop`.
        """
        cell, loop = self.outermost()
        return [(cell, self.before(cell, loop, lines))]

    def before(self, cell: CellSource, statement: ast.stmt, lines: tuple[str, ...]) -> Edit:
        """Returns the edit that inserts lines before a statement, with its indentation.

        Raises:
            NotPlaced: If another statement begins on the same line.
        """
        begin = cell.line_begin(statement.lineno)
        indent = cell.text[begin : cell.begin(statement)]
        if indent.strip():
            raise NotPlaced(f"Line {statement.lineno} of {cell.label} holds more than one statement.")
        return Edit(begin, begin, "".join(f"{indent}{line}{cell.newline}" for line in lines))

    def model_calls(self) -> list[tuple[ast.stmt, ast.Call]]:
        """Returns the first forward of each model that the training loop trains, as (statement, call).

        Raises:
            NotPlaced: If none is found.
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
        found = [call for key, call in first.items() if key in wanted] or self._call_of_local_model()
        if not found:
            raise NotPlaced(f"No call of the model was found in the loop of {cell.label}.")
        return [(statement_of(cell, call), call) for call in found]

    def _call_of_local_model(self) -> list[ast.Call]:
        """Returns the first call in the loop of a module that the loop's function assigns to a name.

        Empty if the loop calls none or several such names.
        """
        cell, loop = self.loop()
        calls = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Call)), key=cell.begin)
        calls = [call for call in calls if self._class_made(call.func) is not None and not graphless(cell, call)]
        return calls[:1] if len({cell.of(call.func) for call in calls}) == 1 else []

    def _class_made(self, func: ast.expr) -> type | None:
        """Returns the class of the module that the loop's function assigns to a name; None if it assigns none."""
        cell, loop = self.loop()
        for assignment in cell.walk(ast.Assign) if isinstance(func, ast.Name) else ():
            value, target = assignment.value, assignment.targets[0]
            while isinstance(value, ast.Call) and name_of(value) in _SAME and isinstance(value.func, ast.Attribute):
                value = value.func.value
            kind = self.cells.meant(value.func) if isinstance(value, ast.Call) else None
            known = is_of(kind, ("Module",), "torch.nn") and isinstance(kind, type) and kind.__module__ != _LOSSES
            bound = isinstance(target, ast.Name) and isinstance(func, ast.Name) and target.id == func.id
            if known and bound and function_around(cell, assignment) is function_around(cell, loop):
                return kind
        return None

    def model(self, func: ast.expr) -> Any:
        """Returns the module with parameters that an expression refers to; None if it refers to none."""
        passed = self._passed(func)
        parts = dotted(passed[2]) if passed is not None else dotted(func)
        held: Any = self.cells.held(parts[0], self.cell, func) if parts and self.cell is not None else None
        for part in parts[1:]:
            values = getattr(held, "__dict__", {})
            held = values.get(part, (values.get("_modules") or {}).get(part))
        own = vars(held) if is_of(type(held), ("Module",), "torch.nn") else {}
        return held if own.get("_parameters") or own.get("_modules") else None

    def _passed(self, func: ast.expr) -> tuple[CellSource, ast.Call, ast.expr] | None:
        """Finds the newest call of the loop's function, if `func` is one of its parameters.

        Returns:
            The call's cell, the call, and the argument that it passes for the parameter; None if there is none.
        """
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
        """Returns the edit that inserts a line about the model before the loop, or before its function is called.

        Args:
            func: The expression by which the loop calls the model.
            line: The line, with `{}` for the model.

        Raises:
            NotPlaced: If another statement begins on the line where it would go.
        """
        node: ast.stmt
        cell, node = self.outermost()
        passed = self._passed(func)
        if passed is not None:
            cell, call, func = passed
            node = _outermost(cell, call) or statement_of(cell, call)
        return cell, self.before(cell, node, (line.format(cell.of(func)),))

    # ---- the changes --------------------------------------------------------------------------------------------

    def compiled(self, torch: str) -> Edits:
        """Returns the edits that compile the trained models before the loop; `torch` is torch's name in the cell.

        `compile()` has no effect on a module whose forward is torch's own, such as nn.Sequential's (torch 2.13), since
        the compiler skips torch's files. For such a module, the forward is compiled.

        Raises:
            NotPlaced: If the loop or the model is not found.
        """
        comment, edits = "  # the first steps are slow", list[tuple[CellSource, Edit]]()
        for _, call in self.model_calls():
            model = self.model(call.func)
            kind = type(model) if model is not None else self._class_made(call.func)
            of_torch = str(getattr(getattr(kind, "forward", None), "__module__", "")).startswith("torch.")
            line = f"{{0}}.forward = {torch}.compile({{0}}.forward)" if of_torch else "{0}.compile()"
            edits.append(self.before_training(call.func, line + comment))
        return edits

    def channels_last(self, torch: str) -> Edits:
        """Returns the edits that put the weights and the images in the layout channels last.

        Raises:
            NotPlaced: If the loop, the model or the images are not found, or several models are trained.
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
    """Returns the outermost loop around a node within its function; None if there is none."""
    around = function_around(cell, node)
    loops = [
        outer for outer in cell.ancestors(node) if isinstance(outer, LOOPS) and function_around(cell, outer) is around
    ]
    return loops[-1] if loops else None


def names_in(cell: CellSource) -> set[str]:
    """Returns every name that a cell reads or binds."""
    return {node.id for node in cell.walk(ast.Name)}


def statement_of(cell: CellSource, node: ast.AST) -> ast.stmt:
    """Returns the innermost statement that contains a node."""
    while not isinstance(node, ast.stmt):
        node = cell.parents[node]
    return node


def block_of(cell: CellSource, statement: ast.stmt) -> tuple[list[ast.stmt], int]:
    """Returns the block of statements that contains a statement, and the statement's index in it."""
    block = next(block for block in blocks(cell.parents[statement]) if statement in block)
    return block, block.index(statement)
