"""How many batches each loader has handed to the loop, and in how many evaluation passes: all, metered or not."""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.capture.taps.sources import LoaderSource


class Deliveries:
    """Every iterator counts its own batches; here those that are gone are added to those that are still known."""

    def __init__(self, sources: dict[int, LoaderSource], passes: Callable[[str], int]) -> None:
        """Nothing is known yet.

        Args:
            sources: the iterators known, by id, of which `put` alone writes down new ones.
            passes: says in how many evaluation passes a loader has given batches.
        """
        self._sources, self._passes = sources, passes
        self._gone: dict[str, int] = {}

    def put(self, source: LoaderSource) -> LoaderSource:
        """A new iterator, or one that begins anew; it takes the place of one that had its id."""
        old = self._sources.get(source.iterator)
        self._sources[source.iterator] = source
        if old is not None:
            self._gone[old.key] = self._gone.get(old.key, 0) + old.taken
        return source

    def of(self, key: str) -> tuple[int, int]:
        """Batches and evaluation passes of a loader so far; may be asked on any thread."""
        there = sum(one.taken for one in list(self._sources.values()) if one.key == key)
        return self._gone.get(key, 0) + there, self._passes(key)
