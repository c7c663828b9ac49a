"""Expressions for which the host may have to wait for the GPU though they look like any operation, read off the text.

The size of `x[mask]` or `torch.nonzero(x)` is known only when the values are: the host stands still until the GPU has
come that far. The text says that a line may wait, not that it does: whether the tensor lies on a GPU, and for how long
the host stood there, is for who has measured it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from gpu_doctor.cell.syntax import name_of, parsed, stands_at
from gpu_doctor.recording import LineCost

_ALWAYS: Final = {
    *("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"),
    *("equal", "allclose", "is_nonzero"),
}
"""Functions of torch's that need values, or a size that depends on them, on the host (its CUDA kernels, read)."""
_TRUTHS: Final = {
    *("isnan", "isfinite", "isinf", "logical_and", "logical_or", "logical_not", "logical_xor", "isin"),
    *("eq", "ne", "gt", "ge", "lt", "le", "bool"),
}
"""Functions and methods that give a tensor of truth values."""
_MASK: Final = re.compile(r"(^|_)masks?(_|$)|^(valid|keep)$")
"""Names that people give to such a tensor."""
_COMPARED: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def waiting_lines(source: str, lines: Sequence[LineCost]) -> dict[LineCost, str]:
    """Those of the line costs whose text may wait for the GPU, each with the expression that does.

    Args:
        source: the cell's text.
        lines: what lines cost; of other cells and files only the line itself is known.
    """
    rows, text = _rows(source), source.splitlines()
    found = {}
    for one in lines:
        said = rows.get(one.line) if stands_at(one, text) else _of_line(one.text)
        if said:
            found[one] = said
    return found


@lru_cache(maxsize=8)
def _rows(source: str) -> dict[int, str]:
    """Row -> the first expression on it that may wait."""
    tree = parsed(source)
    return {} if tree is None else _found(tree)


@lru_cache(maxsize=512)
def _of_line(text: str) -> str:
    """The same of a single line, which may be the head of a block or a part of a statement."""
    tree = parsed(text) or parsed(f"{text}\n    pass")
    return next(iter(_found(tree).values()), "") if tree is not None else ""


def _found(tree: ast.Module) -> dict[int, str]:
    masks = set(_masks(tree))
    filled = {id(one) for one in ast.walk(tree) if isinstance(one, ast.Assign) for one in _filled(one)}
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Call, ast.Subscript)) and id(node) not in filled and _waits(node, masks):
            found.setdefault(node.lineno, ast.unparse(node))
    return found


def _masks(tree: ast.Module) -> Iterator[str]:
    """Names that are bound to truth values, in any order of the text."""
    known: set[str] = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and _is_truth(one.value, known):
            names = {target.id for target in one.targets if isinstance(target, ast.Name)}
            known |= names
            yield from names


def _filled(assignment: ast.Assign) -> list[ast.expr]:
    """`x[mask]` of `x[mask] = 0.0`: one number is filled in where the mask is, and no size is needed for that."""
    constant = isinstance(assignment.value, (ast.Constant, ast.UnaryOp))
    return [one for one in assignment.targets if constant and isinstance(one, ast.Subscript)]


def _waits(node: ast.Call | ast.Subscript, masks: set[str]) -> bool:
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(_is_truth(one, masks) for one in parts)
    name, given = name_of(node), len(node.args)
    named = {one.arg for one in node.keywords}
    torchs = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    owner = node.func.value.id if torchs else ""  # type: ignore[attr-defined]
    if owner not in ("torch", "F", "functional"):  # a method is heard when it waits (see the tap `sync`)
        return name == "repeat_interleave" and given > 0 and _varies(node.args[0]) and "output_size" not in named
    if name == "repeat_interleave":
        return given > 1 and _varies(node.args[1]) and "output_size" not in named
    if name == "one_hot":
        return given == 1 and "num_classes" not in named
    if name == "tensor":
        return given > 0 and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Call))
    return name in _ALWAYS or (name == "where" and given == 1)


def _varies(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant)


def _is_truth(node: ast.expr, masks: set[str]) -> bool:
    """Whether an expression is a tensor of truth values, if it is a tensor: `y != -100`, `~padded`, `keep & valid`."""
    if isinstance(node, ast.Name):
        return node.id in masks or _MASK.search(node.id) is not None
    if isinstance(node, ast.Attribute):
        return _MASK.search(node.attr) is not None
    if isinstance(node, ast.Compare):
        return all(isinstance(one, _COMPARED) for one in node.ops)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_truth(node.operand, masks)
    if isinstance(node, ast.BinOp):
        both = _is_truth(node.left, masks) or _is_truth(node.right, masks)
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and both
    return isinstance(node, ast.Call) and name_of(node) in _TRUTHS
