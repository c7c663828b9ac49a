"""Copies of the batch to the device that no longer wait, as changes of the user's loop.

GPU: not yet run on one; the changed loops were run on the CPU.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any, Final

from gpu_doctor.cell.arguments import ADD, REPLACE, Slot, set_arguments
from gpu_doctor.cell.calls import Site
from gpu_doctor.cell.constructors import Loop
from gpu_doctor.cell.dataflow import holds, names_holding
from gpu_doctor.cell.loop import Edits, LoopLines, NotPlaced

_DTYPES: Final = ("float", "half", "double", "int", "long", "bool", "dtype", "bfloat")


def non_blocking(lines: LoopLines, value: bool) -> Edits:
    """Copies of the batch to the device no longer wait; those to the host do.

    Raises:
        NotPlaced: if the loop makes none, or they are made by a class that takes no such word.
    """
    cell, loop = lines.loop()
    slots: dict[Slot, str] = {}
    for call in ast.walk(loop):
        func = call.func if isinstance(call, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda") or lines.is_model(func.value):
            continue
        assert isinstance(call, ast.Call)
        if any(ast.unparse(one).rpartition(".")[2].startswith(_DTYPES) for one in call.args[:1]) or len(call.args) > 1:
            continue
        if not call.args and not any(one.arg == "device" for one in call.keywords) and func.attr == "to":
            continue
        outputs = names_holding(loop, call.lineno, lambda node: _forward(lines, node))
        if value and (_to_the_host(lines, call) or holds(func.value, outputs)):
            continue
        site = Site(cell, call, ())
        node = site.argument("non_blocking")
        if node is None:
            _let_pass(lines, loop, func.value)
        slots[Slot(ADD if node is None else REPLACE, site, "non_blocking", node)] = repr(value)
    if not slots:
        raise NotPlaced(f"No copy of the batch to the device was found in the loop of {cell.label}.")
    return list(set_arguments(slots))


def _forward(lines: LoopLines, node: ast.expr) -> bool:
    """Whether an expression is a model's output, or lets go of its graph."""
    if not isinstance(node, ast.Call):
        return False
    return lines.is_model(node.func) or (isinstance(node.func, ast.Attribute) and node.func.attr == "detach")


def _to_the_host(lines: LoopLines, call: ast.Call) -> bool:
    """A copy that must wait: what is read on the host behind it would not have arrived."""
    assert isinstance(call.func, ast.Attribute)
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "device")]
    texts = {one.value for node in given for one in ast.walk(node) if isinstance(one, ast.Constant)}
    host = any(isinstance(one, str) and one.partition(":")[0] == "cpu" for one in texts)
    return host or any(_forward(lines, one) for one in ast.walk(call.func.value) if isinstance(one, ast.expr))


def _let_pass(lines: LoopLines, loop: Loop, batch: ast.expr) -> None:
    """Lets a batch pass whose `to` takes the keyword.

    Raises:
        NotPlaced: if it is of a class whose own does not.
    """
    held: Any = lines.cells.namespace.get(batch.id) if isinstance(batch, ast.Name) else None
    name = type(held).__name__
    own = getattr(type(held), "to", None) if held is not None else None
    if own is None:
        without = [one for one, (_, node) in lines.cells.classes.items() if _moves_by_itself(node)]
        name = without[0] if without and isinstance(batch, ast.Name) and batch.id == _whole_batch(loop) else ""
    elif _takes(own, "non_blocking"):
        return
    if name:
        raise NotPlaced(f"`to` of {name} takes no non_blocking: hand it on to the copies inside of that method.")


def _moves_by_itself(node: ast.ClassDef) -> bool:
    """A class of the cells with a `to` of its own that takes no non_blocking."""
    own = [one.args for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "to"]
    return any(
        one.kwarg is None and not any(arg.arg == "non_blocking" for arg in (*one.args, *one.kwonlyargs)) for one in own
    )


def _takes(function: Any, name: str) -> bool:
    """Whether a function takes a keyword; what does not tell, as those of C, takes it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _whole_batch(loop: Loop) -> str:
    """The one name of a loop's batch, also behind a counter; empty where it is taken apart at once."""
    target = getattr(loop, "target", None)
    counted = ast.unparse(getattr(loop, "iter", loop)).partition("(")[0] == "enumerate"
    target = target.elts[-1] if counted and isinstance(target, ast.Tuple) else target
    return target.id if isinstance(target, ast.Name) else ""
