"""What is worked out once of a recording, and forgotten with it: the panel asks twice a second."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from gpu_doctor.recording import Recording

Found = TypeVar("Found")


class Remembered(Generic[Found]):
    """One thing of each recording that lives."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[int, tuple[weakref.ref[Recording], Found]] = {}

    def of(self, recording: Recording, make: Callable[[], Found]) -> Found:
        """What `make` gave for this recording when it was asked for first."""
        key = id(recording)
        known = self._known.get(key)
        if known is None or known[0]() is not recording:
            known = weakref.ref(recording, lambda _: self._known.pop(key, None)), make()
            self._known[key] = known
        return known[1]
