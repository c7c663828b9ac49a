"""Bills gradient clipping to the backward pass, whose gradients it makes ready: 5 to 20 % of a small model's step.

`clip_grad_norm_` is often imported by name, so what is heard are the two functions that it calls: the norm, and the
scaling. Before torch 2.6 it does all by itself; then clipping is seen as a line of the loop, as `clip_grad_value_` is.
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
    """Wrappers on the parts of clipping."""
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
