"""What one fused kernel for all parameters should give over an optimizer that steps them one by one or in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.removed_work import CACHED_BYTES, Gain, without
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import OptimizerFacts

ADAMS: Final = ("Adam", "AdamW")
ADAM_GAINS: Final = (2.0, 4.0, 10.0)
"""Low, usual and high gain of a fused step on a GPU. GPU: not yet run on one."""
DEVICE_ADAM_GAINS: Final = (2.0, 18.0 / 7.0, 20.0 / 7.0)
"""Low, usual and high gain on a GPU that is the limit: what torch's grouped operations (`_multi_tensor_adam`) read and
write a weight, 20 numbers with decoupled weight decay, over the 7 of the fused kernel (weight, gradient and two moments
read, all but the gradient written). Plain SGD moves as many as a fused one, and with momentum 8 for 5, which is left
out. GPU: not yet run on one."""
SGD_GAINS: Final = (1.3, 1.8, 3.5)
"""As ADAM_GAINS, of SGD. GPU: not yet run on one."""
MOST: Final = 0.9
"""On a CPU at most so much of a step goes: a fused one reads and writes all that is kept as well."""
ELEMENT_BYTES: Final = 20.0
"""What a step of Adam reads and writes an element: weight, gradient, two moments, a temporary tensor of each operation.
Where that is more than a core caches, the operations' temporaries also leave the rest of the step without its caches
and its heap, and a fused step has none (a table of 1.3 million: 4.3x by the optimizer's seconds alone, 6.9x in
truth)."""


@dataclass(frozen=True)
class Fusing:
    """What is known of fusing a loop's optimizers."""

    largest: OptimizerFacts
    """Of those that could be fused."""
    share: float
    """Of the time, what they take."""
    least: float
    """How many times as fast they are at least."""
    gain: Gain | None
    """Of the whole loop; None on a GPU, where it depends on what the host waits for."""


def fusing(v: Vitals) -> Fusing | None:
    """None where nobody timed it, or nothing is to be expected: all are fused, cannot be, or are as fast as that."""
    device_limits = v.device_limits
    share, facts = v.gpu_optimizer_share if device_limits else v.optimizer_share, v.optimizer_facts
    tensors = sum(one.tensors for one in facts or ())
    if share is None or not facts or not tensors:
        return None
    slow = [one for one in facts if one.can_fuse and not one.fused and one.tensors and _helps(one, v, device_limits)]
    if not slow:
        return None
    theirs = share * sum(one.tensors for one in slow) / tensors
    one = max(slow, key=lambda each: each.elements)
    if not v.on_gpu:
        return _on_a_cpu(v, slow, one, theirs)
    gains = DEVICE_ADAM_GAINS if device_limits else ADAM_GAINS if one.name in ADAMS else SGD_GAINS
    return Fusing(one, theirs, gains[0], None)


def fused_forecast(v: Vitals) -> Forecast | None:
    """Of the whole loop; None on a GPU, and where nothing is to be expected."""
    found = fusing(v)
    if found is None or found.gain is None or v.step_wall_s is None:
        return None
    gain = found.gain
    return Forecast(gain.speedup, gain.low, gain.high, v.step_wall_s / gain.speedup, "what the optimizer leaves")


def _helps(one: OptimizerFacts, v: Vitals, device_limits: bool) -> bool:
    if not v.on_gpu:
        return one.longer_s is not None
    return one.name in ADAMS or (one.name == "SGD" and not device_limits)


def _on_a_cpu(v: Vitals, slow: Sequence[OptimizerFacts], largest: OptimizerFacts, theirs: float) -> Fusing | None:
    """What was timed after the run, of what the optimizers take; None where a fused step took as long."""
    ends = zip(*(one.longer_s or () for one in slow), strict=True)
    low, usual, high = (min(sum(each) / (v.step_wall_s or math.inf), MOST * theirs) for each in ends)
    if usual <= 0:
        return None
    cooling = min(ELEMENT_BYTES * largest.elements / CACHED_BYTES, 1.0) if largest.name in ADAMS else 0.0
    found = without(v, usual, high, cooling=cooling)
    gain = Gain(found.speedup, min(1.0 / (1.0 - low), found.speedup), found.high)
    return Fusing(largest, theirs, theirs / (theirs - low), gain)
