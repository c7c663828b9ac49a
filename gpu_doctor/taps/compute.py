"""Hears the forward of the outermost modules and every backward pass.

Only the outermost modules carry a listener: a wrapper on every module call costs about 9 us each and breaks compiled
graphs. They are looked for where the code runs when a loader is first iterated, and completed by the parameters that
an optimizer owns before its first step. The listener stands where `module.compile()` puts its compiled call: torch asks
that place first (a hook would send every call the slow way round, 7 us against 2), and leaves it out of every copy and
pickle of the module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor import models
from gpu_doctor.batches import sample_count
from gpu_doctor.eventnotes import BACK, BACKWARD, DELIVERED, FORWARD_DONE, FORWARDS
from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.tap import TapScope

_NAN = float("nan")
PATIENCE: Final = 2
"""Optimizer steps that may pass a module by until those in it are listened to: the first may have called it unheard."""
MOST_PARTS: Final = 16
"""A box of more modules than this stays unheard: an event costs about 2 us, and a step should not pay for hundreds."""
SEAM: Final = models.CALL
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or (lambda: False)
_dynamo: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or _compiling
"""Dynamo takes it for true while it reads our code; a plain call of it costs a third of `_compiling`."""


class Listener:
    """One outermost module that is listened to: `call` stands on it as its compiled call, around what really runs."""

    def __init__(self, scope: TapScope, module: nn.Module) -> None:
        self.recorder, self.module = scope.recorder, module
        self.parameters = frozenset(id(p) for p in module.parameters())
        self.trained = False
        self.heard = False
        """It was called in training mode or with gradients: it is no box of modules that are called one by one."""
        self.missed = 0
        """Optimizer steps since it is listened to without being heard."""
        self._own = vars(module).get(SEAM)
        """What stood on the module itself; `module.compile()` leaves its compiled call there."""
        original = module._call_impl if self._own is None else self._own
        self.call: Callable[..., Any] | None = _listening(self, original, scope.heard)
        setattr(self.call, models.OURS, self._own)
        setattr(module, SEAM, self.call)

    def on(self) -> bool:
        """Whether the listener still stands on its module: `module.compile()` in the loop's code takes its place."""
        return self.call is not None and vars(self.module).get(SEAM) is self.call

    def remove(self) -> None:
        """Puts back what stood there; what somebody else has put in its place stays."""
        if self.on():
            if self._own is None:
                delattr(self.module, SEAM)
            else:
                setattr(self.module, SEAM, self._own)

    def end(self) -> None:
        """Off for good; nothing of ours goes on holding the module."""
        self.remove()
        self.call = self._own = None


def _listening(
    listener: Listener, original: Callable[..., Any], heard: list[Callable[..., None]]
) -> Callable[..., Any]:
    """A module's call that tells the ledger of its begin and end, and shows its values to who wants to look."""
    recorder, module = listener.recorder, listener.module
    ledger, facts, grad_enabled, inside = recorder.ledger, recorder.facts, torch.is_grad_enabled, 0
    pulse, clock, noted = ledger.pulse, ledger.clock, ledger.steady.notes
    codes, code, stamp, fed = noted.codes, noted.codes.append, noted.times.append, noted.inputs.append

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal inside
        if _dynamo() or get_ident() != pulse.thread:
            return original(*args, **kwargs)
        if pulse.taking and codes and codes[0] == DELIVERED:
            # In the loop's rhythm a note is enough; what the ledger would ask for is known from the step before.
            fed(_NAN)
            code(FORWARDS[module.training + 2 * grad_enabled() + 4 * listener.trained])
            stamp(clock())
            inside += 1
            try:
                output = original(*args, **kwargs)
            finally:
                inside -= 1
                if pulse.taking:
                    code(FORWARD_DONE)
                    stamp(clock())
                else:
                    ledger.forward_done(BACK)
            for hear in heard:
                hear(module, listener.trained, args, kwargs, output)
            return output
        if _compiling():
            return original(*args, **kwargs)
        if pulse.ending and not ledger.asked and not inside:
            recorder.check_end()
        samples, training, grad = _NAN, module.training, grad_enabled()
        if ledger.wants_samples() and not _tracing():  # reading a size would warn inside the user's trace
            samples = sample_count(args or tuple(kwargs.values()))
        if not listener.heard:
            listener.heard = training or grad
        if listener.trained and "autocast" not in facts:
            facts["autocast"] = _autocast(facts.get("device", "cpu"))
        inside += 1
        before = ledger.forward(training, grad, listener.trained, samples)
        try:
            output = original(*args, **kwargs)
        finally:
            inside -= 1
            ledger.forward_done(before)
        for hear in heard:
            hear(module, listener.trained, args, kwargs, output)
        return output

    return call


