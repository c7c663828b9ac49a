"""Writes switches of torch into the training cell: where the cell sets them already, else at its top."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell.arguments import HIDDEN, Slot, set_arguments, slot_in
from gpu_doctor.cell.calls import Cells, Site
from gpu_doctor.cell.loop import Edits, NotPlaced
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.syntax import dotted, full_name, name_of
from gpu_doctor.recording import SettingValue

__all__ = ["at_top", "own_amp_off", "switched", "torch_name", "with_import"]

SWITCHES: Final = {
    "tf32": (("set_float32_matmul_precision", True), ("backends.cudnn.allow_tf32", False)),
    "cudnn_benchmark": (("backends.cudnn.benchmark", False),),
    "threads": (("set_num_threads", True),),
}
"""Switches of torch that each knob sets; True if a switch is a function to call rather than a variable."""
_SAME: Final = {"set_float32_matmul_precision": "backends.cuda.matmul.allow_tf32"}
"""Another switch of torch with the same effect, whose values are True and False."""
_AUTOCAST: Final = ("device_type", "dtype", "enabled", "cache_enabled")
_AUTOCAST_OF_DEVICE: Final = ("enabled", "dtype", "cache_enabled")
_SCALER_OF_CUDA: Final = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_SCALER: Final = ("device", *_SCALER_OF_CUDA)
"""Positional parameters of torch.autocast and torch.amp.GradScaler, and of those of torch.cuda.amp and torch.cpu.amp
(torch 2.13)."""


def switched(cells: Cells, knob: str, value: SettingValue) -> Edits:
    """Returns the edits that set a knob's switches in the training cell.

    Args:
        cells: The cells; the training cell is the newest.
        knob: Name of the knob.
        value: Value of the knob.

    Raises:
        NotPlaced: If the cell is not valid Python.
    """
    cell = _newest(cells)
    torch = torch_name(cells)
    edits: Edits = [] if torch else with_import(cells)
    lines = []
    for name, called in SWITCHES[knob]:
        text = repr("high" if value else "highest") if name == "set_float32_matmul_precision" else repr(value)
        text = text.replace("'", '"')
        written = [(node, text) for node in _set_already(cells, cell, name)]
        if name in _SAME:
            written += [(node, repr(bool(value))) for node in _set_already(cells, cell, _SAME[name])]
        edits += [(cell, Edit(cell.begin(node), cell.end(node), new)) for node, new in written]
        if not written:
            lines.append(f"{torch or 'torch'}.{name}({text})" if called else f"{torch or 'torch'}.{name} = {text}")
    return [*edits, *([(cell, at_top(cell, lines))] if lines else [])]


def own_amp_off(cells: Cells) -> Edits:
    """Returns the edits that switch off the cells' own autocast and GradScaler with `enabled=False`.

    Raises:
        NotPlaced: If there is none in the cells, or if the arguments of one cannot be read.
    """
    slots: dict[Slot, str] = {}
    for cell in cells.cells:
        for call in cell.walk(ast.Call):
            if name_of(call) in ("autocast", "GradScaler"):
                slot = slot_in(Site(cell, call, _positional(cells, call.func)), "enabled")
                if slot.kind == HIDDEN:
                    said = f"{slot.site.place} passes enabled in a way that cannot be read here."
                    raise NotPlaced(formatting.sentence(said))
                slots[slot] = "False"
    if not slots:
        raise NotPlaced("No autocast and no GradScaler was found in the cells.")
    return list(set_arguments(slots))


def torch_name(cells: Cells) -> str:
    """Returns the name under which torch is imported before the training cell's first statement; empty if it is not."""
    newest = _newest(cells)
    leading = newest.tree.body[: _leading(newest)] if newest.tree is not None else []
    found = [node for node in leading if isinstance(node, ast.Import)]
    for cell in cells.cells[:-1]:
        found += [node for node in (cell.tree.body if cell.tree is not None else []) if isinstance(node, ast.Import)]
    for node in found:
        for alias in node.names:
            if alias.name == "torch" or (alias.name.startswith("torch.") and not alias.asname):
                return alias.asname or "torch"
    return ""


def with_import(cells: Cells) -> Edits:
    """Returns the edits that insert `import torch` at the top of the training cell."""
    cell = _newest(cells)
    return [(cell, at_top(cell, ["import torch"]))]


def at_top(cell: CellSource, lines: list[str]) -> Edit:
    """Returns the edit that inserts lines before the cell's first statement that is not an import."""
    assert cell.tree is not None
    body, at = cell.tree.body, _leading(cell)
    while 0 < at < len(body) and cell.end(body[at - 1]) > cell.line_begin(body[at].lineno):
        at += 1  # this statement shares a line with the one before
    text = "".join(line + cell.newline for line in lines)
    if at < len(body):
        decorators = [decorator.lineno for decorator in getattr(body[at], "decorator_list", [])]
        begin = cell.line_begin(min([body[at].lineno, *decorators]))
        return Edit(begin, begin, text)
    end = len(cell.text)
    gap = "" if not cell.text or cell.text.endswith(("\n", "\r")) else cell.newline
    return Edit(end, end, gap + text)


def _leading(cell: CellSource) -> int:
    """Counts the leading statements of a cell that are imports, IPython's own lines, or its docstring."""
    body = cell.tree.body if cell.tree is not None else []
    for index, node in enumerate(body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if not isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)) and not (text and index == 0):
            return index
    return len(body)


def _set_already(cells: Cells, cell: CellSource, name: str) -> Iterator[ast.expr]:
    """Yields the values that a cell gives to a switch, under torch's name for it or an imported name."""
    for node in cell.walk(ast.Assign, ast.Call):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            if _is_switch(cells, node.targets[0], name):
                yield node.value
        elif isinstance(node, ast.Call) and _is_switch(cells, node.func, name) and len(node.args) == 1:
            yield node.args[0]


def _is_switch(cells: Cells, node: ast.expr, name: str) -> bool:
    """Returns True if an expression refers to the switch `name` of torch."""
    parts = dotted(node)
    if not parts or parts[0] not in cells.imports:  # torch under a name that no cell imports
        return parts[1:] == name.split(".")
    return full_name(node, cells.imports) == f"torch.{name}"


def _positional(cells: Cells, func: ast.expr) -> tuple[str, ...]:
    """Returns the positional parameters of an autocast or a GradScaler."""
    meant = cells.meant(func)
    of_device = ".cuda." in f"{meant}" or ".cpu." in f"{meant}"
    if name_of(func) == "GradScaler":
        return _SCALER_OF_CUDA if of_device else _SCALER
    return _AUTOCAST_OF_DEVICE if of_device else _AUTOCAST


def _newest(cells: Cells) -> CellSource:
    """Returns the newest cell, which is the training cell."""
    if not cells.cells:
        raise NotPlaced("None of the cells could be read as Python.")
    return cells.cells[-1]
