"""Writes torch's recipe for mixed precision into the user's loop: forward and loss in one autocast, backward outside.

With float16 a GradScaler scales the loss, unscales the gradients before they are clipped, and steps the optimizer
(torch.amp's documentation). GPU: not yet run on one; the changed loops were run on the CPU, in bfloat16 and float16.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource, Edit, Edits, LoopLines, NotPlaced
from gpu_doctor.cell.calls import function_around
from gpu_doctor.cell.dataflow import batch_names
from gpu_doctor.cell.loop import block_of, names_in, statement_of
from gpu_doctor.cell.syntax import FUNCTIONS, Loop, calls_of, dotted, name_of

_MOVES: Final = ("to", "cuda", "cpu", "next", "iter")
"""Calls that fetch or move a batch and compute nothing of a forward."""
_SCALERS: Final = ("scaler", "grad_scaler", "amp_scaler")
"""Names for the GradScaler, the first unused one is taken: `scaler` is often one of scikit-learn's."""


def recipe(lines: LoopLines, torch: str, device: str, dtype: str) -> Edits:
    """Returns the edits that put forward and loss of every backward into an autocast; float16 also scales the loss.

    Args:
        lines: lines of the loop.
        torch: name of torch in the cells.
        device: type of the device that the loop trains on.
        dtype: `bfloat16` or `float16`.

    Raises:
        NotPlaced: The form of the loop does not allow it.
    """
    cell, loop = lines.loop()
    if any(name_of(call) in ("autocast", "GradScaler") for call in cell.walk(ast.Call)):
        raise NotPlaced(formatting.sentence(f"{cell.label} enters autocast itself: change its dtype there."))
    head = f'with {torch}.autocast(device_type="{device}", dtype={torch}.{dtype}):'
    backwards = sorted(calls_of(loop, "backward"), key=cell.begin)
    edits = [edit for call in backwards for edit in _Backward(lines, call, backwards).edits(head)]
    return edits if dtype != "float16" else [*edits, *_scaling(lines, torch, device, backwards)]


class _Backward:
    """A call of backward() in the loop, and the statements that compute its loss."""

    def __init__(self, lines: LoopLines, call: ast.Call, backwards: Sequence[ast.Call]) -> None:
        """Stores a call of backward().

        Args:
            lines: lines of the loop.
            call: call of backward().
            backwards: all such calls; statements before an earlier call belong to that call.

        Raises:
            NotPlaced: backward() is not called on a loss.
        """
        self._cell, self._loop = lines.loop()
        self._place = f"line {call.lineno} of {self._cell.label}"
        if not isinstance(call.func, ast.Attribute):
            raise NotPlaced(f"backward() on {self._place} is not called on a loss.")
        self._lines, self._call, self._loss = lines, call, call.func.value
        self._earlier = [other for other in backwards if self._cell.begin(other) < self._cell.begin(call)]

    def edits(self, head: str) -> Edits:
        """Returns the edits that put the statements of forward and loss into a block of `head`.

        A loss that is computed in the call of backward() itself first gets a name.

        Raises:
            NotPlaced: No statement before backward() computes the loss, or a backward() that computes it is not a
                statement of its own.
        """
        cell, statement = self._cell, statement_of(self._cell, self._call)
        if any(isinstance(node, ast.Call) for node in ast.walk(self._loss)):
            return self._named_loss(statement, head)
        while statement is not self._loop and not isinstance(statement, FUNCTIONS):
            before = self._before(statement)
            found = self._computing(before, statement)
            if found:
                found = _whole_lines(cell, found, before, statement)
                return [(cell, self._lines.before(cell, found[0], (head,))), *_indented(cell, found)]
            statement = statement_of(cell, cell.parents[statement])
        raise NotPlaced(f"The loop does not compute the loss before backward() on {self._place}.")

    def _named_loss(self, statement: ast.stmt, head: str) -> Edits:
        """Returns the edits for `criterion(model(x), y).backward()`: the loss gets a name and a line in the block."""
        if not isinstance(statement, ast.Expr) or statement.value is not self._call:
            raise NotPlaced(f"Assign the loss to a variable before backward() on {self._place}.")
        cell, name = self._cell, _free(self._lines, ("loss", "loss_value", "loss_of_step"))
        before = self._before(statement)
        found = self._computing(before, statement)
        block = before[before.index(found[0]) :] if found else []
        begin, end = cell.begin(self._loss), cell.end(self._loss)
        return [
            (cell, self._lines.before(cell, (*block, statement)[0], (head,))),
            *_indented(cell, block),
            (cell, self._lines.before(cell, statement, (f"{cell.unit}{name} = {cell.of(self._loss)}",))),
            (cell, Edit(begin, end, name)),
        ]

    def _before(self, statement: ast.stmt) -> list[ast.stmt]:
        """Returns the statements of the block from after its last earlier backward() up to `statement`."""
        block, at = block_of(self._cell, statement)
        others = [n for n in range(at) if any(node in self._earlier for node in ast.walk(block[n]))]
        return block[max(others, default=-1) + 1 : at]

    def _computing(self, statements: Sequence[ast.stmt], until: ast.stmt) -> Sequence[ast.stmt]:
        """Returns the statements from the first forward to the last one that computes a part of the loss."""
        batch = batch_names(self._loop, until.lineno) or set()
        needed, inside = _loaded(self._loss), list[int]()
        for at in reversed(range(len(statements))):
            if needed & _stored(statements[at]):
                inside.append(at)
                needed |= _loaded(statements[at])
        first = next((at for at in reversed(inside) if _computes(statements[at], batch)), None)
        return [] if first is None else statements[first : inside[0] + 1]


