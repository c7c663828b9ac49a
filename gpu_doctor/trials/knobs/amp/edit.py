"""Mixed precision as lines of the user's loop: forward and loss in an autocast, the loss scaled for float16.

GPU: not yet run on one; the changed loops were run on the CPU, in bfloat16 and float16.

Where the loop hands a model's outputs to numpy, which has no bfloat16, they are float32 again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from gpu_doctor.cell import CellSource, Edit, Edits, LoopLines, NotPlaced
from gpu_doctor.cell.calls import FUNCTIONS, dotted, function_around
from gpu_doctor.cell.constructors import Loop
from gpu_doctor.cell.dataflow import holds, names_holding
from gpu_doctor.cell.loop import block_of, calls_of, names_in, statement_of

_MOVES: Final = {"to", "cuda", "cpu", "float", "half", "long", "next", "iter", "len", "range", "print", "enumerate"}
"""Calls on the way to a loss that compute none of it."""
_NO_FLOATS: Final = {"argmax", "argmin", "argsort", "max", "min", "topk", "sort", "long", "int", "bool", "multinomial"}
"""What makes indices or other numbers that numpy has; of `max` and its like the values are not followed."""
_READ_ALREADY: Final = {"numpy", "asarray", "array", "tolist", "item", "float", "double", "size", "len"}
_ARRAYS: Final = ("asarray", "array")
_KEEPS: Final = ("append", "extend")


def autocast(lines: LoopLines, torch: str, device: str, dtype: str) -> Edits:
    """Forward and loss in an autocast; with float16 the loss is scaled as well.

    Raises:
        NotPlaced: if the loop's form does not allow it.
    """
    cell, loop = lines.loop()
    calls = list(calls_of(loop, "backward"))
    block, at = block_of(cell, statement_of(cell, calls[0]))
    statement = block[at]
    if len(calls) > 1 or not isinstance(statement, ast.Expr) or statement.value is not calls[0]:
        raise NotPlaced(f"The loop of {cell.label} calls backward() more than once, or within another expression.")
    if calls[0].args:
        raise NotPlaced(f"backward() on line {calls[0].lineno} of {cell.label} is not called on a loss.")
    if any(dotted(one.func)[-1:] in (["autocast"], ["GradScaler"]) for one in cell.walk(ast.Call)):
        raise NotPlaced(f"{cell.label[0].upper()}{cell.label[1:]} enters autocast itself: change its dtype there.")
    assert isinstance(calls[0].func, ast.Attribute)
    loss = calls[0].func.value
    first, last = _forward(lines, block, at, loss)
    head = f'with {torch}.autocast("{device}", dtype={torch}.{dtype}):'
    edits = [(cell, lines.before(cell, block[first], (head,)))]
    for one in block[first : last + 1]:
        edits += [(cell, edit) for edit in _indented(cell, one, block[first + 1 : last + 1])]
    lines.before(cell, block[last + 1], ())  # raises where two statements share a line
    scaled = cell.of(loss)
    if not isinstance(loss, ast.Name):
        scaled = next(name for name in ("loss", "amp_loss", "loss_in_amp") if name not in names_in(cell))
        inner = lines.before(cell, statement, (f"{cell.unit}{scaled} = {cell.of(loss)}",))
        edits.append((cell, inner))
    if dtype == "bfloat16":
        edits += [(cell, edit) for edit in float32_again(lines, cell, loop)]
    if dtype == "float16":
        edits += _scaling(lines, torch, device, cell, loop)
        scaled = f"{_scaler(lines)}.scale({scaled})"
    if scaled != cell.of(loss):
        edits.append((cell, Edit(cell.begin(loss), cell.end(loss), scaled)))
    return edits


def _forward(lines: LoopLines, block: list[ast.stmt], at: int, loss: ast.expr) -> tuple[int, int]:
    """First and last statement before the backward that compute the loss; last < first: the backward's own does."""
    needed = {one.id for one in ast.walk(loss) if isinstance(one, ast.Name)}
    known: list[int] = []
    called: list[int] = []
    touched: list[int] = []
    for index in range(at - 1, -1, -1):
        stored = {n.id for n in ast.walk(block[index]) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        if not stored & needed:
            continue
        touched.append(index)
        needed |= {n.id for n in ast.walk(block[index]) if isinstance(n, ast.Name)}
        calls = [one.func for one in ast.walk(block[index]) if isinstance(one, ast.Call)]
        if any(lines.is_model(one) for one in calls):
            known.append(index)
        elif any(dotted(one) and dotted(one)[-1] not in _MOVES for one in calls):
            called.append(index)
    inside = any(isinstance(one, ast.Call) and lines.is_model(one.func) for one in ast.walk(loss))
    if inside:
        return at, at - 1
    if not known and not called:
        raise NotPlaced("The statements that compute the loss were not found before backward().")
    first = min(known or called)
    return first, at - 1 if not isinstance(loss, ast.Name) else max(touched)


def _scaler(lines: LoopLines) -> str:
    """A name for the scaler that no cell uses: `scaler` is often one of scikit-learn's."""
    used = set().union(*(names_in(one) for one in lines.cells.cells))
    return next(name for name in ("scaler", "grad_scaler", "amp_scaler", "scaler_of_amp") if name not in used)


def _scaling(lines: LoopLines, torch: str, device: str, cell: CellSource, loop: Loop) -> Edits:
    steps = [
        one
        for one in calls_of(loop, "step")
        if isinstance(one.func, ast.Attribute) and _is_optimizer(lines, one.func.value)
    ]
    if len(steps) != 1 or steps[0].args or steps[0].keywords:
        raise NotPlaced(f"Gradient scaling needs one optimizer.step() without a closure in the loop of {cell.label}.")
    assert isinstance(steps[0].func, ast.Attribute)
    scaler, optimizer = _scaler(lines), cell.of(steps[0].func.value)
    statement = statement_of(cell, steps[0])
    begin, indent = cell.line_end(statement.end_lineno or 0), cell.indent(statement.lineno)
    lines.before(cell, statement, ())
    edits = _once(lines, cell, loop, f'{scaler} = {torch}.amp.GradScaler("{device}")')
    edits.append((cell, Edit(cell.begin(steps[0]), cell.end(steps[0]), f"{scaler}.step({optimizer})")))
    edits.append((cell, Edit(begin, begin, f"{cell.newline}{indent}{scaler}.update()")))
    clip = _first_clip(cell, loop, statement)
    if clip is not None:
        edits.append((cell, lines.before(cell, clip, (f"{scaler}.unscale_({optimizer})",))))
    return edits


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
        raise NotPlaced(
            f"{cell.label[0].upper()}{cell.label[1:]} clips gradients outside the block of optimizer.step()."
        )
    return clips[0]


def _is_optimizer(lines: LoopLines, node: ast.expr) -> bool:
    parts = dotted(node)
    held: Any = lines.cells.held(parts[0], lines.cell, node) if parts and lines.cell is not None else None
    for part in parts[1:]:
        held = getattr(held, "__dict__", {}).get(part)
    if held is None:
        return bool(parts) and "opt" in parts[-1].lower()
    return any(one.__module__.startswith("torch.optim") and one.__name__ == "Optimizer" for one in type(held).__mro__)


def _indented(cell: CellSource, statement: ast.stmt, others: list[ast.stmt]) -> Iterator[Edit]:
    """A statement's lines one level deeper; what lies in a text over several lines stays as it is."""
    inside: set[int] = set()
    for one in ast.walk(statement):
        if isinstance(one, (ast.Constant, ast.JoinedStr)) and one.end_lineno is not None and hasattr(one, "lineno"):
            inside.update(range(one.lineno + 1, one.end_lineno + 1))
    after = min((other.lineno for other in others if other.lineno > statement.lineno), default=None)
    end = (after - 1) if after is not None else (statement.end_lineno or statement.lineno)
    for line in range(statement.lineno, end + 1):
        begin = cell.line_begin(line)
        if line not in inside and cell.text[begin : cell.line_end(line)].strip():
            yield Edit(begin, begin, cell.unit)


def float32_again(lines: LoopLines, cell: CellSource, loop: Loop) -> Iterator[Edit]:
    """The edits that write `.float()` before numpy reads outputs in the loop, or where they are kept for it."""
    called = {_called(one) for where in lines.cells.cells for one in where.walk(ast.Call)}
    later = bool(called & {"numpy", *_ARRAYS})
    for call in sorted((one for one in ast.walk(loop) if isinstance(one, ast.Call)), key=cell.begin):
        read = _read(call, later)
        if read is not None and _is_output(lines, loop, read):
            plain = isinstance(read, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            if _called(call) == "numpy":  # before its dot: what it is read from may stand in brackets
                dot = cell.text.rindex(".", cell.end(read), cell.end(call.func))
                yield Edit(dot, dot, ".float()")
            elif plain:
                yield Edit(cell.end(read), cell.end(read), ".float()")
            else:
                yield Edit(cell.begin(read), cell.end(read), f"({cell.of(read)}).float()")


def _read(call: ast.Call, later: bool) -> ast.expr | None:
    """What a call hands to numpy, or keeps where numpy reads it later."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy":
        return call.func.value
    name = dotted(call.func)
    if len(call.args) != 1 or isinstance(call.args[0], (ast.Starred, ast.List, ast.Tuple, ast.Dict)):
        return None
    if name[-1:] and name[-1] in _ARRAYS and name[0] in ("np", "numpy"):
        return call.args[0]
    keeps = isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS
    return call.args[0] if keeps and later else None


def _is_output(lines: LoopLines, loop: Loop, value: ast.expr) -> bool:
    """Whether an expression is computed of a model's output and may still be as coarse as it."""

    def forward(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and lines.is_model(node.func)

    def other(node: ast.expr) -> bool:
        return isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and _called(node) in _NO_FLOATS | _READ_ALREADY
        )

    parts = [one for one in ast.walk(value) if isinstance(one, ast.expr)]
    if any(map(other, parts)) or holds(value, names_holding(loop, value.lineno, other)):
        return False
    return any(map(forward, parts)) or holds(value, names_holding(loop, value.lineno, forward))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
