"""Which lines of a training loop train nothing, read off the text: what neither the loss nor the update depends on.

From the backward pass and the optimizer one asks back through the assignments of the loop's body. A statement that
nothing of this reads, and that changes nothing in place, can go without changing what is trained: norms as numbers,
averages of weights, metrics. What the text does not tell is taken for training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from gpu_doctor.feeding_syntax import LOOPS, called, lines_of, paths_of_loops, reads, writes
from gpu_doctor.recording import LineCost

_UPDATES: Final = {"backward", "step", "zero_grad", "update", "unscale_", "scale", "train", "eval", "synchronize"}
_CLIPS: Final = ("clip_grad",)
_BLOCKS: Final = (ast.If, ast.With, ast.AsyncWith, ast.Try, *LOOPS)


def beside_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in statements of the training loop that train nothing.

    Args:
        source: the cell's text. lines: what its lines cost.
    """
    return _on_rows(source, lines, _rows(source)[0])


def needed_lines(source: str, lines: Sequence[LineCost]) -> tuple[LineCost, ...]:
    """Those of the line costs that lie in the other statements of the training loop: the loss or the update needs them.

    Args:
        source: the cell's text. lines: what its lines cost.
    """
    return _on_rows(source, lines, _rows(source)[1])


def _on_rows(source: str, lines: Sequence[LineCost], rows: frozenset[int]) -> tuple[LineCost, ...]:
    text = source.splitlines()
    return tuple(
        one
        for one in lines
        if one.line in rows and one.line <= len(text) and text[one.line - 1].strip() == one.text and not one.in_worker
    )


@lru_cache(maxsize=8)
def _rows(source: str) -> tuple[frozenset[int], frozenset[int]]:
    """Rows of the training loops' statements that train nothing, and of those that training needs."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.splitlines())
    try:
        tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset(), frozenset()
    beside: set[int] = set()
    needed: set[int] = set()
    for path in paths_of_loops(tree):
        loop = path[-1]
        own = [one for one in _parts(loop.body) if "backward" in called((one,))]
        inside = [one for one in ast.walk(loop) if isinstance(one, LOOPS) and one is not loop]
        if own and not any("backward" in called((one,)) for one in inside):
            for rows, found in zip((beside, needed), _of_body(loop.body), strict=True):
                rows |= found
    return frozenset(beside), frozenset(needed)


def _of_body(body: Sequence[ast.stmt]) -> tuple[set[int], set[int]]:
    parts = list(_parts(body))
    training = [one for one in parts if _trains(one)]
    needed = {name for one in training for name in reads(one) | _bound(one)}
    while more := [one for one in parts if one not in training and (writes(one) | _bound(one)) & needed]:
        training += more
        needed |= {name for one in more for name in reads(one)}
    rest = {row for one in parts if one not in training for row in lines_of(one)}
    return rest, {row for one in training for row in lines_of(one)} - rest


def _parts(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body; a block that holds no training at all counts as one of them."""
    for one in body:
        if isinstance(one, _BLOCKS) and any(_trains(part) for part in ast.walk(one) if isinstance(part, ast.stmt)):
            for name in ("body", "orelse", "finalbody"):
                yield from _parts(getattr(one, name, []))
            for handler in getattr(one, "handlers", []):
                yield from _parts(handler.body)
        else:
            yield one


def _bound(block: ast.stmt) -> set[str]:
    """Names that a block makes inside of itself, so that who reads them needs all of it."""
    return {name for one in ast.walk(block) if isinstance(one, ast.stmt) for name in writes(one)}


def _trains(statement: ast.stmt) -> bool:
    """An update, or anything that changes tensors in place: gradients, weights."""
    if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.FunctionDef, ast.ClassDef)):
        return True
    for one in ast.walk(statement):
        if isinstance(one, ast.Call):
            name = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
            if name in _UPDATES or name.startswith(_CLIPS) or (name.endswith("_") and not name.endswith("__")):
                return True
        if isinstance(one, (ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            held = one.value if isinstance(one, ast.Subscript) else one
            if isinstance(held, ast.Attribute) and held.attr in ("grad", "data", "lr", "param_groups"):
                return True
        if isinstance(one, ast.AugAssign) and not isinstance(one.op, ast.Add):
            return True
    return False
