"""The count of copies between host and devices, written by the taps `transfer` (both ways) and `sync` (to the host).

A round trip is a copy to a device of what came from a device since the loop's last batch: the same memory, or, since
most such tensors are computed on before they go back, a tensor of the same shape that is no part of the batch.
Nothing here holds a tensor.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from gpu_doctor.capture.ledger import Ledger
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Traffic

SMALL_BYTES: Final = 64 * 1024
"""CUDA stages a pageable copy below this through the command buffer: what it costs is the call, not the bytes."""
WIDE_BYTES: Final = 1_000_000
"""A float tensor of at least this is taken for data that could travel narrower (images, one-hot vectors)."""
MOST_KEPT: Final = 64
"""Tensors remembered between two batches, in each direction."""
_WIDE: Final = (torch.float32, torch.float64)


class CopyBook:
    """Counts copies; called, it says what it has counted so far."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.to_device = self.to_host = self.small = self.blocking_pinned = self.round_trips = 0
        self.to_device_bytes = self.to_host_bytes = self.wide_bytes = 0.0
        self.round_trip_ns = 0
        self._place: tuple[Any, ...] = ()
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
        )

    def batch(self, delivered: Any) -> None:
        """A loader handed out a batch: its tensors are no round trips whatever came back before they are copied."""
        self._batch = frozenset(_addresses(delivered, 2))

    def left(self, source: torch.Tensor, pinned: bool, blocking: bool, now: int) -> None:
        """A tensor was copied from the host to a device; `now`: the clock when the call returned."""
        if self._ledger.evaluating:
            return
        nbytes = source.numel() * source.element_size()
        self.to_device += 1
        self.to_device_bytes += nbytes
        self.small += nbytes < SMALL_BYTES
        self.blocking_pinned += pinned and blocking
        if nbytes >= WIDE_BYTES and source.dtype in _WIDE:
            self.wide_bytes += nbytes
        if not self._shapes or self._moved_on():
            return
        address = _address(source)
        came = self._addresses.pop(address, None) if address else None
        shape = _shape(source)
        if came is None and source.numel() > 1 and address not in self._batch:
            came = self._shapes.get(shape)
        if came is not None:
            self._shapes.pop(shape, None)
            self.round_trips += 1
            self.round_trip_ns += now - came

    def came(self, source: torch.Tensor, result: Any, now: int) -> None:
        """A tensor was copied from a device to the host; `now`: the clock when it was there."""
        if self._ledger.evaluating:
            return
        self.to_host += 1
        self.to_host_bytes += source.numel() * source.element_size()
        if self._moved_on() or len(self._shapes) >= MOST_KEPT:
            self._shapes.clear()
            self._addresses.clear()
        shape = _shape(source)
        if shape is not None:
            self._shapes[shape] = now
        if isinstance(result, torch.Tensor):
            self._addresses[_address(result)] = now

    def _moved_on(self) -> bool:
        """Whether the loop has taken another batch, or ended a step, since the last copy to the host."""
        ledger = self._ledger
        last = ledger.last
        place = (ledger.step_count, id(last), last.delivered if last is not None else 0)
        moved, self._place = place != self._place, place
        return moved


def book_of(scope: TapScope) -> CopyBook:
    """The one book of a run, opened by whichever tap asks first."""
    book = scope.recorder.parts.get("traffic")
    if not isinstance(book, CopyBook):
        book = scope.recorder.parts["traffic"] = CopyBook(scope.recorder.ledger)
    return book


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
