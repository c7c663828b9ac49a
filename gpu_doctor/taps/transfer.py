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

from gpu_doctor.phases import SYNC
from gpu_doctor.seam import Seam
from gpu_doctor.taps.tap import TapScope
from gpu_doctor.taps.traffic import book_of


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Stand-ins for the methods; without an accelerator nothing is put anywhere (there is nothing to hear)."""
    if not scope.accelerated:
        yield
        return
    recorder, ledger, book = scope.recorder, scope.recorder.ledger, book_of(scope)
    inside = False

    def heard(source: torch.Tensor, result: torch.Tensor, blocking: bool, begin: int) -> None:
        """Bills a call that may have copied `source` to where `result` is."""
        here, there = source.device.type == "cpu", result.device.type == "cpu"
        if here == there:
            return
        now = recorder.clock()
        if here:
            pinned = _pinned(source)
            ledger.copied(source.numel() * source.element_size(), not pinned, now - begin)
            book.left(source, pinned, blocking, now)
            return
        if ledger.sync_measured and blocking:  # as `.cpu()`, which the tap `sync` hears
            ledger.carve(SYNC, now - begin)
        book.came(source, result, now)

    def copy(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside or get_ident() != recorder.thread or not ledger.started:
            return original(self, *args, **kwargs)
        inside = True
        begin = recorder.clock()
        try:
            result = original(self, *args, **kwargs)
        finally:
            inside = False
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
        inside = True
        begin = recorder.clock()
        try:
            result = original(self, *args, **kwargs)
        finally:
            inside = False
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

    for name in ("to", "cuda"):
        scope.patches.wrap(torch.Tensor, name, lambda original: Seam(original, copy))
    scope.patches.wrap(torch.Tensor, "copy_", lambda original: Seam(original, copy_in))
    scope.patches.wrap(_BaseDataLoaderIter, "__next__", pulling)
    yield


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
