"""Hears the forward of the outermost modules and every backward pass.

Only the outermost modules carry a listener: a wrapper on every module call costs about 9 us each and breaks compiled
graphs. They are looked for where the code runs when a loader is first iterated, and completed by the parameters that
an optimizer owns before its first step. The listener on a module is made so that a copy or a pickle of the model,
taken by the user's code while the run goes on, carries a call of the standard library that does nothing instead.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor import models
from gpu_doctor.batches import sample_count
from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.tap import TapScope

_NAN = float("nan")
PATIENCE: Final = 2
"""Optimizer steps that may pass a module by until those in it are listened to: the first may have called it unheard."""
MOST_PARTS: Final = 16
"""A box of more modules than this stays unheard: an event costs about 2 us, and a step should not pay for hundreds."""
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or (lambda: False)


class Listener:
    """What both ends of one outermost module's forward share; `begin` and `end` go on the module as its hooks."""

    def __init__(self, recorder: Recorder, module: nn.Module) -> None:
        self.recorder = recorder
        self.befores: list[int] = []
        self.parameters = frozenset(id(p) for p in module.parameters())
        self.trained = False
        self.heard = False
        """It was called in training mode or with gradients: it is no box of modules that are called one by one."""
        self.missed = 0
        """Optimizer steps since it is listened to without being heard."""
        self.copied = False
        self.begin, self.end = Begin(self), End(self)


class Hook:
    """One end of a Listener as a hook that leaves nothing of ours behind in copies and pickles of the module."""

    __slots__ = ("befores", "listener", "recorder")

    def __init__(self, listener: Listener) -> None:
        self.listener, self.recorder, self.befores = listener, listener.recorder, listener.befores

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.listener.copied = True
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # nullcontext().__exit__ takes any arguments and returns None: a hook that does nothing and needs no gpu_doctor.
        return getattr, (contextlib.nullcontext(), "__exit__")


class Begin(Hook):
    """Forward pre-hook."""

    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        recorder = self.recorder
        if _compiling() or get_ident() != recorder.thread:
            return
        ledger, befores, trained = recorder.ledger, self.befores, self.listener.trained
        if recorder.ending and not ledger.asked and not befores:
            recorder.check_end()
        samples = _NAN
        if ledger.wants_samples() and not _tracing():  # reading a size would warn inside the user's trace
            samples = sample_count(args or tuple(kwargs.values()))
        if trained and "autocast" not in recorder.facts:
            recorder.facts["autocast"] = _autocast(recorder.facts.get("device", "cpu"))
        training, grad = module.training, torch.is_grad_enabled()
        if training or grad:
            self.listener.heard = True
        befores.append(ledger.forward(training, grad, trained, samples))


class End(Hook):
    """Forward hook, also called when the forward raised."""

    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if _compiling():
            return
        befores, recorder = self.befores, self.recorder
        if befores and get_ident() == recorder.thread:
            recorder.ledger.forward_done(befores.pop())


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
    kept: list[nn.Module] = []
    ids: set[int] = set()

    def listen(found: list[nn.Module]) -> None:
        for module in found:
            if id(module) in listeners or isinstance(module, torch.jit.ScriptModule):
                continue
            listener = Listener(recorder, module)
            if vars(module).get("_compiled_call_impl") is not None:
                # After `module.compile()` hooks would be traced away; the compiled call itself is what runs.
                scope.patches.wrap(module, "_compiled_call_impl", functools.partial(_compiled_call, listener, module))
                listeners[id(module)] = listener
                kept.append(module)
                continue
            try:
                # The end first, which older torch refuses: a begin without an end would never leave its phase.
                end = module.register_forward_hook(listener.end, always_call=True)
                scope.patches.hook(f"forward hook of {type(module).__name__}", end.remove)
                begin = module.register_forward_pre_hook(listener.begin, with_kwargs=True)
                scope.patches.hook(f"forward pre-hook of {type(module).__name__}", begin.remove)
            except Exception as error:
                recorder.note(f"The forward of {type(module).__name__} could not be listened to: {error}")
                continue
            listeners[id(module)] = listener
            kept.append(module)

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
        unheard = [pair for pair in zip(kept, listeners.values(), strict=True) if pair[1].trained and not pair[1].heard]
        for module, listener in unheard:
            listener.missed += 1
            if listener.missed >= PATIENCE:
                listener.heard = True
                parts = [part for part in module.children() if any(True for _ in part.parameters())]
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
    scope.patches.wrap(torch.jit._recursive, "create_script_module", functools.partial(_scripted, kept))
    try:
        yield
    finally:
        if any(listener.copied for listener in listeners.values()):
            models.drop_inert_hooks()


def _compiled_call(listener: Listener, module: nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        listener.begin(module, args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            listener.end(module, args, None)

    return call


def _backward(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper that bills the call to `backward` and keeps the loss for the end of the run."""
    ledger = recorder.ledger

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if get_ident() != recorder.thread or not ledger.started:
            return original(tensors, *args, **kwargs)
        if ledger.step_count >= recorder.loss_next:
            loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                recorder.loss(_kept(loss))
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


def _scripted(listened: list[nn.Module], original: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript compiles the hooks that it finds on a module: it gets the modules without ours."""

    @functools.wraps(original)
    def create_script_module(*args: Any, **kwargs: Any) -> Any:
        tables = [table for one in listened for table in (one._forward_pre_hooks, one._forward_hooks)]
        kept = [table.copy() for table in tables]
        for table in tables:
            for key in [key for key, hook in table.items() if isinstance(hook, Hook)]:
                del table[key]
        try:
            return original(*args, **kwargs)
        finally:
            for table, all_hooks in zip(tables, kept, strict=True):
                table.clear()
                table.update(all_hooks)

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
