"""Calls that are made for one thing after the other though none needs what another gave, read off the text.

`for env in envs: action = act(env.state)` can be one call for all; `for t in range(n): h = cell(x[t], h)` cannot, as
each call needs the one before. What the text does not tell is taken for needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from gpu_doctor.cell.statements import (
    FUNCTIONS,
    LOOPS,
    MODULES,
    differentiates,
    key,
    lines_of,
    parsed,
    reads,
    stored,
    writes,
)

_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST: Final = 200_000
"""Characters of a text that is parsed for this, at most, as for other questions about it."""
Items: TypeAlias = "ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp"


@lru_cache(maxsize=32)
def one_by_one_rows(text: str) -> dict[int, int]:
    """Rows of such calls: each row of the statement with the first row of it.

    Args:
        text: all of a file. A loop in which gradients are computed trains: its calls are none.
    """
    tree = parsed(text) if len(text) <= _LONGEST else None
    found: dict[int, int] = {}
    for loop in _loops(tree) if tree is not None else ():
        for place in _places(loop):
            if any(_independent(call, place, loop) for call in _calls(place)):
                found |= dict.fromkeys(lines_of(place), place.lineno)
    return found


def _loops(tree: ast.AST) -> Iterator[Items]:
    for one in ast.walk(tree):
        if isinstance(one, (ast.For, ast.AsyncFor, *_COMPREHENSIONS)) and not differentiates(one):
            yield one


def _places(loop: Items) -> Iterator[ast.stmt | ast.expr]:
    """Simple statements of a loop, without those of loops in it: they are asked there."""
    if isinstance(loop, _COMPREHENSIONS):
        yield from (loop.key, loop.value) if isinstance(loop, ast.DictComp) else (loop.elt,)
        return
    waiting: list[ast.stmt] = list(loop.body)
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, (ast.If, ast.With, ast.AsyncWith, ast.Try)):
            waiting = [*one.body, *getattr(one, "orelse", ()), *getattr(one, "finalbody", ()), *waiting]
        elif not isinstance(one, (*LOOPS, *FUNCTIONS, ast.ClassDef)):
            yield one


def _calls(place: ast.AST) -> Iterator[ast.Call]:
    """Calls with arguments, without those of comprehensions in it."""
    waiting = [place]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Call) and (one.args or one.keywords):
            yield one
        waiting += [child for child in ast.iter_child_nodes(one) if not isinstance(child, _COMPREHENSIONS)]


def _targets(loop: Items) -> set[str]:
    heads = [one.target for one in loop.generators] if isinstance(loop, _COMPREHENSIONS) else [loop.target]
    return {name for head in heads for name in stored(head)}


def _independent(call: ast.Call, place: ast.stmt | ast.expr, loop: Items) -> bool:
    """Whether a call takes something of the loop's own thing, and nothing that an earlier turn of the loop has left."""
    own, given = _targets(loop), [*call.args, *(one.value for one in call.keywords)]
    body: Sequence[ast.stmt] = [] if isinstance(loop, _COMPREHENSIONS) else loop.body
    needed = {name for one in given for name in reads(one)}
    inside = [one for top in body for one in ast.walk(top) if isinstance(one, ast.stmt)]
    for one in sorted((one for one in inside if one.lineno < place.lineno), key=lambda node: -node.lineno):
        if (made := _left(one, own) & needed) and not isinstance(one, ast.AugAssign):
            needed = (needed - made) | {name for child in _read(one) for name in reads(child)}
    left = {name for one in inside for name in _left(one, own)} | _moved(inside)
    left -= own
    return bool(needed & own) and not needed & left and getattr(call.func, "id", "") not in own


def _read(one: ast.stmt) -> Iterable[ast.AST]:
    """What a statement reads to make what it leaves."""
    if isinstance(one, (ast.Assign, ast.AnnAssign)):
        return [] if one.value is None else [one.value]
    return [one.iter] if isinstance(one, (ast.For, ast.AsyncFor)) else [one]


def _left(one: ast.stmt, own: set[str]) -> set[str]:
    """Names that hold something else after a statement; not those in which it fills the place of the loop's own thing,
    `actions[i] = ...`."""
    if isinstance(one, (ast.For, ast.AsyncFor)):
        return set(stored(one.target))
    if isinstance(one, (ast.With, ast.AsyncWith)):
        return {name for item in one.items if item.optional_vars is not None for name in stored(item.optional_vars)}
    targets = one.targets if isinstance(one, ast.Assign) else []
    flat = [part for target in targets for part in _parts(target)]
    filled = {key(part) for part in flat if isinstance(part, ast.Subscript) and _own_place(part.slice, own)}
    return writes(one) - (filled - {key(part) for part in flat if not isinstance(part, ast.Subscript)})


def _parts(target: ast.expr) -> list[ast.expr]:
    return [p for one in target.elts for p in _parts(one)] if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _own_place(place: ast.expr, own: set[str]) -> bool:
    parts = place.elts if isinstance(place, ast.Tuple) else [place]
    return any(isinstance(one, ast.Name) and one.id in own for one in parts)


def _moved(inside: Sequence[ast.stmt]) -> set[str]:
    """Names of objects whose methods are called, `env.step(action)`, and of what an inner loop takes them from."""
    calls = [one.func for top in inside for one in ast.walk(top) if isinstance(one, ast.Call)]
    moved = {key(one.value) for one in calls if isinstance(one, ast.Attribute)} - {"", *MODULES}
    loops = [one for one in inside if isinstance(one, (ast.For, ast.AsyncFor)) and stored(one.target) & moved]
    return moved | {name for one in loops for name in reads(one.iter)}
