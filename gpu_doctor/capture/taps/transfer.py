"""Hears copies between host and device: `Tensor.to`, `.cuda` and `.copy_`, only where there is a device to copy to.

A call that leaves the tensor where it is costs what it costs and is no transfer. Whether the source was pinned is
asked of every copy (a pointer look-up in the driver, no wait). What `torch.tensor(..., device=...)` copies is not
heard. GPU: not yet run on one; tested with the `meta` device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.eventnotes import COPIED, PAGED, SYNCED
from gpu_doctor.capture.patching import Seam
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.traffic import book_of
from gpu_doctor.recording.steps import SYNC, TRANSFER


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Stand-ins for the methods; without an accelerator nothing is put anywhere (there is nothing to hear)."""
    if not scope.accelerated:
        yield
        return
    recorder, ledger, book = scope.recorder, scope.recorder.ledger, book_of(scope)
    pulse, rests = ledger.pulse, ledger.steady.rests
    inside = False

    def heard(source: torch.Tensor, result: torch.Tensor, blocking: bool, begin: int) -> None:
        """Bills a call that may have copied `source` to where `result` is."""
        here, there = source.device.type == "cpu", result.device.type == "cpu"
        if here == there:
            return
        now = recorder.clock()
        if here:
            pinned = _pinned(source)
            if not (pulse.resting and rests.has(COPIED if pinned else PAGED)):
                ledger.copied(source.numel() * source.element_size(), not pinned, now - begin)
            book.left(source, pinned, blocking, now)
            return
        # As `.cpu()`, which the tap `sync` hears.
        if ledger.sync_measured and blocking and not (pulse.resting and rests.has(SYNCED)):
            ledger.carve(SYNC, now - begin)
        book.came(source, result, now)

    def phase(source: torch.Tensor, there: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """As what a call that takes `source` to a device of this type will be billed, as far as nothing goes wrong."""
        if not there:
            return ledger.leaf
        if source.device.type == "cpu":
            return TRANSFER if there != "cpu" else ledger.leaf
        return SYNC if there == "cpu" and ledger.sync_measured and not _non_blocking(args, kwargs) else ledger.leaf

    def copy(
        asked: Callable[[tuple[Any, ...], dict[str, Any]], str],
        original: Callable[..., Any],
        self: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        nonlocal inside
        if inside or get_ident() != recorder.thread or not ledger.started:
            return original(self, *args, **kwargs)
        before, leaf = ledger.leaf, phase(self, asked(args, kwargs), args, kwargs)
        inside = True
        if leaf == TRANSFER and ledger.marks is not None and _non_blocking(args, kwargs):
            ledger.copying()
        begin = recorder.clock()
        try:
            ledger.leaf = leaf
            result = original(self, *args, **kwargs)
        finally:
            inside, ledger.leaf = False, before
        if result is not self:
            heard(self, result, not _non_blocking(args, kwargs), begin)
        return result

    def copy_in(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        source = args[0] if args else kwargs.get("src")
        if not isinstance(source, torch.Tensor) or (self.device.type == "cpu") == (source.device.type == "cpu"):
            return original(self, *args, **kwargs)
        if inside or get_ident() != recorder.thread or not ledger.started:
            return original(self, *args, **kwargs)
        before, leaf = ledger.leaf, phase(source, self.device.type, args, kwargs)
        inside = True
        if leaf == TRANSFER and ledger.marks is not None and _non_blocking(args, kwargs):
            ledger.copying()
        begin = recorder.clock()
        try:
            ledger.leaf = leaf
            result = original(self, *args, **kwargs)
        finally:
            inside, ledger.leaf = False, before
        heard(source, self, not _non_blocking(args, kwargs), begin)
        return result

    def pulling(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            __tracebackhide__ = True
            batch = original(self)
            if get_ident() == recorder.thread:
                book.batch(batch)
            return batch

        return __next__

    for name, asked in (("to", _asked), ("cuda", _always)):
        scope.patches.wrap(torch.Tensor, name, functools.partial(Seam, call=functools.partial(copy, asked)))
    scope.patches.wrap(torch.Tensor, "copy_", lambda original: Seam(original, copy_in))
    scope.patches.wrap(_BaseDataLoaderIter, "__next__", pulling)
    yield


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


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """As `_asked`, of `.cuda`."""
    return "cuda"


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """As the caller asked; of the positional arguments it is the first bool in every form of these methods."""
    given = kwargs.get("non_blocking")
    if given is None:
        given = next((one for one in args if one is True or one is False), False)
    return bool(given)


def _pinned(tensor: torch.Tensor) -> bool:
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:
        return False
