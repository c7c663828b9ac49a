"""Bills gradient clipping to the backward pass, whose gradients it makes ready: 5 to 20 % of a small model's step.

`clip_grad_norm_` is often imported by name, so what is heard are the two functions that it calls: the norm, and the
scaling. Before torch 2.6 it does all by itself; then, and where `clip_grad_value_` is imported by name, clipping is
seen as a line of the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

import torch
from torch.nn import utils

from gpu_doctor.capture.taps.sleepers import StandingWrapper
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import BACKWARD

_dynamo: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or (lambda: False)
_PARTS: Final = (
    (utils.clip_grad, "_get_total_norm"),
    (utils.clip_grad, "_clip_grads_with_norm_"),
    (utils, "clip_grad_value_"),
)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Wrappers on the parts of clipping."""
    ledger, pulse = scope.recorder.ledger, scope.recorder.pulse

    def billed(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if _dynamo() or get_ident() != pulse.thread or not ledger.started:
                return original(*args, **kwargs)
            before = ledger.switch(BACKWARD)
            try:
                return original(*args, **kwargs)
            finally:
                ledger.switch(before)

        return clip

    rests = ledger.steady.rests
    for owner, name in _PARTS:
        if hasattr(owner, name):
            standing = StandingWrapper(scope.patches, owner, name, billed, lambda: rests.has(BACKWARD))
            rests.sleepers.append(standing)
    try:
        yield
    finally:
        rests.over_for_good()