def _autocast(device: str) -> str:
    kind = device.partition(":")[0]
    try:
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    except (TypeError, AttributeError, RuntimeError):  # before torch 2.4 neither takes a device
        if torch.is_autocast_enabled():
            return str(torch.get_autocast_gpu_dtype()).removeprefix("torch.")
    return ""


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Listeners on the outermost modules and around `torch.autograd.backward` and `grad`."""
    recorder = scope.recorder
    listeners: dict[int, Listener] = {}
    ids: set[int] = set()

    def listen(found: list[nn.Module]) -> None:
        for module in found:
            known = listeners.get(id(module))
            if (known is not None and known.on()) or isinstance(module, torch.jit.ScriptModule):
                continue
            try:
                listener = Listener(scope, module)
            except Exception as error:
                recorder.note(f"The forward of {type(module).__name__} could not be listened to: {error}")
                continue
            scope.patches.hook(f"forward of {type(module).__name__}", listener.end)
            listeners[id(module)] = listener

    def first_pull() -> None:
        listen(models.outermost(scope.namespace, ()))

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        listen(models.outermost(scope.namespace, owned))
        ids.update(id(p) for p in owned if p.requires_grad)
        mark_trained()
        if boxes not in scope.stepped:
            scope.stepped.append(boxes)

    def mark_trained() -> None:
        for listener in listeners.values():
            listener.trained = listener.trained or not listener.parameters.isdisjoint(ids)

    def boxes() -> None:
        """A trained module that steps do not call is but a box of modules that they do call."""
        unheard = [one for one in listeners.values() if one.trained and not one.heard]
        for listener in unheard:
            listener.missed += 1
            if listener.missed >= PATIENCE:
                listener.heard = True
                parts = [part for part in listener.module.children() if any(True for _ in part.parameters())]
                if len(parts) <= MOST_PARTS:
                    listen(parts)
                    mark_trained()
        if not unheard:
            scope.stepped.remove(boxes)

    first_pull()
    scope.pulled.append(first_pull)
    scope.optimized.append(first_step)
    recorder.read_losses = _read_losses
    scope.patches.wrap(torch.autograd, "backward", functools.partial(_backward, recorder))
    scope.patches.wrap(torch.autograd, "grad", functools.partial(_gradient, recorder))
    scope.patches.wrap(torch.jit._recursive, "create_script_module", functools.partial(_scripted, listeners))
    try:
        yield
    finally:
        for listener in listeners.values():
            listener.end()
        listeners.clear()  # the functions above know each other: a circle that would outlive `del model`


def _backward(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper that bills the call to `backward` and keeps the loss for the end of the run."""
    ledger, pulse, clock = recorder.ledger, recorder.pulse, recorder.ledger.clock
    code, stamp = ledger.steady.notes.codes.append, ledger.steady.notes.times.append

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if get_ident() != pulse.thread or not ledger.started:
            return original(tensors, *args, **kwargs)
        if pulse.count >= pulse.loss_next:
            loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                recorder.loss(_kept(loss))
        if pulse.taking:
            code(BACKWARD)
            stamp(clock())
            try:
                return original(tensors, *args, **kwargs)
            finally:
                if pulse.taking:
                    code(BACK)
                    stamp(clock())
                else:
                    ledger.switch(BACK)
        before = ledger.backward()
        try:
            return original(tensors, *args, **kwargs)
        finally:
            ledger.switch(before)

    return backward


def _gradient(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """As `_backward`, without a loss: what is differentiated may be an energy or a penalty."""
    ledger = recorder.ledger

    @functools.wraps(original)
    def grad(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if get_ident() != recorder.thread or not ledger.started:
            return original(*args, **kwargs)
        before = ledger.gradient()
        try:
            return original(*args, **kwargs)
        finally:
            ledger.switch(before)

    return grad


def _scripted(listeners: dict[int, Listener], original: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript looks at everything that stands on a module: it gets the modules without ours."""

    @functools.wraps(original)
    def create_script_module(*args: Any, **kwargs: Any) -> Any:
        ours = [one for one in listeners.values() if one.on()]
        for one in ours:
            one.remove()
        try:
            return original(*args, **kwargs)
        finally:
            for one in ours:
                setattr(one.module, SEAM, one.call)

    return create_script_module


def _kept(loss: torch.Tensor) -> torch.Tensor | float:
    """The loss as it costs least to keep: without graph on a device, where reading it would wait; on a CPU as a number.

    Small tensors that live on pin the heap around them: 20 to 90 kB of resident memory a step were measured.
    """
    return float(loss.item()) if loss.is_cpu else loss.detach()


def _read_losses(losses: list[Any]) -> list[float]:
    """Reads all kept losses in one copy a device."""
    flat = [torch.as_tensor(one).reshape(()).float() for one in losses]
    if len({one.device for one in flat}) == 1:
        return [float(value) for value in torch.stack(flat).cpu().tolist()]
    return [float(one) for one in flat]
