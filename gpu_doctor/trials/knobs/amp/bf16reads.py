"""Where a loop hands a model's outputs to numpy, which has no bfloat16: there they are float32 again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from gpu_doctor.cell.calls import dotted
from gpu_doctor.cell.constructors import Loop
from gpu_doctor.cell.dataflow import holds, names_holding
from gpu_doctor.cell.loop import LoopLines
from gpu_doctor.cell.source import CellSource, Edit

_NO_FLOATS: Final = {"argmax", "argmin", "argsort", "max", "min", "topk", "sort", "long", "int", "bool", "multinomial"}
"""What makes indices or other numbers that numpy has; of `max` and its like the values are not followed."""
_READ_ALREADY: Final = {"numpy", "asarray", "array", "tolist", "item", "float", "double", "size", "len"}
_ARRAYS: Final = ("asarray", "array")
_KEEPS: Final = ("append", "extend")


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
