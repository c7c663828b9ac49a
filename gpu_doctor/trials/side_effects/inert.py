"""Stands for a tracker's run, writer or logger that a trial made: takes every call, sends and writes nothing.

It stays that after the trial, wherever somebody has kept it. What loops read of such an object has a value: its folder,
its name, the configuration that it was given.
"""

from __future__ import annotations

import argparse
import os
import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

NAMED: Final = "trial"
"""What a name or an id reads as, where the cell gave none."""
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Later:
    """A value that is made when it is first read."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class Nothing:
    """What every attribute, item and result of it is, down to any depth.

    In a class that `inert` makes, its methods hide what the tracker's class has. Attributes that were set stay, and so
    do the methods of a class of the user's that derives from it.
    """

    __shows__: tuple[str, ...] = ()
    """Methods that are left as they are; a class that has it as its own is where the hiding begins."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            return object.__getattribute__(self, name)
        own = object.__getattribute__(self, "__dict__")
        if name in own:
            if isinstance(own[name], Later):
                own[name] = own[name].make()
            return own[name]
        cls = type(self)
        if name in cls.__shows__ or _is_plain(cls, name) or _is_users(cls, name):
            return object.__getattribute__(self, name)
        return NOTHING

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "__dict__")[name] = value

    def __delattr__(self, name: str) -> None:
        object.__getattribute__(self, "__dict__").pop(name, None)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Does nothing."""
        return NOTHING

    def __getitem__(self, key: Any) -> Any:
        return NOTHING

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __delitem__(self, key: Any) -> None:
        return None

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __await__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __add__(self, other: Any) -> Any:
        return NAMED + other if isinstance(other, str) else NOTHING

    def __radd__(self, other: Any) -> Any:
        return other + NAMED if isinstance(other, str) else NOTHING

    def __iadd__(self, other: Any) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return NOTHING

    __rsub__ = __mul__ = __rmul__ = __truediv__ = __sub__

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __float__(self) -> float:
        return 0.0

    def __str__(self) -> str:
        return NAMED

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a trial, which reports nothing>"

    def __format__(self, spec: str) -> str:
        return NAMED

    def __fspath__(self) -> str:
        return os.devnull

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __del__(self) -> None:
        return None


NOTHING: Final = Nothing()


class Values(dict[str, Any]):
    """A configuration, read and written by item and by attribute, as trackers have it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"The configuration has no {name!r}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, *given: Any, allow_val_change: bool | None = None, **named: Any) -> None:
        """Sets some of them."""
        for one in given:
            super().update(as_mapping(one))
        super().update(named)

    def setdefaults(self, given: Any) -> None:
        """Sets those that are not there."""
        super().update({name: value for name, value in as_mapping(given).items() if name not in self})

    def as_dict(self) -> dict[str, Any]:
        """A plain copy."""
        return dict(self)

    def set(self, name: str, value: Any) -> None:
        """Sets one."""
        self[name] = value


def as_mapping(given: Any) -> dict[str, Any]:
    """Names and values of whatever a configuration is given as: a mapping, parsed arguments, an object; else none."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, (argparse.Namespace, types.SimpleNamespace)) or hasattr(given, "__dataclass_fields__"):
        return dict(vars(given))
    keys = getattr(given, "keys", None)
    return {key: given[key] for key in keys()} if callable(keys) and not isinstance(given, type) else {}


def made_inert(value: Any, hides: type, shown: tuple[str, ...] = (), passes: Mapping[str, str] = _NONE) -> None:
    """Lets an object, whose own making was left out, report nothing for good.

    Args:
        value: of a tracker's class or of one of the user's that derives from it.
        hides: the tracker's class.
        shown: methods that are left as they are.
        passes: methods that hand their first argument back -> its name.
    """
    cls = type(value)
    if not hasattr(cls, "__shows__"):
        base = inert(hides, shown, passes)
        value.__class__ = base if cls is hides else types.new_class(cls.__name__, (cls, base), {}, _named(cls))


def inert(cls: type, shown: tuple[str, ...] = (), passes: Mapping[str, str] = _NONE) -> type:
    """A class like a tracker's whose objects report nothing; they still count as instances of it.

    It derives from that class alone: so its objects have the same form, and one of that class can become one of it.
    """
    body: dict[str, Any] = {
        name: value for name, value in vars(Nothing).items() if isinstance(value, types.FunctionType)
    }
    body.update({name: _passing(argument) for name, argument in passes.items()})
    return types.new_class(cls.__name__, (cls,), {}, _named(cls, {**body, "__shows__": (*shown, *passes)}))


def _passing(argument: str) -> Callable[..., Any]:
    return lambda value, *args, **named: args[0] if args else named.get(argument)


def _named(cls: type, body: Mapping[str, Any] = _NONE) -> Callable[[dict[str, Any]], None]:
    own = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return lambda space: space.update(own, **body)


def _is_users(cls: type, name: str) -> bool:
    """Whether a class has the name from one that derives from the tracker's."""
    ours = next(number for number, one in enumerate(cls.__mro__) if "__shows__" in vars(one))
    return any(name in vars(one) for one in cls.__mro__[:ours])


def _is_plain(cls: type, name: str) -> bool:
    """Whether a class has a value under the name that is neither a function nor computed."""
    found = next((vars(one)[name] for one in cls.__mro__ if name in vars(one)), None)
    return isinstance(found, (str, int, float, bool, tuple))
