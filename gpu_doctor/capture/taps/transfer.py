"""Hears copies between host and device: `Tensor.to`, `.cuda` and `.copy_`, only where there is a device to copy to.

A call that leaves the tensor where it is costs what it costs and is no transfer. Whether the source was pinned is
asked of every copy (a pointer look-up in the driver, no wait). What `torch.tensor(..., device=...)` copies is not
heard. GPU: not yet run on one; tested with the `meta` device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.events import BATCH_AT, CAME, COPIED, COPYING, SYNCED, WAITING
from gpu_doctor.capture.stand_ins import Seam
from gpu_doctor.capture.taps import traffic
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cuda_available


class Copy(NamedTuple):
    """A call that may copy a tensor."""

    source: torch.Tensor
    blocking: bool
    phase: int
    """The event that its begin was noted as: COPYING or WAITING; 0 = none."""


def tap(scope: TapScope) -> None:
    """Stand-ins for the methods; without an accelerator nothing is put anywhere (there is nothing to hear)."""
    if not scope.accelerated:
        return
    recorder, book = scope.recorder, traffic.CopyBook()
    recorder.parts["traffic"] = book
    recorder.listeners.hear_copies(book.heard)
    log, around, event = recorder.log, recorder.fence.around_in_graphs, recorder.event
    inside = False

    def begins(source: torch.Tensor, there: str, blocking: bool) -> Copy:
        """A call that takes `source` to a device of this type; empty = to none that it is asked for."""
        nonlocal inside
        phase = 0
        if there and (here := source.device.type) != there:
            if here == "cpu":
                phase = COPYING
            elif there == "cpu" and blocking and recorder.step_clock.sync_measured:
                phase = WAITING  # as `.cpu()`, which the tap `sync` hears
        if phase:
            event(phase)
            log.mark(phase)
        inside = True
        return Copy(source, blocking, phase)

    def ends(copy: Copy, result: torch.Tensor | None) -> None:
        """The call has returned, None = it raised."""
        nonlocal inside
        inside = False
        source, left, here, moved = copy.source, None, False, False
        if result is not None and result is not source:
            here = source.device.type == "cpu"
            moved = here != (result.device.type == "cpu")
        if moved and here:
            if copy.phase != COPYING:
                event(COPYING)
            pinned = _pinned(source)
            left = source.numel() * source.element_size(), not pinned, traffic.left(source, pinned, copy.blocking)
        if copy.phase == COPYING or left is not None:
            log.mark(COPIED)
            event(COPIED, left)
        elif copy.phase == WAITING:
            log.mark(SYNCED)
            event(SYNCED)
        if moved and not here:
            event(CAME, traffic.came(source, result))

    def raised(copy: Copy, error: BaseException) -> None:
        ends(copy, None)

    def copies(asked: Callable[[tuple[Any, ...], dict[str, Any]], str], original: Callable[..., Any]) -> Seam:
        """Of a method that returns the copy."""

        def before(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Copy | None:
            if inside:
                return None
            return begins(tensor, asked(args, kwargs), not _non_blocking(args, kwargs))

        return Seam(original, around(original, before, ends, raised, anyone=False))

    def copies_in(original: Callable[..., Any]) -> Seam:
        """Of `copy_`, which returns what it was called on."""

        def before(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Copy | None:
            source = args[0] if args else kwargs.get("src")
            if inside or not isinstance(source, torch.Tensor):
                return None
            if (source.device.type == "cpu") == (tensor.device.type == "cpu"):
                return None
            return begins(source, tensor.device.type, not _non_blocking(args, kwargs))

        return Seam(original, around(original, before, ends, raised, anyone=False))

    def pulling(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answered(token: bool, batch: Any) -> None:
            if get_ident() == log.thread:
                event(BATCH_AT, traffic.addresses(batch))

        return around(original, lambda iterator: True, answered, lambda token, error: None)

    for name, asked in (("to", _asked), ("cuda", lambda args, kwargs: "cuda")):
        scope.patches.wrap(torch.Tensor, name, functools.partial(copies, asked))
    scope.patches.wrap(torch.Tensor, "copy_", copies_in)
    scope.patches.wrap(_BaseDataLoaderIter, "__next__", pulling)


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Type of the device that `.to` is asked for, with or without a name; empty where it is asked for none."""
    given = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if given is None or isinstance(given, torch.dtype):
        return ""
    if isinstance(given, torch.device):
        return given.type
    if isinstance(given, str):
        return given.partition(":")[0]
    if isinstance(given, int):  # the number of a device is one of an accelerator
        return "cuda"
    return given.device.type if isinstance(given, torch.Tensor) else ""


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """As the caller asked; of the positional arguments it is the first bool in every form of these methods."""
    given = kwargs.get("non_blocking")
    if given is None:
        given = next((one for one in args if one is True or one is False), False)
    return bool(given)


def _pinned(tensor: torch.Tensor) -> bool:
    if cuda_available() is None:  # to ask would initialise CUDA, as after a copy to `meta`
        return False
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:
        return False
