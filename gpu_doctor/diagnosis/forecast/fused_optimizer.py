"""What one fused kernel for all parameters should give over an optimizer that steps them one by one or in groups."""

from __future__ import annotations

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
read, all but the gradient written). Plain SGD moves as many as a fused one, and whether there is momentum (8 for 5)
is not recorded. GPU: not yet run on one."""
STEP_S: Final = 4e-5
"""What a call of step() and zero_grad() costs whatever the tensors, fused or not (measured here, torch 2.13, Adam:
20 us plain, 27 us fused, and the profiler's range, hooks and zero_grad about it)."""
FEW_TENSORS: Final = 10
"""Below, with elements that weigh no more than STEP_S, the fixed cost is what a step is made of (four tensors of one
number each: 1.0x in truth, 1.13x by the rates of many)."""
FUSED_TENSOR_S: Final = 6e-6
FUSED_ELEMENT_S: Final = 6e-10
"""What a fused step of Adam costs a tensor and an element on a CPU core (measured here, torch 2.13: 0.24 ms for 50
tensors of 48 x 48 in a row, 1.5 times that in a loop, which leaves the caches cold; 0.65 ms for one of 1.3 million,
2.6 ms for 2048 x 2048, 12 ms for 4096 x 4096)."""
PLAIN_TENSOR_S: Final = (2e-5, 3e-5)
PLAIN_ELEMENT_S: Final = (1.2e-9, 6e-9)
"""The least and the most that a step costs there without: what takes less or more is no matter of fusing (a faster or a
slower core, several steps at once)."""
DOUBT: Final = (0.5, 1.5)
"""The gain lies between these parts of the usual one: the allocator, the memory's speed, zero_grad, billed with it."""
ELEMENT_BYTES: Final = 20.0
"""What a step of Adam reads and writes an element: weight, gradient, two moments, a temporary tensor of each operation.
Where that is more than a core caches, the operations' temporaries also leave the rest of the step without its caches
and its heap, and a fused step has none (a table of 1.3 million, measured here: 4.3x by the optimizer's seconds
alone, 6.9x in truth)."""
SGD_GAINS: Final = (1.3, 1.8, 3.5)
"""As above, for tensors below SMALL elements (measured here: 1.7x to 2.3x, with momentum 3.4x to 4.1x)."""
SMALL: Final = 30_000
"""Mean elements of a tensor up to which SGD is bound by its dispatches (measured here: no gain at 130 000)."""


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
    """None where nothing is to be expected of it: all are fused, cannot be, or are next to no work."""
    device_limits = v.on_gpu and not v.gpu_outruns_host
    share, facts = v.gpu_optimizer_share if device_limits else v.optimizer_share, v.optimizer_facts
    if share is None or not facts:
        return None
    slow = [(one, gains) for one in facts if (gains := _gains(one, v.on_gpu, device_limits)) is not None]
    tensors = sum(one.tensors for one in facts)
    if not slow or not tensors or _handful([one for one, _ in slow]):
        return None
    theirs = share * sum(one.tensors for one, _ in slow) / tensors
    one, gains = max(slow, key=lambda pair: pair[0].elements)
    if one.name in ADAMS and not v.on_gpu and v.step_wall_s:
        gains = _adam_gains([each for each, _ in slow], theirs * v.step_wall_s)
    return Fusing(one, theirs, gains[0], _gain(v, one, theirs, gains))


def fused_forecast(v: Vitals) -> Forecast | None:
    """Of the whole loop; None on a GPU, and where nothing is to be expected."""
    found = fusing(v)
    if found is None or found.gain is None or v.step_wall_s is None:
        return None
    gain = found.gain
    return Forecast(gain.speedup, gain.low, gain.high, v.step_wall_s / gain.speedup, "what the optimizer leaves")


def _gains(one: OptimizerFacts, on_gpu: bool, device_limits: bool) -> tuple[float, float, float] | None:
    """Low, usual, high gain of fusing; None where there is none to expect."""
    if not one.can_fuse or one.fused or not one.tensors:
        return None
    if one.name in ADAMS:
        return DEVICE_ADAM_GAINS if device_limits else ADAM_GAINS
    if device_limits:
        return None
    if one.name == "SGD" and (on_gpu or one.elements / one.tensors < SMALL):
        return SGD_GAINS
    return None


def _handful(facts: Sequence[OptimizerFacts]) -> bool:
    """So few and small tensors that a step is mostly the call of step() itself."""
    elements = sum(one.elements for one in facts)
    return sum(one.tensors for one in facts) < FEW_TENSORS * len(facts) and elements * PLAIN_ELEMENT_S[0] < STEP_S


def _adam_gains(facts: Sequence[OptimizerFacts], seconds: float) -> tuple[float, float, float]:
    """Low, usual and high gain of Adam on a CPU: what its step takes over what a fused one of this size would."""
    tensors, elements = (sum(getattr(one, name) for one in facts) for name in ("tensors", "elements"))
    fixed_s = STEP_S * len(facts)
    fused_s = fixed_s + FUSED_TENSOR_S * tensors + FUSED_ELEMENT_S * elements
    least, most = (fixed_s + a * tensors + b * elements for a, b in zip(PLAIN_TENSOR_S, PLAIN_ELEMENT_S, strict=True))
    usual = min(max(seconds, least), most) / fused_s
    return max(DOUBT[0] * usual, 1.0), usual, DOUBT[1] * usual


def _gain(vitals: Vitals, one: OptimizerFacts, theirs: float, gains: tuple[float, float, float]) -> Gain | None:
    """Of the whole loop; None on a GPU, where it depends on what the host waits for."""
    if vitals.on_gpu:
        return None
    low, usual, high = (theirs * (1.0 - 1.0 / each) for each in gains)
    cooling = min(ELEMENT_BYTES * one.elements / CACHED_BYTES, 1.0) if one.name in ADAMS else 0.0
    found = without(vitals, usual, high, cooling=cooling)
    return Gain(found.speedup, min(1.0 / (1.0 - low), found.speedup), found.high)
