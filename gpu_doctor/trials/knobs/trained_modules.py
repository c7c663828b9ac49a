"""Finding what a knob acts on: the optimizers of a run, and the outermost modules that they train.

Nothing is hung on the instances (a deep copy, such as an average of the weights, would take it along): the wrapper sits
on the class' `__call__` or `forward` and asks whether this instance is one of the trained ones.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gpu_doctor import formatting
from gpu_doctor.capture import NextCall, Patches
from gpu_doctor.capture.describe import models
from gpu_doctor.trials.knobs.knob import TrialScope

PATIENCE: Final = 2
"""Steps of an optimizer before which its modules are looked for, where those that were found are not called."""
Call = Callable[[Callable[..., Any], nn.Module, tuple[Any, ...], dict[str, Any]], Any]
"""Runs a trained module: `call(original, module, args, kwargs)`."""


def meet_optimizers(
    scope: TrialScope,
    patches: Patches,
    label: str,
    met: Callable[[Optimizer], None],
    stepping: Callable[[Optimizer], None],
) -> None:
    """Tells of the optimizers in the namespace at once, of others as they are made, and of every step before it.

    Args:
        scope: where to look.
        patches: what takes the listeners off again.
        label: names them, such as `amp`.
        met: told of an optimizer, maybe more than once.
        stepping: told before each step.
    """
    trains_on = scope.setup.device.partition(":")[0] if scope.setup.optimizers else ""
    for optimizer in [one for one in scope.namespace.values() if issubclass(type(one), Optimizer)]:
        on = next((parameter.device.type for parameter in parameters_of(optimizer)), "")
        if trains_on in ("", on):  # one left over from another loop would only confuse
            met(optimizer)

    def make(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            met(optimizer)

        return init

    patches.wrap(Optimizer, "__init__", make)
    before = register_optimizer_step_pre_hook(lambda optimizer, *_: stepping(optimizer))
    patches.hook(f"optimizer step pre-hook ({label})", before.remove)


class TrainedModules:
    """Finds the trained modules: by names, and where no name leads to them, when they are called."""

    def __init__(
        self, scope: TrialScope, patches: Patches, label: str, call: Call, attribute: str = "__call__"
    ) -> None:
        """`call` runs instead of `attribute` of every trained outermost module; `label` names the knob in notes."""
        self._scope, self._patches, self._label = scope, patches, label
        self._call, self._attribute = call, attribute
        self._modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._looked: Counter[int] = Counter()
        """How often each optimizer, by its id, has stepped what no wrapped module had computed."""
        self._settled: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._sought: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """Some of their parameters are held by no module that was found."""
        self._met_in_call: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._thread = threading.get_ident()
        self._next = NextCall(self._next_called, lambda: threading.get_ident() == self._thread, notes=patches.notes)
        self._classes: set[type] = set()
        self.allow: Callable[[nn.Module], None] = lambda module: None
        """Told of each module before it is wrapped; may raise `Refused`."""
        self.on_optimizer: Callable[[Optimizer], None] = lambda optimizer: None
        """Told of every optimizer whose modules are wrapped; may raise `Refused`."""

    def start(self) -> None:
        """Wraps the modules of the optimizers in the namespace, and listens for others."""
        self._patches.hook(f"next call ({self._label})", self._next.end)
        meet_optimizers(self._scope, self._patches, self._label, self._meet, self._stepping)

    def _meet(self, optimizer: Optimizer) -> None:
        for module in models.outermost(self._scope.namespace, parameters_of(optimizer)):
            self._wrap(module)
        self.on_optimizer(optimizer)
        if not _ids_of(optimizer) <= _held_by(self._modules):
            self._seek(optimizer)

    def _stepping(self, optimizer: Optimizer) -> None:
        """Looks once more where an optimizer steps what no wrapped module has computed.

        The model may have been wrapped since (compiled, made parallel), or be a mere container whose parts are called:
        the next calls tell.
        """
        if optimizer in self._settled:
            return
        looked, self._looked[id(optimizer)] = self._looked[id(optimizer)], self._looked[id(optimizer)] + 1
        reached = _held_by(self._called)
        left = [one for one in parameters_of(optimizer) if id(one) not in reached]
        if left and looked < PATIENCE:
            self._seek(optimizer)
            return
        self._settled.add(optimizer)
        self._sought.discard(optimizer)
        if not self._sought:
            self._next.off()
        if not self._called:
            self._scope.notes.append(f"{self._label} had no effect: no trained module was called.")
        elif any(isinstance(one, nn.Parameter) for one in left):
            self._scope.notes.append(
                f"{self._label} acted on a part of the model: {formatting.count(len(left), 'parameter')} of "
                f"{type(optimizer).__name__} in no module that was called."
            )

    def _seek(self, optimizer: Optimizer) -> None:
        self._sought.add(optimizer)
        self._next.wait()

    def _next_called(self, module: nn.Module) -> bool:
        """An outermost module is called; returns whether another one is looked for."""
        held = {id(p) for p in module.parameters()}
        trained_by = [one for one in self._sought if not held.isdisjoint(_ids_of(one))]
        if trained_by:
            self._wrap(module)
            self._met_in_call.add(module)
            for optimizer in trained_by:
                self.on_optimizer(optimizer)
        found = _held_by(self._met_in_call) | _held_by(self._called)
        for optimizer in [one for one in self._sought if _ids_of(one) <= found]:
            self._sought.discard(optimizer)
        return bool(self._sought)

    def _wrap(self, module: nn.Module) -> None:
        if module in self._modules:
            return
        if issubclass(type(module), torch.jit.ScriptModule):
            self._scope.notes.append(f"{self._label} did not change a scripted module.")
            return
        self.allow(module)
        self._modules.add(module)
        if type(module) not in self._classes:
            self._classes.add(type(module))
            self._patches.wrap(type(module), self._attribute, self._make)

    def _make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inherited = original is nn.Module.__call__

        @functools.wraps(original)
        def instead(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Asked anew, since who waits for the next call stands on `nn.Module` by turns.
            plain = nn.Module.__call__ if inherited else original
            if torch.compiler.is_compiling():
                return plain(module, *args, **kwargs)
            # Another instance of a class that is wrapped already: its call goes past our own stand-in.
            told = None if module in self._modules else self._next.hear(module)
            try:
                if module in self._modules:
                    return self._call(plain, module, args, kwargs)
                return plain(module, *args, **kwargs)
            finally:
                if told is not None and told[0]:
                    self._next.wait()

        return instead

    def called(self, module: nn.Module) -> None:
        """Remembers that the knob acts on this module."""
        self._called.add(module)


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters in the optimizer's groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def device_type(module: nn.Module) -> str:
    """Where the module's first parameter lives, `cpu` without parameters."""
    return next((parameter.device.type for parameter in module.parameters()), "cpu")


def _ids_of(optimizer: Optimizer) -> set[int]:
    return {id(parameter) for parameter in parameters_of(optimizer)}


def _held_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(p) for module in modules for p in module.parameters()}
