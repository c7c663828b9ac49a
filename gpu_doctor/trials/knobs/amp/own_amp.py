"""The user's own autocast and GradScaler, switched off for a run: their code stays as it is and computes in fp32.

Both are reached by their class, so that it does not matter where and when the user's code (or a trainer) made them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import TrialScope


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
    patches = Patches()
    try:
        patches.wrap(torch.autocast, "__enter__", _entered_disabled)
        scaler: Any = torch.amp.GradScaler  # under which all others stand
        scaler._enabled = _Disabled()
        patches.hook("GradScaler._enabled", lambda: delattr(scaler, "_enabled"))
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
