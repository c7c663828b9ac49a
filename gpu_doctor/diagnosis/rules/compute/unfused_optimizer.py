"""The optimizer steps its parameters one by one, or in many small kernels, where torch has one fused kernel.

What it means
    Adam, AdamW, SGD and Adagrad take `fused=True`: one kernel does for all parameters what is otherwise a dozen
    operations on each. torch does not choose it by itself: on a CPU it loops over the parameters, on a GPU it launches
    grouped operations.

Why it costs you
    Each operation reads and writes all of its tensor, and costs a dispatch of some microseconds. How much that is on
    a CPU depends on the number and size of the tensors, on the allocator, which may give the operations' temporary
    tensors back to the system each time, and on the machine: after the run both ways are timed for the tensors of this
    optimizer. Fused Adam and AdamW step several times as fast, SGD with momentum up to three times, and without hardly
    faster. A call of step() itself stays: with a handful of small tensors there is next to nothing to save.

    On a GPU whose queue runs empty, the host's launches are what it costs, and its host seconds are judged; where the
    GPU is the limit, its own clock's. There Adam in groups of operations reads and writes 18 numbers for each weight,
    fused 7.

What to try
    `fused=True` in the optimizer's constructor. The update is the same but for rounding. GPU: not yet run on one.

When to leave it
    When the optimizer is a small part of the step, or code of yours reads or changes what a fused step keeps (sparse
    gradients, `differentiable=True`).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.fused_optimizer import fusing
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("optimizer_share", "step_wall_s", "optimizer_facts")
OPTIMIZER_SHARE = 0.10
"""The bar of the catalogue."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a step's seconds go to an optimizer that torch could fuse, and fusing it was measured to help."""
    share = vitals.gpu_optimizer_share if vitals.device_limits else vitals.optimizer_share
    found = fusing(vitals)
    if share is None or share < OPTIMIZER_SHARE or found is None:
        return None
    one, theirs, low, gain = found.largest, found.share, found.least, found.gain
    cost = theirs * (1.0 - 1.0 / low)
    waited = 0.0 if vitals.device_limits else idle.sync_share(vitals)
    if waited and vitals.gpu_gap_share is not None:  # without the wait the queue would hide the rest
        cost = min(cost, max(vitals.gpu_gap_share - waited, 0.0))
    cost = gpu_pace.at_most(vitals, cost)
    whose = "GPU's " if vitals.device_limits else ""
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
            ).expecting(gain),
        ),
    )
