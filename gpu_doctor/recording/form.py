"""Checks that values read from a file have the types that a dataclass declares.

Files are copied, mailed and edited. What is not of this form would be found out by a rule or a plot, in words about
numpy. Told apart are texts, numbers, groups and nothing: whether a number is whole is no matter for a reader.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import numpy as np

_HINTS: Final[dict[type[Any], dict[str, Any]]] = {}
"""By type: what its fields are to be."""


def check(one: Any) -> None:
    """Lets a frozen dataclass pass whose fields have the types that it declares, those of its parts too.

    Raises:
        ValueError: if it has another form; the message names the field.
    """
    for name, hint in _fields(type(one)).items():
        if not _fits(getattr(one, name), hint):
            raise ValueError(f"{type(one).__name__}.{name}")


def _fields(kind: type[Any]) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {item.name: hints[item.name] for item in dataclasses.fields(kind)}
    return _HINTS[kind]


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any or isinstance(value, np.ndarray):
        return True
    origin, of = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return any(_fits(value, one) for one in of)
    if origin is tuple:  # a list where JSON has made one
        each = of[0] if of[-1] is Ellipsis else Union[of]  # noqa: UP007
        return isinstance(value, (tuple, list)) and all(_fits(one, each) for one in value)
    if origin is not None:  # a mapping; settings may hold what any cell's literals do
        plain = of[-1] in (str, int, float)
        return isinstance(value, Mapping) and (not plain or all(_fits(one, of[-1]) for one in value.values()))
    if hint in (int, float, bool):
        return isinstance(value, (int, float))
    if not isinstance(value, hint):
        return False
    if dataclasses.is_dataclass(value):
        check(value)
    return True
