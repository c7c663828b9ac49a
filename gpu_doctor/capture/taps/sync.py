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
from collections.abc import Callable
from typing import Any

import torch

from gpu_doctor.capture.events import CAME, SYNCED, WAITING
from gpu_doctor.capture.stand_ins import Seam
from gpu_doctor.capture.taps import traffic
from gpu_doctor.capture.taps.tap import TapScope

METHODS = (
    *("item", "cpu", "tolist", "numpy", "nonzero", "masked_select"),
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__"),
    *("equal", "allclose", "is_nonzero", "argwhere", "unique", "unique_consecutive", "bincount"),
)
"""Methods that need values, or a size that depends on them, on the host (torch's CUDA kernels for them, read)."""
COPIES = ("cpu", "tolist", "numpy")
"""Of them, those that bring the whole tensor to the host (its values, not a size or one number)."""


def of_current(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies on the current device: the queue of another one tells nothing of a wait for this one."""
    return tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device()


def tap(scope: TapScope) -> None:
    """Stand-ins for the methods that wait, and for `synchronize` of torch.cuda, its events and its streams."""
    if not scope.accelerated:
        return
    recorder = scope.recorder
    log, event = recorder.log, recorder.event
    around = functools.partial(recorder.fence.around_in_graphs, anyone=False)
    recorder.step_clock.sync_measured = True
    inside = False

    def begins(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        nonlocal inside
        if inside or tensor.device.type == "cpu":
            return None
        event(WAITING)
        if log.marker is not None:
            log.waits(of_current(tensor))
        inside = True
        return tensor

    def ends(tensor: torch.Tensor, result: Any) -> None:
        nonlocal inside
        inside = False
        log.waited()
        event(SYNCED)

    def fetched(tensor: torch.Tensor, result: Any) -> None:
        ends(tensor, result)
        event(CAME, traffic.came(tensor, result))

    def asks(*awaited: Any, **kwargs: Any) -> bool:
        event(WAITING)
        log.waits(not awaited and not kwargs)  # else for an event, a stream, or maybe for another device
        return True

    def synchronized(token: bool, result: Any) -> None:
        log.waited()
        event(SYNCED)

    def standing_in(original: Callable[..., Any], name: str) -> Seam:
        after = fetched if name in COPIES else ends
        return Seam(original, around(original, begins, after, lambda tensor, error: ends(tensor, None)))

    for name in METHODS:
        scope.patches.wrap(torch.Tensor, name, functools.partial(standing_in, name=name))
    for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
        scope.patches.wrap(owner, "synchronize", lambda original: around(original, asks, synchronized))
