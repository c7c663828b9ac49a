"""Records copies between host and device, and the host's waits for the device.

On a CPU nothing is asynchronous, so nothing is wrapped. A call that leaves the tensor where it is counts as no copy.
The duration of a waiting call on a device tensor is the wait (plus a copy of a few bytes); no wait is added. Python
code that ends in one of the wrapped methods is recorded through it: `range(x)`, `x in y`, f-strings. Not recorded:
- copies that `torch.tensor(..., device=...)` makes;
- functions such as `torch.nonzero(x)`, `torch.where(mask)` and `torch.unique(x)`: TorchScript and Dynamo recognise
  torch's functions by their identity. Code that calls a stand-in would not compile, and Dynamo's table, built once,
  would keep it;
- indexing by a mask: a stand-in for `__getitem__` would add a microsecond to every index into every tensor of a data
  set.
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
"""Methods that need values, or a size that depends on them, on the host. Source: torch's CUDA kernels for them."""
WHOLE: Final = frozenset({"cpu", "tolist", "numpy"})
"""Those of `METHODS` that copy the whole tensor to the host, rather than a size or one number."""
LIBRARY: Final = ((torch.amp.GradScaler, "step"), (torch.nn.utils.clip_grad, "_get_total_norm"))
"""Library calls that wait for the device themselves: a scaler checks if all gradients are finite. Whoever uses them
cannot avoid the wait, so it counts as part of the optimizer's step and not as `sync`."""


class Call(NamedTuple):
    """A call that may copy a tensor or wait for the device."""

    source: torch.Tensor | None
    """Tensor that is copied or read; None if the call waits for everything launched so far."""
    phase: int
    """Event recorded at its start: COPYING or WAITING; 0 for none."""
    whole: bool = True
    """True if the whole tensor is copied."""
    blocking: bool = True
    """True if the caller waits for the copy."""


