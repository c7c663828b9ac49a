"""A listener on one outermost module: its forwards begin and end.

It stands where `module.compile()` puts its compiled call: torch asks that place first (a hook would send every call the
slow way round, 7 us against 2), and leaves it out of every copy and pickle of the module.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.batches import sample_count
from gpu_doctor.capture.events import CALL, CALLED
from gpu_doctor.capture.taps.copies import Call
from gpu_doctor.capture.taps.tap import Listeners, TapScope

SEAM: Final = models.CALL
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling
"""Dynamo takes it for true while it reads our code."""
_compiler: Final[dict[str, Any]] = vars(torch.compiler)
_FLAG: Final = "_is_compiling_flag"
"""What `torch.compiler.is_compiling` returns, two calls further down, while a model is exported."""


class Listener:
    """One outermost module that is listened to: a call of ours stands on it as its compiled call, around what runs.

    The module lives no longer for it, and is in no circle that only the garbage collector would find: of a loop over
    folds every model would be there with its gradients until then. So the module holds our call, and that one the
    compiled call which stood there before; we hold ours while it is off the module.
    """

    def __init__(self, scope: TapScope, module: nn.Module) -> None:
        self.recorder, self.ref = scope.recorder, weakref.ref(module)
        self.parameters = frozenset(id(p) for p in module.parameters())
        self.trained = False
        self.heard = False
        """It was called in training mode or with gradients: it is no box of modules that are called one by one."""
        self.known = False
        """What a call tells of it, once, has been written down."""
        self.calls = self.wall_ns = 0
        """Its forwards, and the host's time in all but the first, which may compile."""
        self.missed = 0
        """Optimizer steps since it is listened to without being heard."""
        self._heard = scope.heard
        self._call: weakref.ref[Call] | None = None
        self._kept: Call | None = None
        """Our call, while it does not stand on the module."""
        self._listen(module, vars(module).get(SEAM))

    def _listen(self, module: nn.Module, own: Callable[..., Any] | None) -> None:
        """Stands around what the module has of its own; `module.compile()` leaves its compiled call there."""
        call = Call(_listening(self, self.ref, own, self._heard))
        setattr(call, models.OURS, own)
        self._call, self._kept = weakref.ref(call), None
        setattr(module, SEAM, call)

    @property
    def _own(self) -> Callable[..., Any] | None:
        """What stood on the module itself."""
        return getattr(self._call and self._call(), models.OURS, None)

    def back(self) -> None:
        """Stands on its module again, around a compiled call that `module.compile()` has put there meanwhile."""
        module, kept = self.ref(), self._kept
        if module is None or kept is None:
            return
        stands = vars(module).get(SEAM)
        if stands is not self._own:
            self._listen(module, stands)
        else:
            vars(module)[SEAM], self._kept = kept, None

    def on(self) -> bool:
        """Whether our call still stands on its module: `module.compile()` in the loop's code takes its place."""
        module, call = self.ref(), self._call and self._call()
        return module is not None and call is not None and vars(module).get(SEAM) is call

    def remove(self) -> None:
        """Puts back what stood there; what somebody else has put in its place stays."""
        module = self.ref()
        if module is not None and self.on():
            self._kept, own = vars(module)[SEAM], self._own
            if own is None:
                delattr(module, SEAM)
            else:
                setattr(module, SEAM, own)

    def teaches(self) -> bool:
        """It is in evaluation mode and no weight of it asks for gradients: if it was trained, that is over."""
        module = self.ref()
        return module is not None and not module.training and not any(one.requires_grad for one in module.parameters())

    def end(self) -> None:
        """Off for good; nothing of ours goes on holding the module."""
        self.remove()
        self._call = self._kept = None


