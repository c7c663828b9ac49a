"""How many batches each loader has handed to the loop, and in how many evaluation passes: all, metered or not."""

from __future__ import annotations

from gpu_doctor.capture.taps.sources import LoaderSource


class Deliveries:
    """Every iterator counts its own batches; here those that are gone are added to those that are still known."""

    def __init__(self, sources: dict[int, LoaderSource]) -> None:
        """`sources`: the iterators known, by id, of which `put` alone writes down new ones."""
        self._sources = sources
        self._gone: dict[str, tuple[int, int]] = {}

    def put(self, source: LoaderSource) -> LoaderSource:
        """A new iterator, or one that begins anew; it takes the place of one that had its id."""
        old = self._sources.get(source.iterator)
        self._sources[source.iterator] = source
        if old is not None:
            batches, passes = self._gone.get(old.key, (0, 0))
            self._gone[old.key] = batches + old.taken, passes + _is_pass(old)
        return source

    def of(self, key: str) -> tuple[int, int]:
        """Batches and evaluation passes of a loader so far; may be asked on any thread."""
        batches, passes = self._gone.get(key, (0, 0))
        there = [one for one in list(self._sources.values()) if one.key == key]
        return batches + sum(one.taken for one in there), passes + sum(map(_is_pass, there))


def _is_pass(source: LoaderSource) -> bool:
    return source.evaluation and source.taken > 0
