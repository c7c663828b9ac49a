"""Bytes that our own copies take on each device: no memory of the user's program, and so none of its readings.

A trial keeps the state of the training on the card where there is room. It is told here, and taken off where memory is
read; this module needs no torch, as the readers do not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

_lock = threading.Lock()
_held: weakref.WeakKeyDictionary[object, Mapping[int, int]] = weakref.WeakKeyDictionary()


def hold(owner: object, by_device: Mapping[int, int]) -> None:
    """Notes down that `owner` has copies, bytes by number of the device, for as long as it lives."""
    with _lock:
        _held[owner] = by_device


def held_bytes(device: int) -> int:
    """What all copies together take on a device; may be asked on any thread."""
    with _lock:
        return sum(one.get(device, 0) for one in list(_held.values()))
