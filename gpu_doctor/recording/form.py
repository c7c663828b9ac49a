"""Converts plain values from JSON and arrays to the types that a dataclass declares, and checks their form.

Files are copied, mailed and edited. Without the check, a rule or a plot would fail on a damaged file with an error from
numpy. Texts, numbers, columns, groups and None are distinguished; an integer may stand for a float and the reverse.
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
"""Bound of the integers accepted: numpy has none so large, and raises if it gets one from Python."""


def made(kind: Any, plain: Any) -> Any:
    """Makes a dataclass, and the dataclasses inside it, from fields by name. A missing field gets its default.

    Fields that are not declared are skipped: earlier versions recorded more.

    Args:
        kind: The dataclass.
        plain: A mapping, or an instance of the dataclass, whose fields are then checked again.

    Raises:
        ValueError: If the form of a field does not fit its type; the message names the field.
        TypeError: If a field without a default is missing.
    """
    hints = _hints(kind)
    fields = {name: getattr(plain, name) for name in hints} if isinstance(plain, kind) else plain
    if not isinstance(fields, Mapping):
        raise ValueError(kind.__name__)
    declared = {name: hint for name, hint in hints.items() if name in fields}
    return kind(**{name: _value(hint, fields[name], f"{kind.__name__}.{name}") for name, hint in declared.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Returns the types of a dataclass' fields by name."""
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _value(hint: Any, plain: Any, where: str) -> Any:
    """Converts a value to the type `hint`.

    Args:
        hint: The type.
        plain: The value.
        where: Name of its field, for the error.

    Raises:
        ValueError: If the value does not fit the type.
    """
    origin, of = get_origin(hint), get_args(hint)
    # numpy 2.5 declares NDArray with a `type` statement: the alias' value is the array type.
    origin = get_origin(getattr(origin, "__value__", hint))
    if hint is Any:
        if not isinstance(plain, np.ndarray):  # a column does not belong here
            return plain
    elif origin in (types.UnionType, Union):
        for kind in of:
            with contextlib.suppress(ValueError):
                return _value(kind, plain, where)
    elif origin is np.ndarray:
        column = isinstance(plain, np.ndarray) and plain.ndim == 1 and plain.dtype == np.float64
        if column and not np.isinf(plain).any():
            return plain
    elif origin is tuple:
        kinds = of[:1] * len(plain) if of[-1] is Ellipsis and isinstance(plain, (tuple, list)) else of
        if isinstance(plain, (tuple, list)) and len(kinds) == len(plain):  # JSON turns tuples into lists
            return tuple(_value(kind, item, where) for kind, item in zip(kinds, plain, strict=True))
    elif origin is Literal:
        if plain in of:
            return plain
    elif origin is not None:
        if isinstance(plain, Mapping):  # settings may hold any literal of a cell
            each = of[-1] if of[-1] in (str, int, float) else Any
            return {name: _value(each, item, where) for name, item in plain.items()}
    elif dataclasses.is_dataclass(hint):
        return made(hint, plain)
    elif hint in (int, float, bool):
        held = isinstance(plain, (int, float)) and abs(plain) < BEYOND
        if held or (hint is float and isinstance(plain, float) and not math.isinf(plain)):  # NaN: not measured
            return plain
    elif isinstance(plain, hint):
        return plain
    raise ValueError(where)
