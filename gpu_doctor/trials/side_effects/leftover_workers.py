"""Workers that stay alive from an earlier run are left alone in a trial: its loaders start workers of their own.

Workers that live on have random numbers and caches that nobody can put back, and the second side of a comparison would
be served by others than the first. A loader that is iterated in the trial for the first time gives its staying iterator
away until the side is over.

The iterators that a side makes end with it. One that a trainer keeps would be found by the garbage collector, which
takes its queues apart first: its workers then never hear that they may end, and torch waits 5 s for each.
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
    """A loader's iterator of persistent workers from before is not used in the context; those made there end with it.

    Args:
        notes: gets a sentence for what could not be put back.
    """
    known: dict[int, weakref.ref[Any]] = {}  # weakly: one that is built anew each epoch must die as it does in a run
    aside: list[tuple[Any, Any]] = []
    made: list[weakref.ref[Any]] = []

    def guarded(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
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
        for one in made:
            shut_down(one())
        for loader, staying in aside:
            if vars(loader).get("_iterator") is not staying:
                object.__setattr__(loader, "_iterator", staying)


def shut_down(iterator: Any) -> None:
    """Stops the worker processes of a DataLoader iterator, if it has any."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()
