"""Sets persistent workers of an earlier run aside during a trial, whose loaders start workers of their own.

Live workers have random numbers and caches that cannot be put back, and the second side of a comparison would get other
workers than the first. A loader that a trial iterates gives up its persistent iterator until the side is over.

The iterators that a side makes are shut down with it. The garbage collector would take the queues of one that a trainer
keeps apart first: its workers would never get the signal to end, and torch would wait 5 s for each.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from gpu_doctor.capture import Patches


@contextmanager
def parked(notes: list[str]) -> Iterator[None]:
    """Sets persistent iterators from before aside, and shuts down those made inside the context at its end.

    Args:
        notes: receives a sentence for each thing that could not be put back.
    """
    known: dict[int, weakref.ref[Any]] = {}  # weakly: one that is built anew each epoch must die as it does in a run
    aside: list[tuple[Any, Any]] = []
    made: list[weakref.ref[Any]] = []

    def guarded(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wraps `__iter__`: sets aside workers that a loader has from before, and records the iterator."""

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            ref = known.get(id(loader))
            if ref is None or ref() is not loader:
                known[id(loader)] = weakref.ref(loader)
                staying = vars(loader).get("_iterator")
                if staying is not None:
                    aside.append((loader, staying))
                    object.__setattr__(loader, "_iterator", None)
            iterator = original(loader)
            made.append(weakref.ref(iterator))
            return iterator

        return __iter__

    try:
        with Patches(notes) as patches:
            patches.wrap(DataLoader, "__iter__", guarded)
            yield
    finally:
        for iterator in made:
            shut_down(iterator())
        for loader, staying in aside:
            if vars(loader).get("_iterator") is not staying:
                object.__setattr__(loader, "_iterator", staying)


def shut_down(iterator: Any) -> None:
    """Stops the worker processes of a DataLoader iterator, if it has any."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()
