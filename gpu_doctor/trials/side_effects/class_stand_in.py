"""Replaces a class written in C for a while by a stand-in that sees every construction of an instance."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

Around: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Wraps a function: the wrapper runs first."""


def class_stand_in(original: Any, around: Around) -> Any:
    """Returns a stand-in class whose instances, `isinstance` and subclasses are the original's.

    Args:
        original: class to stand for.
        around: wraps the construction of an instance; it gets the arguments of the class.
    """

    class _Meta(ABCMeta):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original) if cls is stand_in else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original) if cls is stand_in else super().__subclasscheck__(subclass)

    def new(cls: Any, *args: Any, **named: Any) -> Any:
        return around(original)(*args, **named) if cls is stand_in else original.__new__(cls, *args, **named)

    def start(self: Any, *args: Any, **named: Any) -> None:
        around(partial(original.__init__, self))(*args, **named)

    about = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    stand_in = _Meta(original.__name__, (original,), {**about, "__new__": new, "__init__": start})
    return stand_in
