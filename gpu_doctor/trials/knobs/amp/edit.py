"""Mixed precision as lines of the user's loop: each forward in an autocast, the loss scaled for float16.

GPU: not yet run on one; the changed loops were run on the CPU, in bfloat16 and float16.
"""

from __future__ import annotations

import ast
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource, Edit, Edits, LoopLines, NotPlaced
from gpu_doctor.cell.calls import function_around
from gpu_doctor.cell.loop import block_of, names_in, statement_of
from gpu_doctor.cell.syntax import FUNCTIONS, Loop, calls_of, dotted
from gpu_doctor.trials.knobs.amp.forwards import in_autocast


def autocast(lines: LoopLines, torch: str, device: str, dtype: str) -> Edits:
    """Each forward in an autocast, what comes out float32 again; with float16 the loss is scaled as well.

    Raises:
        NotPlaced: if the loop's form does not allow it.
    """
    cell, loop = lines.loop()
    if any(dotted(one.func)[-1:] in (["autocast"], ["GradScaler"]) for one in cell.walk(ast.Call)):
        raise NotPlaced(formatting.sentence(f"{cell.label} enters autocast itself: change its dtype there."))
    edits = in_autocast(lines, f'with {torch}.autocast("{device}", dtype={torch}.{dtype}):')
    return edits if dtype != "float16" else [*edits, *_scaling(lines, torch, device, cell, loop)]


def _scaled(lines: LoopLines, cell: CellSource, loop: Loop) -> Edits:
    """The loss scaled where its backward is called.

    Raises:
        NotPlaced: if that is more than one place, or no loss is named.
    """
    calls = list(calls_of(loop, "backward"))
    if len(calls) > 1:
        raise NotPlaced(f"The loop of {cell.label} calls backward() more than once: scale each loss by hand.")
    if calls[0].args or not isinstance(calls[0].func, ast.Attribute):
        raise NotPlaced(f"backward() on line {calls[0].lineno} of {cell.label} is not called on a loss.")
    begin, end = cell.begin(calls[0].func.value), cell.end(calls[0].func.value)
    return [(cell, Edit(begin, begin, f"{_scaler(lines)}.scale(")), (cell, Edit(end, end, ")"))]


def _scaler(lines: LoopLines) -> str:
    """A name for the scaler that no cell uses: `scaler` is often one of scikit-learn's."""
    used = set().union(*(names_in(one) for one in lines.cells.cells))
    return next(name for name in ("scaler", "grad_scaler", "amp_scaler", "scaler_of_amp") if name not in used)


def _scaling(lines: LoopLines, torch: str, device: str, cell: CellSource, loop: Loop) -> Edits:
    edits = _scaled(lines, cell, loop)
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
    edits += _once(lines, cell, loop, f'{scaler} = {torch}.amp.GradScaler("{device}")')
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
