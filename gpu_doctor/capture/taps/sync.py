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

from gpu_doctor.capture.events import CAME, DONE, PHASE, SYNCED, WAITING
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.stand_ins import Seam
from gpu_doctor.capture.taps import traffic
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import OPTIMIZER

METHODS = (
    *("item", "cpu", "tolist", "numpy", "nonzero", "masked_select"),
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__"),
    *("equal", "allclose", "is_nonzero", "argwhere", "unique", "unique_consecutive", "bincount"),
)
"""Methods that need values, or a size that depends on them, on the host (torch's CUDA kernels for them, read)."""
COPIES = ("cpu", "tolist", "numpy")
"""Of them, those that bring the whole tensor to the host (its values, not a size or one number)."""
LIBRARY = ((torch.amp.GradScaler, "step"), (torch.nn.utils.clip_grad, "_get_total_norm"))
"""Calls that wait for the device by themselves: a scaler asks whether all gradients are finite. Nobody who trains so
can do without, so the wait is a part of the optimizer's step and no `sync`."""


def tap(scope: TapScope) -> None:
    """Stand-ins for the methods that wait, and for `synchronize` of torch.cuda, its events and its streams."""
    if not scope.accelerated:
        return
    recorder, waits = scope.recorder, Waits(scope.recorder)
    around = functools.partial(recorder.fence.around_in_graphs, training_thread_only=True)
    recorder.step_clock.sync_measured = True

    def begins(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        if waits.inside or tensor.device.type == "cpu":
            return None
        waits.begin()
        return tensor

    def ends(tensor: torch.Tensor, result: Any) -> None:
        waits.end()

    def fetched(tensor: torch.Tensor, result: Any) -> None:
        waits.end()
        recorder.event(CAME, traffic.came(tensor, result))

    def asks(*awaited: Any, **kwargs: Any) -> bool | None:
        if waits.inside:
            return None
        waits.begin()
        return True

    def standing_in(original: Callable[..., Any], name: str) -> Seam:
        after = fetched if name in COPIES else ends
        return Seam(original, around(original, begins, after, ends))

    for name in METHODS:
        scope.patches.wrap(torch.Tensor, name, functools.partial(standing_in, name=name))
    waiting: tuple[Any, ...] = (torch.cuda, torch.cuda.Event, torch.cuda.Stream)
    for owner in waiting:
        scope.patches.wrap(owner, "synchronize", lambda original: around(original, asks, lambda token, _: waits.end()))
    for owner, name in (one for one in LIBRARY if hasattr(*one)):
        scope.patches.wrap(owner, name, lambda original: around(original, waits.library, waits.left))


class Waits:
    """The waits of one run: one inside of another is a part of it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._log = recorder, recorder.log
        self.inside = False
        self._ends = SYNCED
        self._library = 0
        """Calls of `LIBRARY` that run."""

    def begin(self) -> None:
        """The host is about to wait."""
        self.inside = True
        self._ends = DONE if self._library else SYNCED
        if self._library:
            self._recorder.event(PHASE, OPTIMIZER)
        else:
            self._recorder.event(WAITING)
        self._log.mark(WAITING)

    def end(self) -> None:
        """It has waited, or failed to."""
        self.inside = False
        self._log.mark(SYNCED)
        self._recorder.event(self._ends)

    def library(self, *args: Any, **kwargs: Any) -> bool:
        """A call of `LIBRARY` begins."""
        self._library += 1
        return True

    def left(self, token: bool, result: Any) -> None:
        """It has ended."""
        self._library -= 1
