"""Counts copies between host and devices for the tap `device_calls`.

A round trip is a copy to a device of a tensor that came from a device since the loop's last batch: one with the same
memory, or, since most such tensors are changed before they go back, one of the same shape that is no part of the batch.
Nothing here keeps a tensor alive.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from gpu_doctor.capture.events import CAME, COPIED, COPYING
from gpu_doctor.capture.found import Place
from gpu_doctor.recording.setup import Traffic

SMALL_BYTES: Final = 64 * 1024
"""Size below which CUDA stages a pageable copy through the command buffer, in bytes: only the call costs time."""
WIDE_BYTES: Final = 1_000_000
"""Size from which a float tensor counts as data that a narrower type could hold (images, one-hot vectors), in bytes."""
MOST_KEPT: Final = 64
"""Maximum number of tensors remembered between two batches."""
_WIDE: Final = (torch.float32, torch.float64)


class ToDevice(NamedTuple):
    """A copy from the host to a device."""

    nbytes: int
    blocking_pinned: bool
    """True if the source was pinned and the host waited all the same."""
    wide: bool
    """True if it is a large tensor of a wide float type."""
    shape: torch.Size | None
    """Shape of the tensor, None if it is a single number, whose shape says nothing."""
    address: int
    """Address of the source."""


class ToHost(NamedTuple):
    """A copy from a device to the host."""

    nbytes: int
    shape: torch.Size | None
    address: int | None
    """Address of the result on the host, None if it is not a tensor."""


def copied_to_device(source: torch.Tensor, pinned: bool, blocking: bool) -> ToDevice:
    """Describes a copy of `source` to a device; `blocking` is True if the host waits for it."""
    nbytes = source.numel() * source.element_size()
    wide = nbytes >= WIDE_BYTES and source.dtype in _WIDE
    shape = _shape(source) if source.numel() > 1 else None
    return ToDevice(nbytes, pinned and blocking, wide, shape, _address(source))


def copied_to_host(source: torch.Tensor, result: Any) -> ToHost:
    """Describes a copy of `source` to the host, which returned `result`."""
    address = _address(result) if isinstance(result, torch.Tensor) else None
    return ToHost(source.numel() * source.element_size(), _shape(source), address)


def addresses(batch: Any) -> frozenset[int]:
    """Returns the addresses of the tensors in a batch."""
    return frozenset(_addresses(batch, 2))


class CopyBook:
    """Counters of copies and round trips; a call returns them."""

    def __init__(self) -> None:
        self.to_device = self.to_host = self.small = self.blocking_pinned = self.round_trips = 0
        self.to_device_bytes = self.to_host_bytes = self.wide_bytes = 0.0
        self.round_trip_bytes = 0.0
        self.round_trip_ns = self.round_trip_copy_ns = 0
        self._began = 0
        """Start of the last copy to a device, in ns."""
        self._place: Place | None = None
        """Place of the last copy in the loop."""
        self._batch: frozenset[int] = frozenset()
        """Addresses of the tensors in the last batch."""
        self._shapes: dict[torch.Size | None, int] = {}
        """Shapes of the tensors copied to the host since the last batch, with the end of the copy in ns."""
        self._addresses: dict[int, int] = {}
        """Addresses of the same tensors, with the end of the copy in ns."""

    def __call__(self) -> Traffic:
        """Returns the counts so far."""
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

    def count(self, code: int, now: int, arg: Any, place: Place) -> None:
        """Counts an event of the training: a copy, or a batch; see `StepClock.copies`.

        Args:
            code: Code of the event.
            now: Time of the event, in ns.
            arg: Argument of the event.
            place: Place of the event in the loop.
        """
        if code == COPYING:
            self._began = now
        elif code == COPIED:
            self._to_device(arg[2], now, place)
        elif code == CAME:
            self._to_host(arg, now, place)
        else:  # a batch: its tensors are never round trips
            self._batch = arg

    def _to_device(self, copy: ToDevice, now: int, place: Place) -> None:
        """Counts a copy to a device, and a round trip if the tensor came from a device."""
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

    def _to_host(self, copy: ToHost, now: int, place: Place) -> None:
        """Counts a copy to the host, and stores the tensor's shape and address for a later round trip."""
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
        """Forgets the remembered tensors if the loop got a batch or ended a step: their memory may be reused."""
        if place != self._place:
            self._forget()
        self._place = place

    def _forget(self) -> None:
        self._shapes.clear()
        self._addresses.clear()


def _address(tensor: torch.Tensor) -> int:
    """Returns a tensor's address; 0 if it has no memory of its own (sparse, fake, on `meta`)."""
    try:
        return int(tensor.data_ptr())
    except Exception:
        return 0


def _shape(tensor: torch.Tensor) -> torch.Size | None:
    """Returns a tensor's shape; None for a nested tensor, which has none."""
    try:
        shape = tensor.shape
        hash(shape)
    except Exception:
        return None
    return shape


def _addresses(value: Any, depth: int) -> list[int]:
    """Returns the addresses of the tensors in a batch, in plain containers `depth` levels deep."""
    if isinstance(value, torch.Tensor):
        return [_address(value)]
    if depth <= 0:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [address for member in value[:16] for address in _addresses(member, depth - 1)]
    return []
