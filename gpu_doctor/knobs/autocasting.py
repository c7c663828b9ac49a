"""Mixed precision from outside the user's code: autocast around each call of the outermost trained modules.

One autocast around the whole cell would be wrong: it caches the weights' half-precision copies until it is left, so
that the model never sees its own updates. So it is entered and left with every call, and what comes out is made fp32
again, because the code around the model (`BCELoss`, `.numpy()`) was written for fp32.

Nothing is hung on the instances (a deep copy, such as an average of the weights, would take it along): the wrapper sits
on the class' `__call__` and asks whether this instance is one of the trained ones.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gpu_doctor import models
from gpu_doctor.knobs.knob import TrialScope
from gpu_doctor.patching import Patches


class Autocasting:
    """Finds the trained modules, first those of optimizers that exist, then of those that are made or step."""

    def __init__(
        self, dtype: torch.dtype, scope: TrialScope, patches: Patches, allow: Callable[[str], None] | None = None
    ) -> None:
        """`allow` is told the device type of each module found and may raise `Refused`."""
        self._dtype, self._scope, self._patches, self._allow = dtype, scope, patches, allow
        self._modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._settled: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._classes: set[type] = set()
        self.on_optimizer: Callable[[Optimizer], None] = lambda optimizer: None
        """Told of every optimizer whose modules are wrapped."""

    def start(self) -> None:
        """Wraps the modules of the optimizers in the namespace, and listens for others."""
        trains_on = self._scope.setup.device.partition(":")[0] if self._scope.setup.optimizers else ""
        for optimizer in [one for one in self._scope.namespace.values() if issubclass(type(one), Optimizer)]:
            on = next((parameter.device.type for parameter in _parameters(optimizer)), "")
            if trains_on in ("", on):  # one left over from another loop would only confuse
                self._meet(optimizer)

        def make(original: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(original)
            def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
                original(optimizer, *args, **kwargs)
                self._meet(optimizer)

            return init

        self._patches.wrap(Optimizer, "__init__", make)
        before = register_optimizer_step_pre_hook(lambda optimizer, *_: self._stepping(optimizer))
        self._patches.hook("optimizer step pre-hook (amp)", before.remove)

    def _meet(self, optimizer: Optimizer) -> None:
        for module in models.outermost(self._scope.namespace, _parameters(optimizer)):
            self._wrap(module)
        self.on_optimizer(optimizer)

    def _stepping(self, optimizer: Optimizer) -> None:
        """Looks once more where an optimizer steps what no wrapped module has computed.

        The model may have been wrapped since (compiled, made parallel), or be a mere container whose parts are called;
        then its parts are wrapped, one level a step. A container that is called later covers its parts by itself.
        """
        if optimizer in self._settled:
            return
        mine = {id(parameter) for parameter in _parameters(optimizer)}
        covered = {id(p) for module in self._called for p in module.parameters()}
        if mine <= covered:
            self._settled.add(optimizer)
            return
        idle = [module for module in self._modules if module not in self._called]
        found = models.outermost(None, _parameters(optimizer))
        fresh = [module for module in found if module not in self._modules]
        fresh += [child for module in idle for child in module.children() if _any_of(child, mine - covered)]
        for module in fresh:
            self._wrap(module)
        self.on_optimizer(optimizer)
        if not fresh:
            self._settled.add(optimizer)
            if not self._called:
                self._scope.notes.append("AMP did not act: no module that the optimizer trains was called.")

    def _wrap(self, module: nn.Module) -> None:
        if module in self._modules:
            return
        if issubclass(type(module), torch.jit.ScriptModule):
            self._scope.notes.append("AMP left a scripted module as it is.")
            return
        if self._allow is not None:
            self._allow(_device_type(module))
        self._modules.add(module)
        if type(module) not in self._classes:
            self._classes.add(type(module))
            self._patches.wrap(type(module), "__call__", self._make)

    def _make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if _compiling() or module not in self._modules:
                return original(module, *args, **kwargs)
            device = _device_type(module)
            if _autocast_is_on(device):  # inside another wrapped module, or the user's own
                return original(module, *args, **kwargs)
            self._called.add(module)
            with torch.autocast(device, dtype=self._dtype):
                result = original(module, *args, **kwargs)
            return in_fp32(result, self._dtype)

        return __call__


@contextmanager
def autocasting(
    dtype: torch.dtype,
    scope: TrialScope,
    allow: Callable[[str], None] | None = None,
    on_optimizer: Callable[[Optimizer], None] | None = None,
) -> Iterator[Autocasting]:
    """Runs the trained modules' forwards in `dtype` (torch.bfloat16 or torch.float16) while the context is active.

    Args:
        dtype: what autocast computes in.
        scope: where to look for models and optimizers, and where notes go.
        allow: is told the device type of each module found; may raise `Refused`.
        on_optimizer: is told of each optimizer found; may raise `Refused`.
    """
    patches = Patches()
    casting = Autocasting(dtype, scope, patches, allow)
    casting.on_optimizer = on_optimizer or casting.on_optimizer
    try:
        casting.start()
        yield casting
    finally:
        patches.restore()
        scope.notes.extend(patches.notes)


def in_fp32(value: Any, dtype: torch.dtype) -> Any:
    """`value` with every tensor of `dtype` in it converted to fp32; the same object where there is none.

    Looks into lists, tuples, named tuples, mappings (also those of Hugging Face, which are dataclasses as well) and
    dataclasses; their type is kept.
    """
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == dtype else value
    if isinstance(value, (list, tuple)):
        parts = [in_fp32(part, dtype) for part in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*parts)
        return type(value)(parts)
    if isinstance(value, Mapping):
        changed = {key: new for key, old in value.items() if (new := in_fp32(old, dtype)) is not old}
        if not changed or not isinstance(value, MutableMapping):
            return value
        twin = copy.copy(value)
        for key, new in changed.items():
            twin[key] = new
        return twin
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
        fresh = {n: new for n in names if (new := in_fp32(getattr(value, n), dtype)) is not getattr(value, n)}
        if not fresh:
            return value
        record: Any = copy.copy(value)
        for name, new in fresh.items():
            object.__setattr__(record, name, new)
        return record
    return value


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _any_of(module: nn.Module, ids: set[int]) -> bool:
    return any(id(parameter) in ids for parameter in module.parameters())


def _device_type(module: nn.Module) -> str:
    return next((parameter.device.type for parameter in module.parameters()), "cpu")


def _autocast_is_on(device: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before torch 2.4 it takes no device
        return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


def _compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    return bool(compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling())
