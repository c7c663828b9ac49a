"""Gradients are reduced over all ranks after every micro-batch, though the optimizer steps only after several.

What it means
    The loop accumulates gradients over several batches with DistributedDataParallel and never enters `no_sync()`: each
    backward reduces the gradients, and only the last reduction of a step is needed.

Why it costs you
    With k micro-batches a step, k - 1 of k exchanges are for nothing.

What to try
    Run all but the last micro-batch of a step, forward and backward, under `model.no_sync()`. The sum of gradients is
    the same.

When to leave it
    When the exchange is hidden behind the backward anyway.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("world_size", "batches_per_step", "step_wall_s")
EXCLUDES = ("communication-bound",)

MICROBATCHES = 1.5
"""From so many micro-batches a step on, on average, the loop accumulates."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a replicated model accumulates without `no_sync()` and the reducing shows."""
    world, exposed_s = vitals.setup.world, vitals.reduce_exposed_s
    batches, step_s = vitals.micro_batches, vitals.step_wall_s
    if world is None or world.world_size < 2 or not world.replicated or world.unsynced:
        return None
    if exposed_s is None or not batches or batches < MICROBATCHES or not step_s:
        return None
    cost = min(exposed_s * (batches - 1.0) / step_s, 1.0)
    return Finding(
        rule="sync-on-every-microbatch",
        headline=f"Gradients are reduced after each of {formatting.average(batches)} micro-batches: "
        f"{formatting.share(cost)} of the time goes into exchanges that the step does not need.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(batches)} micro-batches a step, no_sync() never entered",
            f"the backward does not hide {formatting.seconds(exposed_s)} of a reduction, by DistributedDataParallel's "
            f"own clock; a step takes {formatting.seconds(step_s)}",
        ),
        prescriptions=(
            Prescription(
                text="Reduce only in the last micro-batch of a step",
                safety=Safety.BY_HAND,
                code="with model.no_sync() if not last_of_step else contextlib.nullcontext():\n"
                "    loss = criterion(model(x), y) / micro_batches\n"
                "    loss.backward()",
            ).saving_at_most(cost),
        ),
    )
