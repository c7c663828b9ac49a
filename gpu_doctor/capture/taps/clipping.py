"""Counts gradient clipping as part of the backward pass: it takes 5 to 20 % of a small model's step.

`clip_grad_norm_` is often imported by name, so the two functions that it calls are wrapped instead: the norm and the
scaling. Before torch 2.6 it calls neither; then clipping shows up as a line of the loop, as `clip_grad_value_` does.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from torch.nn import utils

from gpu_doctor.capture.events import DONE, PHASE
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import BACKWARD

_PARTS: Final = (
    (utils.clip_grad, "_get_total_norm"),
    (utils.clip_grad, "_clip_grads_with_norm_"),
)


def tap(scope: TapScope) -> None:
    """Wraps the functions that `clip_grad_norm_` calls, and records their time in the phase `backward`."""
    recorder = scope.recorder
    around = functools.partial(recorder.fence.around_in_graphs, training_thread_only=True)

    def begins(*args: Any, **kwargs: Any) -> bool:
        recorder.event(PHASE, BACKWARD)
        return True

    def ends(token: bool, result: Any) -> None:
        recorder.event(DONE)

    for owner, name in _PARTS:
        if hasattr(owner, name):
            scope.patches.wrap(owner, name, lambda original: around(original, begins, ends))
