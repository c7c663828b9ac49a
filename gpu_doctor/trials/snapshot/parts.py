"""Reads what an object holds without running its overrides: attributes, slots, closures."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from typing import Any, Final

_PLACES: Final = tuple({sysconfig.get_paths()[place] for place in ("stdlib", "platstdlib", "purelib", "platlib")})
_METHODS: Final = (types.FunctionType, staticmethod, classmethod)


@functools.lru_cache(maxsize=4096)
def is_users(module: str) -> bool:
    """True if a module of this name is the user's code: the notebook, or a file outside the installed packages."""
    if module == "__main__":
        return True
    if module.partition(".")[0] in ("gpu_doctor", "builtins"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or "site-packages" in file or "dist-packages" in file:
        return False
    return not file.startswith(_PLACES)


def dict_of(value: Any) -> dict[str, Any]:
    """An instance's own `__dict__`, past any override; an empty dict where it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def slots_of(value: Any) -> dict[Any, Any]:
    """Member descriptor of each filled slot of an instance -> what is in it."""
    found: dict[Any, Any] = {}
    for member in slot_members(type(value)):
        try:
            found[member] = member.__get__(value)
        except AttributeError:
            continue
    return found


def slot_members(cls: type) -> tuple[Any, ...]:
    """The slots of a class and its bases."""
    return tuple(
        member
        for base in cls.__mro__
        if "__slots__" in vars(base) and is_users(base.__module__)
        for member in vars(base).values()
        if isinstance(member, types.MemberDescriptorType)
    )


def class_state(cls: type) -> dict[str, Any]:
    """Returns the attributes and methods of a class that code may rebind, without Python's own entries."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not (name.startswith("__") and name.endswith("__")) or isinstance(value, _METHODS)
    }


def behind(part: Any) -> tuple[Any, ...]:
    """Returns the functions in a property or static method; any other attribute as itself."""
    if isinstance(part, property):
        return part.fget, part.fset, part.fdel
    return (part.__func__,) if isinstance(part, (staticmethod, classmethod)) else (part,)


def contents_of(cell: types.CellType) -> tuple[Any, ...]:
    """Returns the contents of a closure's cell as a tuple of one; empty for an empty cell."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
