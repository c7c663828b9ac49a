"""How a result shows itself: `str()` and `_repr_html_` ask the words that `report` has registered for its class.

Results lie below the words that tell them, so they cannot import those. `report` is imported by name when a result is
shown for the first time: the one import of the house that points up.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_WORDS: Final[dict[type, tuple[Callable[[Any], str], Callable[[Any], str]]]] = {}


def register(kind: type, text: Callable[[Any], str], html: Callable[[Any], str]) -> None:
    """Takes the words for results of a class.

    Args:
        kind: the class.
        text: a result as plain text.
        html: a result as self-contained HTML.
    """
    _WORDS[kind] = text, html


class Shown:
    """A result that a person can print or leave as a cell's last expression."""

    __slots__ = ()

    def __str__(self) -> str:
        return _words(type(self))[0](self)

    def _repr_html_(self) -> str:
        return _words(type(self))[1](self)


def _words(kind: type) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    if kind not in _WORDS:
        import_module("gpu_doctor.report")
    return _WORDS[kind]
