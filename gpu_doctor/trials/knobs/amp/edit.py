"""torch's recipe for mixed precision as lines of the user's loop: forward and loss in one autocast, backward outside.

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
"""Names for the GradScaler: `scaler` is often one of scikit-learn's."""


def recipe(lines: LoopLines, torch: str, device: str, dtype: str) -> Edits:
    """Forward and loss of every backward in an autocast; with float16 the loss is scaled as well.

    Args:
        lines: of the loop.
        torch: name of torch in the cells.
        device: type of the device that the loop trains on.
        dtype: `bfloat16` or `float16`.

    Raises:
        NotPlaced: if the loop's form does not allow it.
    """
    cell, loop = lines.loop()
    if any(name_of(one) in ("autocast", "GradScaler") for one in cell.walk(ast.Call)):
        raise NotPlaced(formatting.sentence(f"{cell.label} enters autocast itself: change its dtype there."))
    head = f'with {torch}.autocast(device_type="{device}", dtype={torch}.{dtype}):'
    backwards = sorted(calls_of(loop, "backward"), key=cell.begin)
    edits = [edit for call in backwards for edit in _Backward(lines, call, backwards).edits(head)]
    return edits if dtype != "float16" else [*edits, *_scaling(lines, torch, device, backwards)]


class _Backward:
    """A call of backward() in the loop, and the statements that compute its loss."""

    def __init__(self, lines: LoopLines, call: ast.Call, backwards: Sequence[ast.Call]) -> None:
        """Raises `NotPlaced` if it is called on nothing.

        Args:
            lines: of the loop.
            call: of backward.
            backwards: all of them; what lies before another one is that one's.
        """
        self._cell, self._loop = lines.loop()
        self._place = f"line {call.lineno} of {self._cell.label}"
        if not isinstance(call.func, ast.Attribute):
            raise NotPlaced(f"backward() on {self._place} is not called on a loss.")
        self._lines, self._call, self._loss = lines, call, call.func.value
        self._earlier = [one for one in backwards if self._cell.begin(one) < self._cell.begin(call)]

    def edits(self, head: str) -> Edits:
        """Returns the edits that put forward and loss into a block of `head`.

        Raises:
            NotPlaced: if the loop does not compute the loss in statements of their own before.
        """
        cell, statement = self._cell, statement_of(self._cell, self._call)
        if any(isinstance(one, ast.Call) for one in ast.walk(self._loss)):
            return self._taken_out(statement, head)
        while statement is not self._loop and not isinstance(statement, FUNCTIONS):
            before = self._before(statement)
            found = self._computing(before, statement)
            if found:
                found = _whole_lines(cell, found, before, statement)
                return [(cell, self._lines.before(cell, found[0], (head,))), *_indented(cell, found)]
            statement = statement_of(cell, cell.parents[statement])
        raise NotPlaced(f"The loop does not compute the loss before backward() on {self._place}.")

    def _taken_out(self, statement: ast.stmt, head: str) -> Edits:
        """Gives the edits for `criterion(model(x), y).backward()`: the loss gets a name and a line in the block."""
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
        """Returns the statements of a block before one, from the last that calls an earlier backward on."""
        block, at = block_of(self._cell, statement)
        others = [n for n in range(at) if any(one in self._earlier for one in ast.walk(block[n]))]
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
    """True if a statement calls anything but methods of the batch and what fetches or moves it."""
    data = batch | _stored(statement)
    calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call))
    return any(name_of(one) not in _MOVES and _root(one) not in data for one in calls)


def _root(call: ast.Call) -> str:
    """The name that a chain of methods hangs on: `x` of `x.view(-1)[0].float()`; empty for what is called by name."""
    node: ast.expr = call.func
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) and node is not call.func else ""


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _whole_lines(
    cell: CellSource, found: Sequence[ast.stmt], statements: Sequence[ast.stmt], after: ast.stmt
) -> Sequence[ast.stmt]:
    """Some of a block's statements, with those that begin on the last one's lines.

    Args:
        cell: that they stand in.
        found: neighbours among the statements.
        statements: of the block.
        after: the statement behind them, which is to stay outside.

    Raises:
        NotPlaced: if it begins on the last one's lines.
    """
    begin, end = statements.index(found[0]), statements.index(found[-1]) + 1
    following = [*statements, after]
    while following[end].lineno <= (following[end - 1].end_lineno or 0):
        if following[end] is after:
            raise NotPlaced(f"Line {after.lineno} of {cell.label} holds more than one statement.")
        end += 1
    return statements[begin:end]


def _indented(cell: CellSource, block: Sequence[ast.stmt]) -> Iterator[tuple[CellSource, Edit]]:
    """The lines of statements one level deeper; what lies in a text over several lines stays as it is."""
    inside: set[int] = set()
    for one in (node for statement in block for node in ast.walk(statement)):
        if isinstance(one, (ast.Constant, ast.JoinedStr)) and one.end_lineno is not None:
            inside.update(range(one.lineno + 1, one.end_lineno + 1))
    for line in range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1) if block else ():
        begin = cell.line_begin(line)
        if line not in inside and cell.text[begin : cell.line_end(line)].strip():
            yield cell, Edit(begin, begin, cell.unit)


def _scaling(lines: LoopLines, torch: str, device: str, backwards: Sequence[ast.Call]) -> Edits:
    """Returns the edits that scale the loss, unscale the gradients before a clip, and step by the scaler.

    Raises:
        NotPlaced: if the loop steps other than by one `optimizer.step()`.
    """
    cell, loop = lines.loop()
    steps = [
        one
        for one in calls_of(loop, "step")
        if isinstance(one.func, ast.Attribute) and _is_optimizer(lines, one.func.value)
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
    used = set().union(*(names_in(one) for one in lines.cells.cells))
    found = next((one for one in names if one not in used), "")
    if not found:
        raise NotPlaced(f"The cells use the names {', '.join(names)} already.")
    return found


def _once(lines: LoopLines, cell: CellSource, loop: Loop, line: str) -> Edits:
    """A line that is run once for the whole training: before the loop, or before the definition that holds it.

    Raises:
        NotPlaced: if the definition stands in a block of its own.
    """
    if function_around(cell, loop) is None:
        return lines.before_loop(line)
    outermost = [one for one in cell.ancestors(loop) if not isinstance(one, ast.Module)][-1]
    if not isinstance(outermost, (*FUNCTIONS, ast.ClassDef)):
        raise NotPlaced(f"The function around the loop of {cell.label} is nested: create the GradScaler before it.")
    begin = cell.line_begin(min([outermost.lineno, *(one.lineno for one in outermost.decorator_list)]))
    return [(cell, Edit(begin, begin, f"{line}{cell.newline}"))]


def _first_clip(cell: CellSource, loop: Loop, step: ast.stmt) -> ast.stmt | None:
    """The first statement that clips gradients, before which they are unscaled: torch allows that once a step.

    Raises:
        NotPlaced: if it may be reached more than once between two steps.
    """
    calls = [*calls_of(loop, "clip_grad_norm_"), *calls_of(loop, "clip_grad_value_")]
    clips = [statement_of(cell, one) for one in sorted(calls, key=cell.begin)]
    if not clips:
        return None
    blocks = {id(block_of(cell, one)[0]) for one in clips}
    around = next(one for one in cell.ancestors(step) if not isinstance(one, (ast.With, ast.AsyncWith)))
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
    return any(one.__module__.startswith("torch.optim") and one.__name__ == "Optimizer" for one in type(held).__mro__)
