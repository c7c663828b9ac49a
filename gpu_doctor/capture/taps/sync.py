"""Hears the waits of the host for the device: `.item()`, `.cpu()`, `.tolist()`, `float()`, `if`, `print`, synchronize.

Only where there is a GPU: on a CPU nothing is asynchronous and nothing is put anywhere. No wait is added; what a call
takes on a device tensor is the wait (plus a copy of a few bytes). What ends in one of these methods is heard by it:
`range(x)`, `x in y`, f-strings, `.to("cpu")` (by the tap `transfer`). Of what waits too, these are not heard:
- functions such as `torch.nonzero(x)`, `torch.where(mask)` and `torch.unique(x)`: TorchScript and Dynamo know torch's
  functions by their identity. What calls a stand-in would not compile, and Dynamo's table, made once, would keep it.
- indexing by a mask: a stand-in for `__getitem__` would cost every index into every tensor of a dataset a microsecond.
GPU: not yet run on one; tested with the `meta` device and a stand-in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from gpu_doctor.capture.eventnotes import SYNCED
from gpu_doctor.capture.patching import Seam
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.traffic import book_of
from gpu_doctor.recording.steps import SYNC

METHODS = (
    *("item", "cpu", "tolist", "numpy", "nonzero", "masked_select"),
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__"),
    *("equal", "allclose", "is_nonzero", "argwhere", "unique", "unique_consecutive", "bincount"),
)
"""Methods that need values, or a size that depends on them, on the host (torch's CUDA kernels for them, read)."""
COPIES = ("cpu", "tolist", "numpy")
"""Of them, those that bring the whole tensor to the host (its values, not a size or one number)."""


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Stand-ins for the methods that wait, and for `synchronize` of torch.cuda, its events and its streams."""
    if not scope.accelerated:
        yield
        return
    recorder, ledger, book = scope.recorder, scope.recorder.ledger, book_of(scope)
    pulse, rests = ledger.pulse, ledger.steady.rests
    ledger.sync_measured = True
    inside = False

    def wait(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside or self.device.type == "cpu" or get_ident() != recorder.thread or not ledger.started:
            return original(self, *args, **kwargs)
        inside = True
        before, begin = ledger.leaf, recorder.clock()
        try:
            ledger.leaf = SYNC
            return original(self, *args, **kwargs)
        finally:
            inside, ledger.leaf = False, before
            if not (pulse.resting and rests.has(SYNCED)):
                ledger.carve(SYNC, recorder.clock() - begin)

    def fetch(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if inside or self.device.type == "cpu" or get_ident() != recorder.thread or not ledger.started:
            return original(self, *args, **kwargs)
        result = wait(original, self, *args, **kwargs)
        book.came(self, result, recorder.clock())
        return result

    def synchronizing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != recorder.thread or not ledger.started:
                return original(*args, **kwargs)
            before, begin = ledger.leaf, recorder.clock()
            try:
                ledger.leaf = SYNC
                return original(*args, **kwargs)
            finally:
                ledger.leaf = before
                if not (pulse.resting and rests.has(SYNCED)):
                    ledger.carve(SYNC, recorder.clock() - begin)

        return synchronize

    for name in METHODS:
        call = fetch if name in COPIES else wait
        scope.patches.wrap(torch.Tensor, name, functools.partial(Seam, call=call))
    for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
        scope.patches.wrap(owner, "synchronize", synchronizing)
    yield