def _given(ref: Callable[[], Any], forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    return forward(ref(), *args, **kwargs)


def hear_directly(scope: TapScope, listener: Listener, heard: dict[int, Callable[..., Any]]) -> None:
    """Hears a module whose `forward` is called past torch's own call: by its name, or by a `__call__` of its class.

    Args:
        scope: the tap's; the class gets its `forward` back with it.
        listener: of the module.
        heard: the modules of this kind by id, to which it is added.
    """
    module = listener.ref()
    if module is None:
        return
    kind = type(module)
    forward = kind.forward
    plain = getattr(forward, models.OURS, forward)
    if plain.__module__.partition(".")[0] == "torch":
        return  # a layer whose weight is used without it; and torch's own layers stand inside of compiled models
    key = id(module)
    listener.ref = weakref.ref(module, lambda _: heard.pop(key, None))
    heard[key] = _listening(listener, listener.ref, functools.partial(_given, listener.ref, plain), scope.heard)
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
    listener: Listener, ref: Callable[[], Any], own: Callable[..., Any] | None, heard: Listeners
) -> Callable[..., Any]:
    """A module's call that notes its begin and end, and shows its values to who wants to look.

    It is a fence of its own, for a graph goes right through it: until it is known that nothing is being compiled, it
    must call nothing of ours.

    Args:
        listener: of the module.
        ref: says the module, which whoever calls it holds.
        own: what stood there as its compiled call, if anything did.
        heard: who wants to look.
    """
    recorder = listener.recorder
    log, broke, grad_enabled, inside = recorder.log, recorder.fence.broke, torch.is_grad_enabled, 0
    note, clock, events = log.note, log.clock, log.events

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal inside
        module = ref()
        if _dynamo() or get_ident() != log.thread or _compiler.get(_FLAG):
            return (own or module._call_impl)(*args, **kwargs)
        begun, look, fed = False, None, None
        try:
            if log.ending and not log.pulled and not inside:
                recorder.check_end()
            if not log.pulled and not _tracing():  # reading a size would warn inside the user's trace
                fed = sample_count(args or tuple(kwargs.values())), id(module)
            grad = grad_enabled()
            if not listener.known:
                look = _meet(listener, module, recorder.facts, module.training or grad)
            now = clock()
            note((CALL + module.training + 2 * grad + 4 * listener.trained, now, fed))
            if now >= log.due_ns or len(events) >= log.due:
                recorder.fold(now)
            if log.marker is not None:
                log.mark(CALL, listener.trained or not log.trains)
            begun = True
        except Exception as error:
            broke(error)
        inside += 1
        try:
            output = (own or module._call_impl)(*args, **kwargs)
        finally:
            inside -= 1
            try:
                if begun:
                    if log.marker is not None:
                        log.mark(CALLED)
                    ended = clock()
                    note((CALLED, ended, None))
                    if listener.calls:
                        listener.wall_ns += ended - now
                    listener.calls += 1
                if look is not None:
                    look.remove()
            except Exception as error:
                broke(error)
        if heard and begun:
            try:
                said = f"The inputs of {type(module).__name__} could not be read"
                heard.tell(recorder.note, said, module, listener.trained, args, kwargs, output)
            except Exception as error:
                broke(error)
        return output

    return call


def _meet(listener: Listener, module: nn.Module, facts: dict[str, Any], learns: bool) -> Any:
    """Writes down what a call tells of its module; returns a hook that looks inside of this one, if one was put."""
    listener.heard = listener.heard or learns
    if "models" not in facts:  # where an optimizer steps, what it owns is described then
        facts.update(models.described([module]))
    look = None
    if listener.trained and "autocast" not in facts:
        device = facts.get("device", "cpu")
        facts["autocast"] = _autocast(device)
        look = None if facts["autocast"] else _look_inside(listener, module, device)
    listener.known = listener.heard and "autocast" in facts
    return look


def _look_inside(listener: Listener, module: nn.Module, device: str) -> Any:
    """For one forward: looks from its first layer whether autocast was turned on inside, as Accelerate and HF do it.

    Returns:
        A handle to be removed; None where a compiled graph would be made anew for it.
    """
    parts = list(module.modules())
    if any(models.compiles_itself(part) for part in parts):
        return None
    own = [part for part in parts if not isinstance(part, torch.jit.ScriptModule)]  # which takes no hooks
    layer, facts = (
        next((part for part in own if not any(True for _ in part.children())), module),
        listener.recorder.facts,
    )

    def seen(_: nn.Module, args: Any) -> None:
        facts["autocast"] = facts["autocast"] or _autocast(device)

    return layer.register_forward_pre_hook(listener.recorder.fence.quietly(seen))


def _autocast(device: str) -> str:
    kind = device.partition(":")[0]
    with suppress(RuntimeError):  # a device that has no autocast
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    return ""