def _computes(statement: ast.stmt, batch: set[str]) -> bool:
    """Returns True if a statement calls anything besides methods of the batch and calls that fetch or move it."""
    data = batch | _stored(statement)
    calls = (call for call in ast.walk(statement) if isinstance(call, ast.Call))
    return any(name_of(call) not in _MOVES and _root(call) not in data for call in calls)


def _root(call: ast.Call) -> str:
    """Returns the name at the start of a method chain: `x` for `x.view(-1)[0].float()`; '' for a function's call."""
    node: ast.expr = call.func
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) and node is not call.func else ""


def _loaded(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)}


def _stored(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def _whole_lines(
    cell: CellSource, found: Sequence[ast.stmt], statements: Sequence[ast.stmt], after: ast.stmt
) -> Sequence[ast.stmt]:
    """Extends neighbouring statements of a block by those that begin on the lines of the last one.

    Args:
        cell: cell of the block.
        found: neighbouring statements of the block.
        statements: all statements of the block.
        after: statement after the block, which must stay outside.

    Raises:
        NotPlaced: `after` begins on the lines of the last statement.
    """
    begin, end = statements.index(found[0]), statements.index(found[-1]) + 1
    following = [*statements, after]
    while following[end].lineno <= (following[end - 1].end_lineno or 0):
        if following[end] is after:
            raise NotPlaced(f"Line {after.lineno} of {cell.label} holds more than one statement.")
        end += 1
    return statements[begin:end]


def _indented(cell: CellSource, block: Sequence[ast.stmt]) -> Iterator[tuple[CellSource, Edit]]:
    """Yields the edits that indent statements by one level; lines inside a multi-line string stay unchanged."""
    inside: set[int] = set()
    for node in (node for statement in block for node in ast.walk(statement)):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno is not None:
            inside.update(range(node.lineno + 1, node.end_lineno + 1))
    for line in range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1) if block else ():
        begin = cell.line_begin(line)
        if line not in inside and cell.text[begin : cell.line_end(line)].strip():
            yield cell, Edit(begin, begin, cell.unit)


