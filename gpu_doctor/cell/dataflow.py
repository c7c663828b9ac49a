"""Finds the names in a loop that hold a batch, and the models that the loop trains.

Both are read from the text and from the objects in the namespace; no code is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from gpu_doctor.cell.calls import is_of
from gpu_doctor.cell.source import CellSource
from gpu_doctor.cell.syntax import Loop, name_of, pairs, targets_of

__all__ = ["batch_names"]

_SIZES: Final = ("size", "dim", "numel", "shape", "device", "dtype", "ndim")
_SIZED: Final = ("len", "range")
"""Attributes and methods, and functions, that describe a tensor without its numbers."""
_GRAPHLESS: Final = ("no_grad", "inference_mode")


def batch_names(loop: Loop, until: int) -> set[str] | None:
    """Returns the names that hold data of the loop's batch before the line `until`; None if that is not known."""
    if isinstance(loop, ast.While) or name_of(loop.iter) in ("range", "count"):
        return None
    found = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    assignments = [node for node in ast.walk(loop) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    for assignment in sorted(assignments, key=lambda node: node.lineno):
        if assignment.lineno >= until or assignment.value is None:
            continue
        for target, value in pairs(targets_of(assignment)[0], assignment.value):
            bound = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
            if _holds(value, found):
                found |= bound
            elif not isinstance(assignment, ast.AugAssign) and isinstance(target, (ast.Name, ast.Tuple, ast.List)):
                found -= bound
    return found


def _holds(value: ast.expr, names: set[str]) -> bool:
    """Returns True if an expression is computed from the data of some names, and not only from their sizes."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.Attribute) and value.attr in _SIZES:
        return False
    if isinstance(value, ast.Call) and name_of(value) in (*_SIZES, *_SIZED):
        return False
    return any(
        _holds(part.value if isinstance(part, ast.keyword) else part, names)
        for part in ast.iter_child_nodes(value)
        if isinstance(part, (ast.expr, ast.keyword))
    )


def graphless(cell: CellSource, node: ast.AST) -> bool:
    """Returns True if a node is inside a `with` block of `no_grad` or `inference_mode`."""
    blocks = (parent for parent in cell.ancestors(node) if isinstance(parent, (ast.With, ast.AsyncWith)))
    return any(name_of(item.context_expr) in _GRAPHLESS for block in blocks for item in block.items)


def trained(models: Mapping[int, Any], namespace: Mapping[str, Any]) -> set[int]:
    """Returns the keys of the models that an optimizer in the namespace updates.

    If no optimizer is found, these are the models with parameters that require gradients. A model that is part of
    another one is left out.

    Args:
        models: The models by their id.
        namespace: The names that the code runs with.
    """
    parameters = {key: {id(parameter): parameter for parameter in _parameters(model)} for key, model in models.items()}
    wanted = {key for key, of in parameters.items() if any(parameter.requires_grad for parameter in of.values())}
    owned = {id(parameter) for parameter in _optimized(namespace)}
    updated = {key for key in wanted if owned & parameters[key].keys()} or wanted
    parts = {key: {id(module) for module in _modules(models[key])} for key in updated}
    return {key for key in updated if not any(key in of for other, of in parts.items() if other != key)}


def _optimized(namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the parameters of optimizers in the namespace, and in the objects and containers there."""
    values = list(namespace.values())
    for value in namespace.values():
        if type(value) in (list, tuple):
            values += value
        elif not isinstance(value, (type, ModuleType)):
            values += (value if type(value) is dict else _dict(value)).values()
    for value in {id(value): value for value in values}.values():
        if is_of(type(value), ("Optimizer",), "torch.optim"):
            for group in value.param_groups:
                yield from group["params"]


def _modules(model: Any) -> Iterator[Any]:
    """Yields a model and all modules inside it."""
    yield model
    for part in (_dict(model).get("_modules") or {}).values():
        if part is not None:
            yield from _modules(part)


def _parameters(model: Any) -> Iterator[Any]:
    for module in _modules(model):
        yield from (p for p in (_dict(module).get("_parameters") or {}).values() if p is not None)


def _dict(value: Any) -> dict[str, Any]:
    """Returns an object's `__dict__`; empty if it has none."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}
