"""The count of copies between host and devices, written by the tap `device_calls`.

A round trip is a copy to a device of what came from a device since the loop's last batch: the same memory, or, since
most such tensors are computed on before they go back, a tensor of the same shape that is no part of the batch.
Nothing here holds a tensor.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from gpu_doctor.capture.events import CAME, COPIED, COPYING
from gpu_doctor.capture.found import Place
from gpu_doctor.recording.setup import Traffic

SMALL_BYTES: Final = 64 * 1024
"""CUDA stages a pageable copy below this through the command buffer: what it costs is the call, not the bytes."""
WIDE_BYTES: Final = 1_000_000
"""A float tensor of at least this is taken for data that could travel narrower (images, one-hot vectors)."""
MOST_KEPT: Final = 64
"""Tensors remembered between two batches, in each direction."""
_WIDE: Final = (torch.float32, torch.float64)


class Left(NamedTuple):
    """A copy to a device."""

    nbytes: int
    blocking_pinned: bool
    wide: bool
    shape: torch.Size | None
    """None where the tensor is one number, whose shape says nothing."""
    address: int


class Came(NamedTuple):
    """A copy to the host."""

    nbytes: int
    shape: torch.Size | None
    address: int | None
    """Where it lies there, None where it is no tensor any more."""


def left(source: torch.Tensor, pinned: bool, blocking: bool) -> Left:
    """What is to be known of a copy of `source` to a device."""
    nbytes = source.numel() * source.element_size()
    wide = nbytes >= WIDE_BYTES and source.dtype in _WIDE
    shape = _shape(source) if source.numel() > 1 else None
    return Left(nbytes, pinned and blocking, wide, shape, _address(source))


def came(source: torch.Tensor, result: Any) -> Came:
    """What is to be known of a copy of `source` to the host."""
    address = _address(result) if isinstance(result, torch.Tensor) else None
    return Came(source.numel() * source.element_size(), _shape(source), address)


def addresses(batch: Any) -> frozenset[int]:
    """Where the tensors of a batch lie."""
    return frozenset(_addresses(batch, 2))


class CopyBook:
    """Counts copies; called, it says what it has counted so far."""

    def __init__(self) -> None:
        self.to_device = self.to_host = self.small = self.blocking_pinned = self.round_trips = 0
        self.to_device_bytes = self.to_host_bytes = self.wide_bytes = 0.0
        self.round_trip_bytes = 0.0
        self.round_trip_ns = self.round_trip_copy_ns = 0
        self._began = 0
        """When the last copy to a device did (ns)."""
        self._place: Place | None = None
        self._batch: frozenset[int] = frozenset()
        # what came to the host since the last batch: shape and address -> when it was there (ns)
        self._shapes: dict[torch.Size | None, int] = {}
        self._addresses: dict[int, int] = {}

    def __call__(self) -> Traffic:
        """The counts as they are."""
        return Traffic(
            to_device=self.to_device,
            to_device_bytes=self.to_device_bytes,
            small=self.small,
            blocking_pinned=self.blocking_pinned,
            to_host=self.to_host,
            to_host_bytes=self.to_host_bytes,
            round_trips=self.round_trips,
            wide_bytes=self.wide_bytes,
            round_trip_s=self.round_trip_ns * 1e-9,
            round_trip_bytes=self.round_trip_bytes,
            round_trip_copy_s=self.round_trip_copy_ns * 1e-9,
        )

    def heard(self, code: int, now: int, arg: Any, place: Place) -> None:
        """A copy, or a batch, of the loop's training; see `StepClock.copies`."""
        if code == COPYING:
            self._began = now
        elif code == COPIED:
            self._left(arg[2], now, place)
        elif code == CAME:
            self._came(arg, now, place)
        else:  # its tensors are no round trips whatever came back before they are copied
            self._batch = arg

    def _left(self, copy: Left, now: int, place: Place) -> None:
        self.to_device += 1
        self.to_device_bytes += copy.nbytes
        self.small += copy.nbytes < SMALL_BYTES
        self.blocking_pinned += copy.blocking_pinned
        if copy.wide:
            self.wide_bytes += copy.nbytes
        self._forget_after(place)
        if not self._shapes:
            return
        at = self._addresses.pop(copy.address, None) if copy.address else None
        if at is None and copy.shape is not None and copy.address not in self._batch:
            at = self._shapes.get(copy.shape)
        if at is not None:
            self._shapes.pop(copy.shape, None)
            self.round_trips += 1
            self.round_trip_bytes += copy.nbytes
            self.round_trip_ns += now - at
            self.round_trip_copy_ns += now - max(at, self._began)

    def _came(self, copy: Came, now: int, place: Place) -> None:
        self.to_host += 1
        self.to_host_bytes += copy.nbytes
        self._forget_after(place)
        if len(self._shapes) >= MOST_KEPT:
            self._forget()
        if copy.shape is not None:
            self._shapes[copy.shape] = now
        if copy.address is not None:
            self._addresses[copy.address] = now

    def _forget_after(self, place: Place) -> None:
        """Forgets what came before the loop took another batch or ended a step: its memory may be used anew."""
        if place != self._place:
            self._forget()
        self._place = place

    def _forget(self) -> None:
        self._shapes.clear()
        self._addresses.clear()


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor begins; 0 for one that has no memory of its own to point to (sparse, fake, on `meta`)."""
    try:
        return int(tensor.data_ptr())
    except Exception:
        return 0


def _shape(tensor: torch.Tensor) -> torch.Size | None:
    """What a round trip is known by; None for a nested tensor, which has none."""
    try:
        shape = tensor.shape
        hash(shape)
    except Exception:
        return None
    return shape


def _addresses(value: Any, depth: int) -> list[int]:
    """Where the tensors of a batch lie: those in plain containers, to a small depth."""
    if isinstance(value, torch.Tensor):
        return [_address(value)]
    if depth <= 0:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [address for one in value[:16] for address in _addresses(one, depth - 1)]
    return []
