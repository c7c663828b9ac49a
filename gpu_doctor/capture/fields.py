"""Fields of `Setup` or of `Recording` as a run finds them; a name that the class lacks is refused at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

WRITTEN_AT_CLOSE: Final = (
    *("steps", "settings", "setup", "outcome", "reason", "series", "losses", "notes", "name", "source", "started_at"),
    *("duration_s", "overhead_s"),
)
"""Fields of a recording that its recorder fills by itself."""


class Fields(MutableMapping[str, Any]):
    """Values by the names of a dataclass' fields, or functions that say the value as of now."""

    def __init__(self, of: type, others: tuple[str, ...] = ()) -> None:
        """Nothing is found yet.

        Args:
            of: the dataclass.
            others: names of its fields that somebody else fills.
        """
        self._of = of.__name__
        self._names = {one.name for one in dataclasses.fields(of)}.difference(others)
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
        """A field stays as it is now."""
        value = self._found[name]()
        self._found[name] = lambda: value

    def now(self) -> dict[str, Any]:
        """All values as of now; may be asked on any thread."""
        return {name: one() if callable(one) else one for name, one in self._found.copy().items()}
