"""Mixed precision from outside the user's code: autocast around each call of the outermost trained modules.

One autocast around the whole cell would be wrong: it caches the weights' half-precision copies until it is left, so
that the model never sees its own updates. So it is entered and left with every call, and what comes out is made fp32
again, because the code around the model (`BCELoss`, `.numpy()`) was written for fp32. A call without gradients, such as
one of an evaluation, stays as it is. `forwards.py` writes the same places into the cell.

The user's own autocast and GradScaler can be switched off for a run. Both are reached by their class, so that it does
not matter where and when the user's code (or a trainer) made them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.amp.loss_scaling import LossScaling, loss_scaling
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.trained_modules import TrainedModules, device_type

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def mixed_precision(
    dtype: torch.dtype, scope: TrialScope, allow: Callable[[str], None] = lambda device: None
) -> Iterator[LossScaling | None]:
    """Runs the trained modules' forwards in `dtype` while the context is active; with fp16, scales the loss too.

    Args:
        dtype: what autocast computes in, torch.bfloat16 or torch.float16.
        scope: where to look for models and optimizers, and where notes go.
        allow: is told the device type of each module found; may raise `Refused`.

    Yields:
        The scaling, None for bf16.
    """

    def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = device_type(module)
        if not torch.is_grad_enabled():
            return original(module, *args, **kwargs)
        if torch.is_autocast_enabled(device):  # inside another wrapped module, or the user's own
            return original(module, *args, **kwargs)
        trained.called(module)
        with torch.autocast(device, dtype=dtype):
            result = original(module, *args, **kwargs)
        return in_fp32(result, dtype)

    with ExitStack() as stack:
        scaling = stack.enter_context(loss_scaling(LossScaling())) if dtype == torch.float16 else None
        trained = TrainedModules(scope, stack.enter_context(Patches(scope.notes)), "AMP", call)
        trained.allow = lambda module: allow(device_type(module))
        if scaling is not None:
            trained.on_optimizer = scaling.meet
        trained.start()
        yield scaling
        if scaling is not None and scaling.skipped:
            scope.notes.append(f"fp16 skipped {scaling.skipped} steps while it searched for the loss scale.")


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


def opened(value: Any) -> bool:
    """Whether `in_fp32` looks into a value."""
    return isinstance(value, (list, tuple, Mapping)) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


class _Disabled:
    """Stands on a GradScaler class: every scaler says that it is disabled, and keeps what it was made with."""

    def __get__(self, scaler: Any, kind: Any = None) -> Any:
        return self if scaler is None else False

    def __set__(self, scaler: Any, value: Any) -> None:
        vars(scaler)["_enabled"] = value


@contextmanager
def own_switched_off(scope: TrialScope) -> Iterator[None]:
    """Every autocast is entered as if with `enabled=False`, every GradScaler is as if made so; then all is back.

    An autocast inside of code that torch.compile has compiled is part of that code and stays.
    """
    with Patches(scope.notes) as patches:
        patches.wrap(torch.autocast, "__enter__", _entered_disabled)
        scaler: Any = torch.amp.GradScaler  # under which all others stand
        scaler._enabled = _Disabled()
        patches.hook("GradScaler._enabled", lambda: delattr(scaler, "_enabled"))
        yield


def _entered_disabled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __enter__(context: Any) -> Any:
        kept = context._enabled
        context._enabled = False
        try:
            return original(context)
        finally:
            context._enabled = kept

    return __enter__
