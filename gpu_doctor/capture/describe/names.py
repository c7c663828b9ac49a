"""Objects of a kind to which the names of a namespace lead: their values, and one level of what these hold."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

from torch import Tensor

Kind = TypeVar("Kind")
MOST_MEMBERS: Final = 32
"""Of a container that are looked at; a longer dictionary holds data."""
HISTORY: Final = re.compile(r"_+$|_i?\d+$|_i+$|_[iod]h$")
"""IPython's names for earlier cells and their results: they would bring back models that nobody trains any more."""


def named(namespace: Mapping[str, Any] | None, kind: type[Kind]) -> list[Kind]:
    """Every object of a kind that a name leads to, each once, in the order found.

    Looks at the values, at one level of their attributes, into short plain containers among both, and at what functions
    have closed over. The type is asked, since `isinstance` wakes lazy proxies.

    Args:
        namespace: the names that the loop runs with; None = none.
        kind: a class. What such an object holds itself is not looked at.
    """
    found: dict[int, Kind] = {}
    for name, value in list((namespace or {}).items()):
        if HISTORY.match(name):
            continue
        held = [value] if issubclass(type(value), kind) else _held(value)
        found.update((id(one), one) for one in held if issubclass(type(one), kind) and id(one) not in found)
    return list(found.values())


def _held(value: Any) -> Iterator[Any]:
    for member in _attributes(value):
        yield member
        yield from _contained(member)


def _contained(value: Any) -> list[Any]:
    """The members of a short plain container."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value[:MOST_MEMBERS])
    return list(value.values()) if kind is dict and len(value) <= MOST_MEMBERS else []


def _attributes(value: Any) -> list[Any]:
    """One level of attributes, a container's members, or what a function has closed over; wakes no lazy proxy."""
    kind = type(value)
    if kind in (list, tuple, dict):
        return _contained(value)
    if kind is FunctionType:
        return [*_closed_over(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if kind is MethodType:
        return [value.__self__]
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind.__module__ == "builtins" or kind.__dictoffset__ == 0 or issubclass(kind, (type, Tensor)):
        return []
    try:
        return list(object.__getattribute__(value, "__dict__").values())
    except Exception:
        return []


def _closed_over(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
