"""The iterators and the loaders that a loop pulls from, as the step clock knows them: by number, and by key.

An event carries the number of an iterator and the key of its loader. What the step clock makes of them stands here,
and whoever needs to know it asks by the loader's key.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Pulled: TypeAlias = tuple[int, str | None]
"""The number of an iterator, and the key of its loader; None where the iterator is older than the run."""
UNKNOWN: Final = "unknown"
TRAINED: Final = "training"
EVALUATED: Final = "evaluation"
MOST_SOURCES: Final = 2048
"""Iterators that are remembered: of more, the half that was not asked for longest is forgotten."""


class Loader:
    """What all iterators over one loader share."""

    __slots__ = ("delivered", "key", "passes", "role")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.delivered = 0
        """Batches that it gave to training."""
        self.passes = 0
        """Its iterators that an evaluation has taken batches from."""
        self.role = UNKNOWN
        """TRAINED once a backward or an optimizer's step followed one of its batches; else EVALUATED, or UNKNOWN."""


class Source:
    """One iterator over a loader."""

    __slots__ = ("asked_ns", "delivered", "evaluation", "learned", "loader", "number")

    def __init__(self, number: int, loader: Loader) -> None:
        self.number, self.loader = number, loader
        self.delivered = 0
        """Batches that it has given to the loop."""
        self.evaluation = False
        """The loop only evaluates with its batches."""
        self.learned = loader.role == TRAINED
        """The loop trains with its batches, or has with those of an earlier iterator over the loader."""
        self.asked_ns = 0
        """When it was last asked."""


class Sources:
    """All iterators that the loop has asked, and their loaders."""

    def __init__(self) -> None:
        self._sources: dict[int, Source] = {}
        self._loaders: dict[str, Loader] = {}
        self.roles: list[tuple[str, str]] = []
        """Loaders whose role has been found since this was last emptied: key and role."""

    def __len__(self) -> int:
        return len(self._sources)

    def of(self, pulled: Pulled, now: int) -> Source:
        """The iterator that is asked now."""
        source = self._sources.get(pulled[0])
        if source is None:
            source = self._new(*pulled)
        source.asked_ns = now
        return source

    def _new(self, number: int, key: str | None) -> Source:
        if len(self._sources) >= MOST_SOURCES:
            recent = sorted(self._sources.values(), key=lambda one: one.asked_ns)[MOST_SOURCES // 2 :]
            self._sources = {one.number: one for one in recent}
        loader = Loader(None) if key is None else self._loaders.setdefault(key, Loader(key))
        source = self._sources[number] = Source(number, loader)
        return source

    def role(self, key: str | None) -> str:
        """What the loop uses a loader for, as far as it is known."""
        loader = self._loaders.get(key) if key is not None else None
        return UNKNOWN if loader is None else loader.role

    def passes(self, key: str) -> int:
        """How many iterators over a loader were evaluated with; may be asked on any thread."""
        loader = self._loaders.get(key)
        return 0 if loader is None else loader.passes

    def delivers(self, source: Source) -> None:
        """It has given a batch."""
        source.delivered += 1
        if source.delivered == 1 and source.evaluation:
            source.loader.passes += 1

    def evaluates(self, source: Source, evaluates: bool = True) -> None:
        """The loop only evaluates with this iterator, or it does more after all."""
        if source.evaluation == evaluates:
            return
        source.evaluation = evaluates
        if source.delivered:
            source.loader.passes += 1 if evaluates else -1
        if evaluates and source.loader.role == UNKNOWN:
            self._found(source.loader, EVALUATED)

    def trains(self, source: Source) -> None:
        """The loop learns from its batches."""
        source.learned = True
        if source.evaluation:
            self.evaluates(source, False)
        if source.loader.role != TRAINED:
            self._found(source.loader, TRAINED)

    def _found(self, loader: Loader, role: str) -> None:
        loader.role = role
        if loader.key is not None:
            self.roles.append((loader.key, role))
