"""The optimizer steps its parameters one by one, or in many small kernels, where torch has one fused kernel.

What it means
    Adam, AdamW, SGD and Adagrad take `fused=True`: one kernel does for all parameters what is otherwise a dozen
    operations on each. torch does not choose it by itself: on a CPU it loops over the parameters, on a GPU it launches
    grouped operations.

Why it costs you
    Each operation reads and writes all of its tensor, and costs a dispatch of some microseconds. Measured on a CPU
    (torch 2.13, 1 thread): fused Adam and AdamW step 2.7 to 11 times as fast, SGD 1.7 to 4 times with small tensors,
    and plain SGD with large ones no faster. A call of step() itself costs some 40 us, fused or not: with a handful of
    small tensors there is next to nothing to save. With tensors above some 100 000 elements it depends on the
    allocator: where it gives the operations' temporary tensors back to the system each time, a step takes 6 ns an
    element, else 2.

    On a GPU whose queue runs empty, the host's launches are what it costs, and its host seconds are judged; where the
    GPU is the limit, its own clock's. There Adam in groups of operations reads and writes 18 numbers for each weight,
    fused 7.

What to try
    `fused=True` in the optimizer's constructor. The update is the same but for rounding. GPU: not yet run on one.

When to leave it
    When the optimizer is a small part of the step, or code of yours reads or changes what a fused step keeps (sparse
    gradients, `differentiable=True`).
"""

from collections.abc import Sequence

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import CACHED_BYTES, Gain, without
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.host import hidden_sync
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import OptimizerFacts

NEEDS = ("optimizer_share", "step_wall_s", "optimizer_facts")
ADAMS = ("Adam", "AdamW")
OPTIMIZER_SHARE = 0.10
"""The bar of the catalogue."""
ADAM_GAINS = (2.0, 4.0, 10.0)
"""Low, usual and high gain of a fused step on a GPU. GPU: not yet run on one."""
DEVICE_ADAM_GAINS = (2.0, 18.0 / 7.0, 20.0 / 7.0)
"""Low, usual and high gain on a GPU that is the limit: what torch's grouped operations (`_multi_tensor_adam`) read and
write a weight, 20 numbers with decoupled weight decay, over the 7 of the fused kernel (weight, gradient and two moments
read, all but the gradient written). Plain SGD moves as many as a fused one, and whether there is momentum (8 for 5)
is not recorded. GPU: not yet run on one."""
STEP_S = 4e-5
"""What a call of step() and zero_grad() costs whatever the tensors, fused or not (measured here, torch 2.13, Adam:
20 us plain, 27 us fused, and the profiler's range, hooks and zero_grad about it)."""
FEW_TENSORS = 10
"""Below, with elements that weigh no more than STEP_S, the fixed cost is what a step is made of (four tensors of one
number each: 1.0x in truth, 1.13x by the rates of many)."""
FUSED_TENSOR_S = 6e-6
FUSED_ELEMENT_S = 6e-10
"""What a fused step of Adam costs a tensor and an element on a CPU core (measured here, torch 2.13: 0.24 ms for 50
tensors of 48 x 48 in a row, 1.5 times that in a loop, which leaves the caches cold; 0.65 ms for one of 1.3 million,
2.6 ms for 2048 x 2048, 12 ms for 4096 x 4096)."""
PLAIN_TENSOR_S = (2e-5, 3e-5)
PLAIN_ELEMENT_S = (1.2e-9, 6e-9)
"""The least and the most that a step costs there without: what takes less or more is no matter of fusing (a faster or a
slower core, several steps at once)."""
DOUBT = (0.5, 1.5)
"""The gain lies between these parts of the usual one: the allocator, the memory's speed, zero_grad, billed with it."""
ELEMENT_BYTES = 20.0
"""What a step of Adam reads and writes an element: weight, gradient, two moments, a temporary tensor of each operation.
Where that is more than a core caches, the operations' temporaries also leave the rest of the step without its caches
and its heap, and a fused step has none (a table of 1.3 million, measured here: 4.3x by the optimizer's seconds
alone, 6.9x in truth)."""
SGD_GAINS = (1.3, 1.8, 3.5)
"""As above, for tensors below SMALL elements (measured here: 1.7x to 2.3x, with momentum 3.4x to 4.1x)."""
SMALL = 30_000
"""Mean elements of a tensor up to which SGD is bound by its dispatches (measured here: no gain at 130 000)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a step's seconds go to an optimizer that torch could fuse, and fusing it was measured to help."""
    device_limits = vitals.on_gpu and not vitals.gpu_outruns_host
    share, facts = vitals.gpu_optimizer_share if device_limits else vitals.optimizer_share, vitals.optimizer_facts
    if share is None or not facts or share < OPTIMIZER_SHARE:
        return None
    slow = [(one, gains) for one in facts if (gains := _gains(one, vitals.on_gpu, device_limits)) is not None]
    tensors = sum(one.tensors for one in facts)
    if not slow or not tensors:
        return None
    theirs = share * sum(one.tensors for one, _ in slow) / tensors
    if _handful([one for one, _ in slow]):
        return None
    one, (low, usual, high) = max(slow, key=lambda pair: pair[0].elements)
    if one.name in ADAMS and not vitals.on_gpu and vitals.step_wall_s:
        low, usual, high = _adam_gains([each for each, _ in slow], theirs * vitals.step_wall_s)
    cost = theirs * (1.0 - 1.0 / low)
    waited = 0.0 if device_limits else hidden_sync.waited_share(vitals)
    if waited and vitals.gpu_gap_share is not None:  # without the wait the queue would hide the rest
        cost = min(cost, max(vitals.gpu_gap_share - waited, 0.0))
    cost = gpu_pace.at_most(vitals, cost)
    gain = _gain(vitals, one, theirs, (low, usual, high))
    whose = "GPU's " if device_limits else ""
    now = "one parameter at a time" if one.foreach is False or not vitals.on_gpu else "in groups of operations"
    return Finding(
        rule="unfused-optimizer",
        headline=f"{one.name} takes {formatting.share(theirs)} of the {whose}time and is not fused.",
        cost_share=cost,
        evidence=(
            f"it updates {formatting.count(one.tensors, 'tensor')} with {formatting.count(one.elements, 'element')} "
            f"{now}",
            f"{formatting.seconds(theirs * (vitals.host_step_s or 0.0))} a step; estimated for a fused one "
            f"{formatting.forecast(low)} as fast",
        ),
        prescriptions=(
            Prescription(
                text="Update all parameters with one fused kernel",
                safety=Safety.SAFE,
                settings={"fused_optimizer": True},
                code=f"torch.optim.{one.name}(model.parameters(), lr=..., fused=True)",
                predicted_speedup=None if gain is None else gain.speedup,
                predicted_low=None if gain is None else gain.low,
                predicted_high=None if gain is None else gain.high,
            ),
        ),
    )


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
