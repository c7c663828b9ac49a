"""Defines the object that muted tracker functions return: it accepts every call, and sends and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

NAMED: Final = "trial"
"""Text of a name or an id of this object."""


class Nothing:
    """Inert object: its attributes, items and results are inert too; attributes that code sets are kept."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return NOTHING

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Does nothing."""
        return NOTHING

    def __getitem__(self, key: Any) -> Any:
        return NOTHING

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __str__(self) -> str:
        return NAMED

    def __fspath__(self) -> str:
        return os.devnull

    def __add__(self, other: Any) -> Any:
        return NAMED + other if isinstance(other, str) else NOTHING

    def __radd__(self, other: Any) -> Any:
        return other + NAMED if isinstance(other, str) else NOTHING

    def __int__(self) -> int:
        return 0

    __index__ = __int__


class Configured(Nothing):
    """Inert run with a configuration that loops can read back."""

    def __init__(self, config: Any) -> None:
        self.config = config


NOTHING: Final = Nothing()
