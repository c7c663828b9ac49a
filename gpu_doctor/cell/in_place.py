"""Finds values that the user's code changes in place, from its text: `train[i] = x`, `images.mul_(2)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu_doctor.cell.source import CellSource

Step: TypeAlias = "tuple[str, Any]"
"""A step from a value to a part of it: `(".", "data")` to an attribute, `("[]", 0)` to an item."""

_FLAGS: Final = ("requires_grad_", "share_memory_", "rename_", "retain_grad_")
"""Methods of tensors that end in `_` but leave the numbers as they are."""
_METHODS: Final = ("fill", "sort", "put", "partition", "itemset", "byteswap", "setfield")
"""Methods of arrays that change the array."""
_FUNCTIONS: Final = ("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal")
"""Functions of numpy that change their first argument."""


@dataclass(frozen=True)
class Changed:
    """A value that a line changes in place."""

    name: str
    """Name of the variable that leads to the value."""
    steps: tuple[Step, ...]
    """Attributes and items from the variable to the value."""
    what: str
    """Expression for the value as written, such as `train.images`."""
    line: int


def changed_in_place(source: CellSource) -> list[Changed]:
    """Returns the values that a cell or a function changes in place, each once, in order."""
    found: dict[str, Changed] = {}
    for value, line in _changed(source):
        steps: list[Step] = []
        at = value
        while (step := _step(at)) is not None:
            steps.insert(0, step)
            at = at.value  # type: ignore[attr-defined]
        if isinstance(at, ast.Name):
            what = ast.unparse(value)
            found.setdefault(what, Changed(at.id, tuple(steps), what, line))
    return list(found.values())


def _step(node: ast.expr) -> Step | None:
    """Returns the step of an attribute or of an item with a constant key; None for any other expression."""
    if isinstance(node, ast.Attribute):
        return ".", node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return "[]", node.slice.value
    return None


def _changed(source: CellSource) -> Iterator[tuple[ast.expr, int]]:
    """Yields the expressions whose values are changed, each with its line."""
    for node in source.walk(ast.Subscript, ast.AugAssign, ast.Call):
        if isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store):
                yield node.value, node.lineno
        elif isinstance(node, ast.AugAssign):
            if not isinstance(node.target, ast.Subscript):  # the walk visits a subscript by itself
                yield node.target, node.lineno
        elif isinstance(node, ast.Call):
            yield from ((value, node.lineno) for value in _of_call(node))


def _of_call(call: ast.Call) -> Iterator[ast.expr]:
    """Yields the expressions whose values a call changes: `out=`, the owner of a method, or the first argument."""
    yield from (word.value for word in call.keywords if word.arg == "out")
    if not isinstance(call.func, ast.Attribute):
        return
    name = call.func.attr
    if (name.endswith("_") and not name.endswith("__") and name not in _FLAGS) or name in _METHODS:
        yield call.func.value
    if name in _FUNCTIONS and call.args:
        yield call.args[0]
