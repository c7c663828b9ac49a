"""Hears copies between host and device, and the waits of the host for the device, only where there is a device.

On a CPU nothing is asynchronous and nothing is put anywhere. A call that leaves the tensor where it is is no copy. What
a waiting call takes on a device tensor is the wait (plus a copy of a few bytes); no wait is added. What ends in one of
these methods is heard by it: `range(x)`, `x in y`, f-strings. Not heard:
- what `torch.tensor(..., device=...)` copies;
- functions such as `torch.nonzero(x)`, `torch.where(mask)` and `torch.unique(x)`: TorchScript and Dynamo know torch's
  functions by their identity. What calls a stand-in would not compile, and Dynamo's table, made once, would keep it;
- indexing by a mask: a stand-in for `__getitem__` would cost every index into every tensor of a dataset a microsecond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

from gpu_doctor.capture.events import CAME, COPIED, COPYING, DONE, PHASE, SYNCED, WAITING
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.stand_ins import Seam
from gpu_doctor.capture.taps import traffic
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cuda_available
from gpu_doctor.recording.steps import OPTIMIZER

METHODS: Final = (
    *("item", "cpu", "tolist", "numpy", "nonzero", "masked_select"),
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__"),
    *("equal", "allclose", "is_nonzero", "argwhere", "unique", "unique_consecutive", "bincount"),
)
"""Methods that need values, or a size that depends on them, on the host (torch's CUDA kernels for them, read)."""
WHOLE: Final = frozenset({"cpu", "tolist", "numpy"})
"""Of them, those that bring the whole tensor to the host (its values, not a size or one number)."""
LIBRARY: Final = ((torch.amp.GradScaler, "step"), (torch.nn.utils.clip_grad, "_get_total_norm"))
"""Calls that wait for the device by themselves: a scaler asks whether all gradients are finite. Nobody who trains so
can do without, so the wait is a part of the optimizer's step and no `sync`."""


class Call(NamedTuple):
    """A call that may copy a tensor, or wait for the device."""

    source: torch.Tensor | None
    """None where the call waits for all that was launched."""
    phase: int
    """The event that its begin was noted as: COPYING or WAITING; 0 = none."""
    whole: bool = True
    """The whole tensor is copied."""
    blocking: bool = True


class DeviceCalls:
    """The copies and waits of one run's training thread.

    A call inside of another is a part of it, but for a wait inside of a copy.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._log, self._event = recorder.log, recorder.event
        self._running: list[int] = []
        """Phases of the calls that run, the outermost first."""
        self._library = 0
        """Calls of `LIBRARY` that run."""

    def copies(self, source: torch.Tensor, there: str, blocking: bool) -> Call | None:
        """A call takes a tensor to a device of the type `there`; empty = to none that it is asked for."""
        if self._running or not there or (here := source.device.type) == there:
            return None
        phase = COPYING if here == "cpu" else WAITING if there == "cpu" and blocking else 0
        return self._begin(Call(source, phase, blocking=blocking))

    def waits(self, source: torch.Tensor | None, whole: bool) -> Call | None:
        """A call waits for a tensor's values, or for all that was launched."""
        if WAITING in self._running or (source is not None and source.device.type == "cpu"):
            return None
        return self._begin(Call(source, WAITING, whole))

    def _begin(self, call: Call) -> Call:
        self._running.append(call.phase)
        if call.phase:
            if call.phase == WAITING and self._library:
                self._event(PHASE, OPTIMIZER)
            else:
                self._event(call.phase)
            self._log.mark(call.phase)
        return call

    def ends(self, call: Call, result: Any) -> None:
        """The call has returned; None = it raised, or says nothing of a copy."""
        self._running.pop()
        source, left, came = call.source, None, None
        if source is not None and call.whole and result is not None and result is not source:
            from_host = source.device.type == "cpu"
            if not isinstance(result, torch.Tensor) or (result.device.type == "cpu") != from_host:
                left, came = (_left(source, call.blocking), None) if from_host else (None, traffic.came(source, result))
        if left is not None and call.phase != COPYING:
            self._event(COPYING)
        if call.phase == COPYING or left is not None:
            self._log.mark(COPIED)
            self._event(COPIED, left)
        elif call.phase == WAITING:
            self._log.mark(SYNCED)
            self._event(DONE if self._library else SYNCED)
        if came is not None:
            self._event(CAME, came)

    def raised(self, call: Call, error: BaseException) -> None:
        """The call has raised."""
        self.ends(call, None)

    def library_begins(self, *args: Any, **kwargs: Any) -> bool:
        """A call of `LIBRARY` begins."""
        self._library += 1
        return True

    def library_ends(self, token: bool, result: Any) -> None:
        """It has ended."""
        self._library -= 1


def tap(scope: TapScope) -> None:
    """Stand-ins for the methods, and for `synchronize` of torch.cuda, its events and its streams."""
    if not scope.accelerated:
        return
    recorder, calls, book = scope.recorder, DeviceCalls(scope.recorder), traffic.CopyBook()
    recorder.parts["traffic"] = book
    recorder.listeners.hear_copies(book.heard)
    recorder.step_clock.sync_measured = True
    # By torch's own functions: the wait of a trial is none of the loop's.
    recorder.device_waits.wait_by(_waiting(recorder))
    scope.at_end(functools.partial(recorder.device_waits.wait_by, None))
    fenced = functools.partial(recorder.fence.around_in_graphs, training_thread_only=True)
    around = functools.partial(fenced, after=calls.ends, failed=calls.raised)

    def to(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Call | None:
        return calls.copies(tensor, _asked(args, kwargs), not _non_blocking(args, kwargs))

    def cuda(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Call | None:
        return calls.copies(tensor, "cuda", not _non_blocking(args, kwargs))

    def copy_in(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Call | None:
        source = args[0] if args else kwargs.get("src")
        if not isinstance(source, torch.Tensor) or (source.device.type == "cpu") == (tensor.device.type == "cpu"):
            return None
        return calls.copies(source, tensor.device.type, not _non_blocking(args, kwargs))

    def waits(whole: bool, tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Call | None:
        return calls.waits(tensor, whole)

    def put(name: str, before: Callable[..., Call | None]) -> None:
        scope.patches.wrap(torch.Tensor, name, lambda original: Seam(original, around(original, before)))

    put("to", to)
    put("cuda", cuda)
    put("copy_", copy_in)
    for name in METHODS:
        put(name, functools.partial(waits, name in WHOLE))
    everything: tuple[Any, ...] = (torch.cuda, torch.cuda.Event, torch.cuda.Stream)
    for owner in everything:
        scope.patches.wrap(owner, "synchronize", lambda one: around(one, lambda *_, **__: calls.waits(None, False)))
    for owner, name in (one for one in LIBRARY if hasattr(*one)):
        scope.patches.wrap(owner, name, lambda one: fenced(one, calls.library_begins, calls.library_ends))


def _waiting(recorder: Recorder) -> Callable[[], bool]:
    """How a trial waits for the devices that its loop trains on; the user's own run is never held up."""
    cuda, mps = torch.cuda.synchronize, torch.mps.synchronize

    def waits() -> bool:
        setup = recorder.setup()
        used = {setup.device, *(setup.model.device_bytes if setup.model is not None else ())}
        cards = sorted(one for one in used if one.startswith("cuda"))
        if cards and torch.cuda.is_current_stream_capturing():  # a wait would spoil the graph
            return False
        for one in cards:
            cuda(torch.device(one))
        if setup.device.startswith("mps"):
            mps()
        return bool(cards) or setup.device.startswith("mps")

    return waits


def _left(source: torch.Tensor, blocking: bool) -> tuple[int, bool, traffic.Left]:
    """The argument of COPIED. Whether the source was pinned is a pointer look-up in the driver, no wait."""
    pinned = False
    if cuda_available() is not None:  # else to ask would initialise CUDA, as after a copy to `meta`
        try:
            pinned = bool(source.is_pinned())
        except RuntimeError:
            pinned = False
    return source.numel() * source.element_size(), not pinned, traffic.left(source, pinned, blocking)


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Type of the device that `.to` is asked for, with or without a name; empty where it is asked for none."""
    given = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if isinstance(given, str):
        return given.partition(":")[0]
    if isinstance(given, int):  # the number of a device is one of an accelerator
        return "cuda"
    if isinstance(given, torch.Tensor):
        given = given.device
    return given.type if isinstance(given, torch.device) else ""


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """As the caller asked; of the positional arguments it is the first bool in every form of these methods."""
    given = kwargs.get("non_blocking")
    if given is None:
        given = next((one for one in args if one is True or one is False), False)
    return bool(given)