def _scaling(lines: LoopLines, torch: str, device: str, backwards: Sequence[ast.Call]) -> Edits:
    """Returns the edits that scale the loss, unscale the gradients before a clip, and step by the scaler.

    Raises:
        NotPlaced: The loop does not step by a single `optimizer.step()`.
    """
    cell, loop = lines.loop()
    steps = [
        call
        for call in calls_of(loop, "step")
        if isinstance(call.func, ast.Attribute) and _is_optimizer(lines, call.func.value)
    ]
    if len(steps) != 1 or steps[0].args or steps[0].keywords:
        raise NotPlaced(f"Gradient scaling needs one optimizer.step() without a closure in the loop of {cell.label}.")
    assert isinstance(steps[0].func, ast.Attribute)
    scaler, optimizer = _free(lines, _SCALERS), cell.of(steps[0].func.value)
    edits: Edits = []
    for call in backwards:
        assert isinstance(call.func, ast.Attribute)
        begin, end = cell.begin(call.func.value), cell.end(call.func.value)
        edits += [(cell, Edit(begin, begin, f"{scaler}.scale(")), (cell, Edit(end, end, ")"))]
    statement = statement_of(cell, steps[0])
    begin, indent = cell.line_end(statement.end_lineno or 0), cell.indent(statement.lineno)
    lines.before(cell, statement, ())
    edits += _once(lines, cell, loop, f'{scaler} = {torch}.amp.GradScaler("{device}")')
    edits.append((cell, Edit(cell.begin(steps[0]), cell.end(steps[0]), f"{scaler}.step({optimizer})")))
    edits.append((cell, Edit(begin, begin, f"{cell.newline}{indent}{scaler}.update()")))
    clip = _first_clip(cell, loop, statement)
    if clip is not None:
        edits.append((cell, lines.before(cell, clip, (f"{scaler}.unscale_({optimizer})",))))
    return edits


def _free(lines: LoopLines, names: Sequence[str]) -> str:
    """Returns the first name that no cell uses."""
    used = set().union(*(names_in(cell) for cell in lines.cells.cells))
    found = next((name for name in names if name not in used), "")
    if not found:
        raise NotPlaced(f"The cells use the names {', '.join(names)} already.")
    return found


def _once(lines: LoopLines, cell: CellSource, loop: Loop, line: str) -> Edits:
    """Returns the edit for a line that runs once per training: before the loop, or before the definition around it.

    Raises:
        NotPlaced: The definition is inside another block.
    """
    if function_around(cell, loop) is None:
        return lines.before_loop(line)
    outermost = [node for node in cell.ancestors(loop) if not isinstance(node, ast.Module)][-1]
    if not isinstance(outermost, (*FUNCTIONS, ast.ClassDef)):
        raise NotPlaced(f"The function around the loop of {cell.label} is nested: create the GradScaler before it.")
    begin = cell.line_begin(min([outermost.lineno, *(node.lineno for node in outermost.decorator_list)]))
    return [(cell, Edit(begin, begin, f"{line}{cell.newline}"))]


def _first_clip(cell: CellSource, loop: Loop, step: ast.stmt) -> ast.stmt | None:
    """Returns the first statement that clips gradients, or None; gradients may be unscaled before it, once per step.

    Raises:
        NotPlaced: The statement may run more than once between two steps.
    """
    calls = [*calls_of(loop, "clip_grad_norm_"), *calls_of(loop, "clip_grad_value_")]
    clips = [statement_of(cell, call) for call in sorted(calls, key=cell.begin)]
    if not clips:
        return None
    blocks = {id(block_of(cell, node)[0]) for node in clips}
    around = next(node for node in cell.ancestors(step) if not isinstance(node, (ast.With, ast.AsyncWith)))
    if len(blocks) > 1 or around not in cell.ancestors(clips[0]):
        raise NotPlaced(formatting.sentence(f"{cell.label} clips gradients outside the block of optimizer.step()."))
    return clips[0]


def _is_optimizer(lines: LoopLines, node: ast.expr) -> bool:
    parts = dotted(node)
    held: Any = lines.cells.held(parts[0], lines.cell, node) if parts and lines.cell is not None else None
    for part in parts[1:]:
        held = getattr(held, "__dict__", {}).get(part)
    if held is None:
        return bool(parts) and "opt" in parts[-1].lower()
    return any(cls.__module__.startswith("torch.optim") and cls.__name__ == "Optimizer" for cls in type(held).__mro__)
