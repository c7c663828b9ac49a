"""The user's own autocast and GradScaler, switched off for a run: their code stays as it is and computes in fp32.

Both are reached by their class, so that it does not matter where and when the user's code (or a trainer) made them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import TrialScope

_ENABLED: Final = "_enabled"


class _Disabled:
    """Stands on a GradScaler class: every scaler says that it is disabled, and keeps what it was made with."""

    def __get__(self, scaler: Any, kind: Any = None) -> Any:
        return self if scaler is None else False

    def __set__(self, scaler: Any, value: Any) -> None:
        vars(scaler)[_ENABLED] = value


@contextmanager
def own_switched_off(scope: TrialScope) -> Iterator[None]:
    """Every autocast is entered as if with `enabled=False`, every GradScaler is as if made so; then all is back.

    An autocast inside of code that torch.compile has compiled is part of that code and stays.
    """
    patches = Patches()
    try:
        patches.wrap(torch.autocast, "__enter__", _entered_disabled)
        for scaler in _scaler_classes():
            _disable(scaler, patches)
        yield
    finally:
        patches.restore()
        scope.notes.extend(patches.notes)


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


def _scaler_classes() -> list[type]:
    """Torch's own class, under which all others stand; before torch 2.3 that of CUDA alone."""
    named = (getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler)
    found = [one for one in named if one is not None]
    return [one for one in found if not any(one is not other and issubclass(one, other) for other in found)]


def _disable(scaler: type, patches: Patches) -> None:
    setattr(scaler, _ENABLED, _Disabled())
    patches.hook(f"{scaler.__name__}.{_ENABLED}", lambda: delattr(scaler, _ENABLED))
