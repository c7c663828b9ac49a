"""A listener on one outermost module: its forwards begin and end.

It stands where `module.compile()` puts its compiled call: torch asks that place first (a hook would send every call the
slow way round, 7 us against 2), and leaves it out of every copy and pickle of the module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor import models
from gpu_doctor.batches import sample_count
from gpu_doctor.eventnotes import BACK, DELIVERED, FORWARD_DONE, FORWARDS, Pulse
from gpu_doctor.taps.tap import TapScope

_NAN = float("nan")
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
        self._compiles: bool | None = None
        self.called = -1
        """Steps that had ended when a forward was last noted."""
        self.missed = 0
        """Optimizer steps since it is listened to without being heard."""
        self._own = vars(module).get(SEAM)
        """What stood on the module itself; `module.compile()` leaves its compiled call there."""
        self._heard = scope.heard
        self.call: Callable[..., Any] | None = None
        self._listen()

    def _listen(self) -> None:
        """Stands around what the module has of its own."""
        original = self.module._call_impl if self._own is None else self._own
        self.call = _listening(self, original, self._heard)
        setattr(self.call, models.OURS, self._own)
        setattr(self.module, SEAM, self.call)

    def back(self) -> None:
        """Stands on its module again, around a compiled call that `module.compile()` has put there meanwhile."""
        stands = vars(self.module).get(SEAM)
        if self.call is None or stands is self.call:
            return
        if stands is not self._own:
            self._own = stands
            self._listen()
        else:
            vars(self.module)[SEAM] = self.call

    def on(self) -> bool:
        """Whether the listener still stands on its module: `module.compile()` in the loop's code takes its place."""
        return self.call is not None and vars(self.module).get(SEAM) is self.call

    def plain(self) -> bool:
        """Whether nothing in the module is compiled."""
        if self._own is not None:
            return False
        if self._compiles is None:
            self._compiles = any(models.compiles_itself(part) for part in self.module.modules())
        return not self._compiles

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


class StandingListeners:
    """The listeners that a loop calls in its steps; others, such as that of a model that is evaluated, stay."""

    def __init__(self, listeners: dict[int, Listener], pulse: Pulse) -> None:
        """Args: listeners: all, by their module's id."""
        self._listeners, self._pulse = listeners, pulse
        self._asleep: list[Listener] = []

    def off(self) -> bool:
        """Takes them off their modules; False where torch compiled one, which its being there is a part of."""
        called = [one for one in self._listeners.values() if one.called >= self._pulse.count - 1]
        if not all(one.on() and one.plain() for one in called):
            return False
        self._asleep = called
        for one in called:
            one.remove()
        return True

    def on(self) -> None:
        """Puts them back."""
        for one in self._asleep:
            one.back()
        self._asleep = []


def hear_directly(scope: TapScope, listener: Listener, heard: dict[int, Callable[..., Any]]) -> None:
    """Hears a module whose `forward` is called past torch's own call: by its name, or by a `__call__` of its class.

    Args:
        scope: the tap's; the class gets its `forward` back with it. listener: of the module.
        heard: the modules of this kind by id, to which it is added.
    """
    module, kind = listener.module, type(listener.module)
    forward = kind.forward
    plain = getattr(forward, models.OURS, forward)
    if plain.__module__.partition(".")[0] == "torch":
        return  # a layer whose weight is used without it; and torch's own layers stand inside of compiled models
    heard[id(module)] = _listening(listener, functools.partial(plain, module), scope.heard)
    if plain is not forward:  # another module of this class is heard already
        return

    def around(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            call = heard.get(id(self))
            return plain(self, *args, **kwargs) if call is None else call(*args, **kwargs)

        setattr(forward, models.OURS, plain)
        return forward

    scope.patches.wrap(kind, "forward", around)


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
            listener.called = pulse.count
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
            for hear in tuple(heard):
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
        if "models" not in facts:  # where an optimizer steps, what it owns is described then
            facts.update(models.described([module]))
        look = None
        if listener.trained and "autocast" not in facts:
            device = facts.get("device", "cpu")
            facts["autocast"] = _autocast(device)
            look = None if facts["autocast"] else _look_inside(module, facts, device)
        listener.called = pulse.count
        inside += 1
        before = ledger.forward(training, grad, listener.trained, samples)
        try:
            output = original(*args, **kwargs)
        finally:
            inside -= 1
            ledger.forward_done(before)
            if look is not None:
                look.remove()
        for hear in tuple(heard):
            hear(module, listener.trained, args, kwargs, output)
        return output

    return call


def _look_inside(module: nn.Module, facts: dict[str, Any], device: str) -> Any:
    """For one forward: looks from its first layer whether autocast was turned on inside, as Accelerate and HF do it.

    Returns:
        A handle to be removed; None where a compiled graph would be made anew for it.
    """
    parts = list(module.modules())
    if any(models.compiles_itself(part) for part in parts):
        return None
    layer = next((part for part in parts if not any(True for _ in part.children())), module)

    def seen(_: nn.Module, args: Any) -> None:
        facts["autocast"] = facts["autocast"] or _autocast(device)

    return layer.register_forward_pre_hook(seen)


def _autocast(device: str) -> str:
    kind = device.partition(":")[0]
    try:
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    except (TypeError, AttributeError, RuntimeError):  # before torch 2.4 neither takes a device
        if torch.is_autocast_enabled():
            return str(torch.get_autocast_gpu_dtype()).removeprefix("torch.")
    return ""
