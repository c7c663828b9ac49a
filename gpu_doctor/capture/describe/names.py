"""Finds objects of a kind through the names of a namespace: their values, and one level of the values' attributes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

from torch import Tensor

Kind = TypeVar("Kind")
MOST_MEMBERS: Final = 32
"""Most members of a container that are examined; a longer dictionary holds data."""
HISTORY: Final = re.compile(r"_+$|_i?\d+$|_i+$|_[iod]h$")
"""IPython's names for earlier cells and their results, which may lead to models that are no longer trained."""


def named(namespace: Mapping[str, Any] | None, kind: type[Kind]) -> list[Kind]:
    """Returns every object of a kind that a name leads to, each once, in the order found.

    It examines the values, one level of their attributes, short plain containers among both, and the variables that
    functions have closed over. It checks types, since `isinstance` wakes lazy proxies.

    Args:
        namespace: the names that the loop runs with; None = none.
        kind: a class. The attributes of such an object are not examined.
    """
    found: dict[int, Kind] = {}
    for name, value in list((namespace or {}).items()):
        if HISTORY.match(name):
            continue
        members = [value] if issubclass(type(value), kind) else _members(value)
        found.update(
            (id(member), member) for member in members if issubclass(type(member), kind) and id(member) not in found
        )
    return list(found.values())


def _members(value: Any) -> Iterator[Any]:
    """Yields the attributes of a value, and the members of short containers among them."""
    for member in _attributes(value):
        yield member
        yield from _contained(member)


def _contained(value: Any) -> list[Any]:
    """Returns the members of a short plain container."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value[:MOST_MEMBERS])
    return list(value.values()) if kind is dict and len(value) <= MOST_MEMBERS else []


def _attributes(value: Any) -> list[Any]:
    """Returns one level of attributes, a container's members, or a function's closed-over variables and defaults.

    It wakes no lazy proxy.
    """
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
    """Yields the values of the variables that a function has closed over."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
