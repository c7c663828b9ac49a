"""Counts the batches that each loader has delivered to the loop, whether their fetches were timed or not."""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.capture.taps.sources import LoaderSource


class Deliveries:
    """Batches delivered by each loader: the sum over its iterators, those already replaced included."""

    def __init__(self, sources: dict[int, LoaderSource], passes: Callable[[str], int]) -> None:
        """Begins without batches.

        Args:
            sources: The known iterators by id; only `put` adds new ones.
            passes: Returns the number of evaluation passes over a loader.
        """
        self._sources, self._passes = sources, passes
        self._gone: dict[str, int] = {}
        """Batches of iterators that were replaced, by loader."""

    def put(self, source: LoaderSource) -> LoaderSource:
        """Adds an iterator that is new or starts again, and stores the count of an earlier one with the same id."""
        old = self._sources.get(source.iterator)
        self._sources[source.iterator] = source
        if old is not None:
            self._gone[old.key] = self._gone.get(old.key, 0) + old.taken
        return source

    def of(self, key: str) -> tuple[int, int]:
        """Returns the batches and the evaluation passes of a loader so far; for any thread."""
        current = sum(source.taken for source in list(self._sources.values()) if source.key == key)
        return self._gone.get(key, 0) + current, self._passes(key)
