"""Hears copies from the host to a device: `Tensor.to` and `Tensor.cuda`, only where there is a device to copy to.

A call that leaves the tensor where it is costs what it costs and is no transfer. Whether the source was pinned is
asked of every copy (a pointer look-up in the driver, no wait). GPU: not yet run on one; tested with the `meta` device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from gpu_doctor.taps.seam import Seam
from gpu_doctor.taps.tap import TapScope


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Stand-ins for the two methods; without an accelerator nothing is put anywhere (there is nothing to hear)."""
    if not scope.accelerated:
        yield
        return
    recorder, ledger = scope.recorder, scope.recorder.ledger
    inside = False

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
        if self.device.type == "cpu" and result.device.type != "cpu":
            took = recorder.clock() - begin
            ledger.copied(self.numel() * self.element_size(), not _pinned(self), took)
        return result

    for name in ("to", "cuda"):
        scope.patches.wrap(torch.Tensor, name, lambda original: Seam(original, copy))
    yield


def _pinned(tensor: torch.Tensor) -> bool:
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:
        return False
