"""Which names of a loop hold a batch, and which models the loop trains.

Read from the text and from the objects that the namespace holds; nothing is executed.
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
"""What is asked about a tensor and holds none of its numbers."""
_GRAPHLESS: Final = ("no_grad", "inference_mode")


def batch_names(loop: Loop, until: int) -> set[str] | None:
    """Names that hold, before a line, something of the loop's batch; None where the text does not tell."""
    if isinstance(loop, ast.While) or name_of(loop.iter) in ("range", "count"):
        return None
    found = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    statements = [one for one in ast.walk(loop) if isinstance(one, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    for one in sorted(statements, key=lambda node: node.lineno):
        if one.lineno >= until or one.value is None:
            continue
        for target, value in pairs(targets_of(one)[0], one.value):
            bound = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
            if _holds(value, found):
                found |= bound
            elif not isinstance(one, ast.AugAssign) and isinstance(target, (ast.Name, ast.Tuple, ast.List)):
                found -= bound
    return found


def _holds(value: ast.expr, names: set[str]) -> bool:
    """Whether an expression is computed of some names; their sizes are none of that."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.Attribute) and value.attr in _SIZES:
        return False
    if isinstance(value, ast.Call) and name_of(value) in (*_SIZES, *_SIZED):
        return False
    return any(
        _holds(one.value if isinstance(one, ast.keyword) else one, names)
        for one in ast.iter_child_nodes(value)
        if isinstance(one, (ast.expr, ast.keyword))
    )


def graphless(cell: CellSource, node: ast.AST) -> bool:
    """Whether a node stands under `no_grad` or `inference_mode`."""
    blocks = (one for one in cell.ancestors(node) if isinstance(one, (ast.With, ast.AsyncWith)))
    return any(name_of(item.context_expr) in _GRAPHLESS for block in blocks for item in block.items)


def trained(models: Mapping[int, Any], namespace: Mapping[str, Any]) -> set[int]:
    """Of some models those that an optimizer of the namespace updates; where none is found, that want gradients.

    Args:
        models: by their id. A part of another one of them is left out.
        namespace: in which the code runs.
    """
    parameters = {key: {id(one): one for one in _parameters(model)} for key, model in models.items()}
    wanted = {key for key, of in parameters.items() if any(one.requires_grad for one in of.values())}
    owned = {id(one) for one in _optimized(namespace)}
    updated = {key for key in wanted if owned & parameters[key].keys()} or wanted
    parts = {key: {id(one) for one in _modules(models[key])} for key in updated}
    return {key for key in updated if not any(key in of for other, of in parts.items() if other != key)}


def _optimized(namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Parameters of the optimizers that names hold, or objects and containers that names hold."""
    values = list(namespace.values())
    for value in namespace.values():
        if type(value) in (list, tuple):
            values += value
        elif not isinstance(value, (type, ModuleType)):
            values += (value if type(value) is dict else _dict(value)).values()
    for value in {id(one): one for one in values}.values():
        if is_of(type(value), ("Optimizer",), "torch.optim"):
            for group in value.param_groups:
                yield from group["params"]


def _modules(model: Any) -> Iterator[Any]:
    yield model
    for part in (_dict(model).get("_modules") or {}).values():
        if part is not None:
            yield from _modules(part)


def _parameters(model: Any) -> Iterator[Any]:
    for module in _modules(model):
        yield from (one for one in (_dict(module).get("_parameters") or {}).values() if one is not None)


def _dict(value: Any) -> dict[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}
