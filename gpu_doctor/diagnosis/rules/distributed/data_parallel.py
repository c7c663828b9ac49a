"""`nn.DataParallel` copies the model to every GPU and gathers the outputs on one, in every step.

What it means
    One Python process drives all GPUs: each forward sends the model and the batch out and brings the outputs back to
    the first GPU, which also holds the loss and the optimizer.

Why it costs you
    While it copies, the GPUs wait; while it launches, one GPU's launches wait for another's, since Python's lock is
    held by one thread at a time. torch's own documentation advises `DistributedDataParallel` even on one machine.

What to try
    `DistributedDataParallel`, one process per GPU: the model stays where it is, only gradients travel, and they do so
    while the backward still computes. Predictions have none: each process takes its part of the data.

When to leave it
    When a step is so long that the copies do not show.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.distributed.idle_gpus import SHARED_OUT, TRAINED_BY_ALL
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("chores", "run_s", "steps_per_s", "gpu", "model")

KIND = "data-parallel"
WRAPPER = "DataParallel"


def check(vitals: Vitals) -> Finding | None:
    """Fires where DataParallel's copying takes its share of the host's time (torch-tb-profiler names any use)."""
    model, cost, chores = vitals.model, vitals.chore_share(KIND), vitals.chores_of(KIND)
    if model is None or model.wrapper != WRAPPER or cost is None:
        return None
    calls, seconds = sum(one.calls for one in chores), sum(one.wall_s for one in chores)
    if not calls:
        return None
    gpus = vitals.used_gpus
    text, code = (
        ("Let every GPU predict its part of the data, one process each", SHARED_OUT)
        if vitals.predicts
        else ("Use DistributedDataParallel, one process per GPU", TRAINED_BY_ALL)
    )
    return Finding(
        rule="data-parallel",
        headline=f"DataParallel copies the model out and the outputs back every step: {formatting.share(cost)} of "
        "the time.",
        cost_share=cost,
        evidence=(
            f"replicate, scatter and gather: {calls} calls, {formatting.seconds(seconds / calls)} each"
            + (f", over {gpus} GPUs" if gpus else ""),
        ),
        prescriptions=(
            Prescription(
                text=f"{text} (gains at least this)",
                safety=Safety.BY_HAND,
                code=code,
                changes="Every process takes a batch of its own: divide batch_size by the number of GPUs.",
            ),
        ),
    )
