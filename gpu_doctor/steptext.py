"""What the statements of a training step do, read off their text: which train, which change an object, which only look.

What the text does not tell is taken for training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from gpu_doctor.feeding_syntax import LOOPS, key, lines_of, reads, writes

_UPDATES: Final = {"backward", "step", "zero_grad", "update", "unscale_", "scale", "train", "eval", "synchronize"}
"""`scaler.update()` is one, `metric.update(guess, y)` none."""
_CLIPS: Final = ("clip_grad",)
Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.If, ast.With, ast.AsyncWith, ast.Try, *LOOPS)


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module | None:
    """The tree of a text without its lines for IPython; None if it is no Python."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.splitlines())
    try:
        return ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError):
        return None


def name_of(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def parts_of(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body; a block that holds no training at all counts as one of them."""
    for one in body:
        if isinstance(one, _BLOCKS) and any(trains(part) for part in ast.walk(one) if isinstance(part, ast.stmt)):
            for name in ("body", "orelse", "finalbody"):
                yield from parts_of(getattr(one, name, []))
            for handler in getattr(one, "handlers", []):
                yield from parts_of(handler.body)
        else:
            yield one


def bound(block: ast.stmt) -> set[str]:
    """Names that a block makes, also inside of itself, and those of objects whose methods it calls for their effect."""
    return {name for one in ast.walk(block) if isinstance(one, ast.stmt) for name in (*writes(one), *_handled(one))}


def _handled(statement: ast.stmt) -> set[str]:
    """The object of `memory.push(state)`: what the method changes in it is not told."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return {key(call.func.value)} - {"", "self"}
    return set()


def trains(statement: ast.stmt) -> bool:
    """An update, or anything that changes tensors in place: gradients, weights."""
    if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.FunctionDef, ast.ClassDef)):
        return True
    for one in ast.walk(statement):
        if isinstance(one, ast.Call):
            name = name_of(one)
            updates = name in _UPDATES and not (name == "update" and one.args)
            if updates or name.startswith(_CLIPS) or (name.endswith("_") and not name.endswith("__")):
                return True
        if isinstance(one, (ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            held = one.value if isinstance(one, ast.Subscript) else one
            if isinstance(held, ast.Attribute) and held.attr in ("grad", "data", "lr", "param_groups"):
                return True
        if isinstance(one, ast.AugAssign) and not isinstance(one.op, ast.Add):
            return True
    return False


def unneeded(parts: Sequence[ast.stmt], sinks: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those of a body's statements on which none of the sinks depends.

    Args:
        parts: the statements, as `parts_of` gives them. sinks: those of them that are needed for what they do.
    """
    found = list(sinks)
    needed = {name for one in found for name in reads(one) | bound(one)}
    while more := [one for one in parts if one not in found and bound(one) & needed]:
        found += more
        needed |= {name for one in more for name in reads(one)}
    return [one for one in parts if one not in found]


def rows_of(statements: Sequence[ast.stmt]) -> set[int]:
    """The lines on which statements stand."""
    return {row for one in statements for row in lines_of(one)}
