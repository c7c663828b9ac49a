"""Iterators over loaders, as events carry them."""

from __future__ import annotations

from itertools import count

from gpu_doctor.capture.sources import Pulled, Sources

_numbers = count(1)


def iterator(loader: str | None = None) -> Pulled:
    """Another iterator over the loader of this key, or over one that nothing else is known of."""
    return next(_numbers), loader


def only_evaluated(sources: Sources, *iterators: Pulled) -> None:
    """These iterators are an evaluation's."""
    for one in iterators:
        sources.evaluates(sources.of(one, 0))
