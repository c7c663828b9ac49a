"""A cache of values computed from recordings, because the panel needs them twice a second."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from gpu_doctor.recording import Recording

Found = TypeVar("Found")


class Remembered(Generic[Found]):
    """A cache that holds one value per recording and drops it together with the recording."""

    def __init__(self) -> None:
        """Starts an empty cache."""
        self._known: dict[int, tuple[weakref.ref[Recording], Found]] = {}

    def of(self, recording: Recording, make: Callable[[], Found]) -> Found:
        """Returns the cached value for a recording; calls `make` if there is none yet."""
        key = id(recording)
        known = self._known.get(key)
        if known is None or known[0]() is not recording:
            known = weakref.ref(recording, lambda _: self._known.pop(key, None)), make()
            self._known[key] = known
        return known[1]
