"""Makes values of the types that a dataclass declares out of what JSON and arrays have left of them.

Files are copied, mailed and edited. What is not of this form would be found out by a rule or a plot, in words about
numpy. Told apart are texts, numbers, columns, groups and nothing: whether a number is whole is no matter for a reader.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

BEYOND: Final = 2**63
"""No integer of numpy's is so large, and numpy raises where it meets one of Python's that is."""


def made(kind: Any, plain: Any) -> Any:
    """A dataclass out of its fields by name, those of its parts too; one that is left out has its default.

    Fields that are not declared are skipped: earlier versions recorded more.

    Args:
        kind: the dataclass.
        plain: a mapping, or one of the kind, whose fields are then judged again.

    Raises:
        ValueError: if a field has another form than its type; the message names it.
        TypeError: if one is missing that has no default.
    """
    hints = _hints(kind)
    fields = {name: getattr(plain, name) for name in hints} if isinstance(plain, kind) else plain
    if not isinstance(fields, Mapping):
        raise ValueError(kind.__name__)
    declared = {name: hint for name, hint in hints.items() if name in fields}
    return kind(**{name: _value(hint, fields[name], f"{kind.__name__}.{name}") for name, hint in declared.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """What the fields of a dataclass are to be."""
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _value(hint: Any, plain: Any, where: str) -> Any:
    """A value as its type says; `where` names its field."""
    origin, of = get_origin(hint), get_args(hint)
    # numpy 2.5 declares NDArray by a `type` statement: behind the alias stands the array.
    origin = get_origin(getattr(origin, "__value__", hint))
    if hint is Any:
        if not isinstance(plain, np.ndarray):  # a column where none belongs
            return plain
    elif origin in (types.UnionType, Union):
        for one in of:
            with contextlib.suppress(ValueError):
                return _value(one, plain, where)
    elif origin is np.ndarray:
        column = isinstance(plain, np.ndarray) and plain.ndim == 1 and plain.dtype == np.float64
        if column and not np.isinf(plain).any():
            return plain
    elif origin is tuple:
        kinds = of[:1] * len(plain) if of[-1] is Ellipsis and isinstance(plain, (tuple, list)) else of
        if isinstance(plain, (tuple, list)) and len(kinds) == len(plain):  # a list where JSON has made one
            return tuple(_value(kind, one, where) for kind, one in zip(kinds, plain, strict=True))
    elif origin is Literal:
        if plain in of:
            return plain
    elif origin is not None:
        if isinstance(plain, Mapping):  # settings may hold what any cell's literals do
            each = of[-1] if of[-1] in (str, int, float) else Any
            return {name: _value(each, one, where) for name, one in plain.items()}
    elif dataclasses.is_dataclass(hint):
        return made(hint, plain)
    elif hint in (int, float, bool):
        held = isinstance(plain, (int, float)) and abs(plain) < BEYOND
        if held or (hint is float and isinstance(plain, float) and not math.isinf(plain)):  # NaN: not measured
            return plain
    elif isinstance(plain, hint):
        return plain
    raise ValueError(where)
