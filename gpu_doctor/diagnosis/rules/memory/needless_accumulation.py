"""Gradients are accumulated over micro-batches though a larger one would fit, and the GPU is not kept busy by one.

What it means
    Several batches are pulled for one optimizer step while at least half of the GPU's memory stays free, and the GPU
    is done with a step's work as soon as it is launched. One batch of each of several loaders (`zip(labelled,
    unlabelled)`) counts as one.

Why it costs you
    Every micro-batch pays the fixed cost of a forward and a backward (launches, Python), which one larger batch would
    pay once: the price is at most that. Accumulation is for batches that do not fit.

What to try
    Twice the batch with half the accumulation steps: the same samples in every optimizer step.

When to leave it
    When batch normalisation was tuned for the small batch, or when the code must also run on a smaller card.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.memory.small_batch import WAIT_SHARE
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("peak_share", "launching_share", "loader", "exposed_wait_share", "batches_per_step", "memory_total_bytes")
EXCLUDES = ("small-batch", "launch-bound", "not-compiled")
"""The same symptom: a larger micro-batch gives each launch more to do and keeps the samples of a step, where
their cure changes the training."""

ACCUMULATED = 1.9
"""Micro-batches in a step, on average: a last, incomplete one counts less."""
FREE_SHARE = 0.5
"""Of the card, not needed at the peak: twice the batch fits then, whatever part of the peak grows with it."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where twice the micro-batch surely fits and the GPU has time."""
    peak, share, loader, batches = vitals.peak_share, gpu_idle.launching(vitals), vitals.loader, vitals.micro_batches
    wait, total = vitals.exposed_wait_share, vitals.memory_total_bytes
    if peak is None or share is None or loader is None or wait is None or not batches or not total:
        return None
    used = peak + vitals.beside_bytes / total
    if batches < ACCUMULATED or used > 1.0 - FREE_SHARE or wait >= WAIT_SHARE:
        return None
    # What is certain to fit: everything that is used now might grow with the batch.
    factor = max(f for f in range(1, round(batches) + 1) if round(batches) % f == 0 and f * used <= 0.9)
    if factor < 2 or not loader.batch_size:
        return None
    cost = share * (1.0 - 1.0 / factor)
    size, rest = loader.batch_size * factor, round(batches) // factor
    return Finding(
        rule="needless-accumulation",
        headline=f"{round(batches)} micro-batches make one step while {formatting.share(1.0 - used)} of the GPU's "
        "memory is free.",
        cost_share=cost,
        evidence=(
            f"batch size {loader.batch_size}, peak {formatting.size(peak * total)} of {formatting.size(total)}",
            gpu_idle.emptied(vitals),
            f"launching them takes up to {formatting.share(share)} of the time",
        ),
        prescriptions=(
            Prescription(
                text=f"Train with {'one batch' if rest == 1 else f'{rest} batches'} of {size} a step instead of "
                f"{round(batches)} of {loader.batch_size}",
                safety=Safety.BY_HAND,
                code=f"DataLoader(..., batch_size={size})\naccumulation_steps = {rest}",
                changes="The same samples in every step; batch normalisation sees more of them at once.",
            ),
        ),
    )
