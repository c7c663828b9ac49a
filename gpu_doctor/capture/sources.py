"""The iterators and loaders that a loop requests batches from, as the step clock knows them.

An event carries the number of an iterator and the key of its loader. This module stores what the step clock found out
about them; other modules look a loader up by its key.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Pulled: TypeAlias = tuple[int, str | None]
"""Number of an iterator and key of its loader; the key is None if the iterator is older than the run."""
UNKNOWN: Final = "unknown"
TRAINED: Final = "training"
EVALUATED: Final = "evaluation"
MOST_SOURCES: Final = 2048
"""Most iterators that are remembered; above it, the half with the oldest requests is forgotten."""


class Loader:
    """A loader: the state that all its iterators share."""

    __slots__ = ("delivered", "key", "passes", "role")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.delivered = 0
        """Number of batches that it delivered to training."""
        self.passes = 0
        """Number of its iterators that an evaluation took batches from."""
        self.role = UNKNOWN
        """TRAINED once a backward or an optimizer's step followed one of its batches; else EVALUATED or UNKNOWN."""


class Source:
    """One iterator over a loader."""

    __slots__ = ("delivered", "evaluation", "learned", "loader", "number", "requested_ns")

    def __init__(self, number: int, loader: Loader) -> None:
        self.number, self.loader = number, loader
        self.delivered = 0
        """Number of batches that it delivered to the loop."""
        self.evaluation = False
        """True if the loop only evaluates with its batches."""
        self.learned = loader.role == TRAINED
        """True if the loop trains on its batches, or did on those of an earlier iterator over the loader."""
        self.requested_ns = 0
        """Time of the last request, in ns."""


class Sources:
    """All iterators that the loop requested batches from, and their loaders."""

    def __init__(self) -> None:
        self._sources: dict[int, Source] = {}
        self._loaders: dict[str, Loader] = {}
        self.roles: list[tuple[str, str]] = []
        """Key and role of each loader whose role was found since the list was last emptied."""

    def __len__(self) -> int:
        return len(self._sources)

    def of(self, pulled: Pulled, now: int) -> Source:
        """Returns the iterator of a request at `now` (ns)."""
        source = self._sources.get(pulled[0])
        if source is None:
            source = self._new(*pulled)
        source.requested_ns = now
        return source

    def _new(self, number: int, key: str | None) -> Source:
        """Adds an iterator, and its loader if that is new; forgets old iterators if there are too many."""
        if len(self._sources) >= MOST_SOURCES:
            recent = sorted(self._sources.values(), key=lambda known: known.requested_ns)[MOST_SOURCES // 2 :]
            self._sources = {known.number: known for known in recent}
        loader = Loader(None) if key is None else self._loaders.setdefault(key, Loader(key))
        source = self._sources[number] = Source(number, loader)
        return source

    def role(self, key: str | None) -> str:
        """Returns the role of a loader: TRAINED, EVALUATED, or UNKNOWN."""
        loader = self._loaders.get(key) if key is not None else None
        return UNKNOWN if loader is None else loader.role

    def passes(self, key: str) -> int:
        """Returns the number of evaluation passes over a loader; may be called on any thread."""
        loader = self._loaders.get(key)
        return 0 if loader is None else loader.passes

    def delivers(self, source: Source) -> None:
        """Counts a batch that an iterator delivered."""
        source.delivered += 1
        if source.delivered == 1 and source.evaluation:
            source.loader.passes += 1

    def evaluates(self, source: Source, evaluates: bool = True) -> None:
        """Records that the loop only evaluates with this iterator; False takes that back."""
        if source.evaluation == evaluates:
            return
        source.evaluation = evaluates
        if source.delivered:
            source.loader.passes += 1 if evaluates else -1
        if evaluates and source.loader.role == UNKNOWN:
            self._found(source.loader, EVALUATED)

    def trains(self, source: Source) -> None:
        """Records that the loop trains on an iterator's batches."""
        source.learned = True
        if source.evaluation:
            self.evaluates(source, False)
        if source.loader.role != TRAINED:
            self._found(source.loader, TRAINED)

    def _found(self, loader: Loader, role: str) -> None:
        """Stores the role of a loader, and reports it in `roles`."""
        loader.role = role
        if loader.key is not None:
            self.roles.append((loader.key, role))