class DeviceCalls:
    """The copies and waits of the training thread in one run.

    A call inside another call belongs to the outer one, except for a wait inside a copy.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._log, self._event = recorder.log, recorder.event
        self._running: list[int] = []
        """Phases of the calls in progress, the outermost first."""
        self._library = 0
        """Number of calls of `LIBRARY` in progress."""

    def copies(self, source: torch.Tensor, there: str, blocking: bool) -> Call | None:
        """Begins a call that may copy a tensor to another device.

        Args:
            source: The tensor.
            there: Type of the requested device; empty if the call requests none.
            blocking: True if the caller waits for the copy.

        Returns:
            The call; None if it copies nothing or belongs to another call.
        """
        if self._running or not there or (here := source.device.type) == there:
            return None
        phase = COPYING if here == "cpu" else WAITING if there == "cpu" and blocking else 0
        return self._begin(Call(source, phase, blocking=blocking))

    def waits(self, source: torch.Tensor | None, whole: bool) -> Call | None:
        """Begins a call that waits for a tensor's values, or for all launched work.

        Args:
            source: Tensor on a device; None to wait for all launched work.
            whole: True if the call copies the whole tensor to the host, rather than a size or one number.

        Returns:
            The call; None if the tensor is on the CPU, or another wait is in progress.
        """
        if WAITING in self._running or (source is not None and source.device.type == "cpu"):
            return None
        return self._begin(Call(source, WAITING, whole))

    def _begin(self, call: Call) -> Call:
        """Records the start of a call."""
        self._running.append(call.phase)
        if call.phase:
            if call.phase == WAITING and self._library:
                self._event(PHASE, OPTIMIZER)
            else:
                self._event(call.phase)
            self._log.mark(call.phase)
        return call

    def ends(self, call: Call, result: Any) -> None:
        """Ends a call and records what it copied; `result` is None if it raised or returned no copy."""
        self._running.pop()
        source, to_device, to_host = call.source, None, None
        if source is not None and call.whole and result is not None and result is not source:
            from_host = source.device.type == "cpu"
            if not isinstance(result, torch.Tensor) or (result.device.type == "cpu") != from_host:
                to_device, to_host = (
                    (_copied(source, call.blocking), None)
                    if from_host
                    else (None, traffic.copied_to_host(source, result))
                )
        if to_device is not None and call.phase != COPYING:
            self._event(COPYING)
        if call.phase == COPYING or to_device is not None:
            self._log.mark(COPIED)
            self._event(COPIED, to_device)
        elif call.phase == WAITING:
            self._log.mark(SYNCED)
            self._event(DONE if self._library else SYNCED)
        if to_host is not None:
            self._event(CAME, to_host)

    def raised(self, call: Call, error: BaseException) -> None:
        """Ends a call that has raised."""
        self.ends(call, None)

    def library_begins(self, *args: Any, **kwargs: Any) -> bool:
        """Begins a call of `LIBRARY`."""
        self._library += 1
        return True

    def library_ends(self, token: bool, result: Any) -> None:
        """Ends a call of `LIBRARY`."""
        self._library -= 1


def tap(scope: TapScope) -> None:
    """Installs stand-ins for the methods, and for `synchronize` of torch.cuda, its events and its streams."""
    if not scope.accelerated:
        return
    recorder, calls, book = scope.recorder, DeviceCalls(scope.recorder), traffic.CopyBook()
    recorder.parts["traffic"] = book
    recorder.listeners.on_copies(book.count)
    recorder.step_clock.sync_measured = True
    # By torch's own functions: a trial's wait does not belong to the loop.
    recorder.device_waits.wait_by(_waiting(recorder))
    scope.at_end(functools.partial(recorder.device_waits.wait_by, None))
    fenced = functools.partial(recorder.fence.around_in_graphs, training_thread_only=True)
    around = functools.partial(fenced, after=calls.ends, failed=calls.raised)

    def to(tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> Call | None:
        return calls.copies(tensor, _requested_device(args, kwargs), not _non_blocking(args, kwargs))

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
        """Installs the stand-in for a method of tensors; `before` begins the call."""
        scope.patches.wrap(torch.Tensor, name, lambda original: Seam(original, around(original, before)))

    put("to", to)
    put("cuda", cuda)
    put("copy_", copy_in)
    for name in METHODS:
        put(name, functools.partial(waits, name in WHOLE))
    everything: tuple[Any, ...] = (torch.cuda, torch.cuda.Event, torch.cuda.Stream)
    for owner in everything:
        scope.patches.wrap(
            owner, "synchronize", lambda method: around(method, lambda *_, **__: calls.waits(None, False))
        )
    for owner, name in (place for place in LIBRARY if hasattr(*place)):
        scope.patches.wrap(owner, name, lambda method: fenced(method, calls.library_begins, calls.library_ends))


def _waiting(recorder: Recorder) -> Callable[[], bool]:
    """Returns the function with which a trial waits for the devices that its loop uses; the user's own run never waits.

    The function returns False if there is no such device, or if a graph is being captured.
    """
    cuda, mps = torch.cuda.synchronize, torch.mps.synchronize

    def waits() -> bool:
        """Waits for all devices of the setup and the model; returns False if it did not wait."""
        setup = recorder.setup()
        used = {setup.device, *(setup.model.device_bytes if setup.model is not None else ())}
        cards = sorted(device for device in used if device.startswith("cuda"))
        if cards and torch.cuda.is_current_stream_capturing():  # a wait would spoil the graph
            return False
        for card in cards:
            cuda(torch.device(card))
        if setup.device.startswith("mps"):
            mps()
        return bool(cards) or setup.device.startswith("mps")

    return waits


def _copied(source: torch.Tensor, blocking: bool) -> tuple[int, bool, traffic.ToDevice]:
    """Returns the argument of the event COPIED. `is_pinned` looks the pointer up in the driver and does not wait."""
    pinned = False
    if cuda_available() is not None:  # else `is_pinned` would initialise CUDA, as after a copy to `meta`
        try:
            pinned = bool(source.is_pinned())
        except RuntimeError:
            pinned = False
    return source.numel() * source.element_size(), not pinned, traffic.copied_to_device(source, pinned, blocking)


def _requested_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Returns the type of the device in the arguments of `.to`; empty if they name none."""
    given = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if isinstance(given, str):
        return given.partition(":")[0]
    if isinstance(given, int):  # a bare number means a device of the accelerator
        return "cuda"
    if isinstance(given, torch.Tensor):
        given = given.device
    return given.type if isinstance(given, torch.device) else ""


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns the caller's `non_blocking`, which is the first bool among the positional arguments of these methods."""
    given = kwargs.get("non_blocking")
    if given is None:
        given = next((value for value in args if value is True or value is False), False)
    return bool(given)
