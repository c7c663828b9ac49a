"""Collects the fields of `Setup` or `Recording` during a run; a name that the class lacks is refused at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

WRITTEN_AT_CLOSE: Final = (
    *("steps", "settings", "setup", "outcome", "reason", "series", "losses", "notes", "name", "source", "started_at"),
    *("duration_s", "overhead_s"),
)
"""Fields of a recording that the recorder fills itself."""


class Fields(MutableMapping[str, Any]):
    """Maps names of a dataclass' fields to values, or to functions that return the present value."""

    def __init__(self, of: type, others: tuple[str, ...] = ()) -> None:
        """Starts empty.

        Args:
            of: the dataclass.
            others: names of its fields that are filled elsewhere, and refused here.
        """
        self._of = of.__name__
        self._names = {field.name for field in dataclasses.fields(of)}.difference(others)
        self._found: dict[str, Any] = {}

    def __setitem__(self, name: str, found: Any) -> None:
        if name not in self._names:
            raise KeyError(f"{self._of} has no field {name!r} to be filled here")
        self._found[name] = found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def freeze(self, name: str) -> None:
        """Replaces a field's function by the value that it returns now."""
        value = self._found[name]()
        self._found[name] = lambda: value

    def now(self) -> dict[str, Any]:
        """Returns the present values of all fields; may be called on any thread."""
        return {name: value() if callable(value) else value for name, value in self._found.copy().items()}
