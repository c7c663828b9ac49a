"""The batch is so small that the GPU is neither full nor busy.

What it means
    The peak of memory is far below what the card has, the loop does not wait for data, and the GPU is not busy.

Why it costs you
    Every step has a fixed cost (launches, the optimizer, Python) that a larger batch would share among more samples.

What to try
    A larger batch, with the learning rate scaled along (linear scaling, Goyal et al. 2017). A trial compares the losses
    per sample seen.

When to leave it
    When the batch size was tuned for the result, or the dataset is small.
"""

from gpu_doctor.forecast import batch_forecast
from gpu_doctor.rules.evidence import percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("peak_share", "gpu_util_pct", "loader", "exposed_wait_share")

MEMORY_SHARE = 0.6
"""Below 60 % of the card's memory there is room (catalogue)."""
BUSY_PCT = 80.0
"""A GPU that some kernel keeps busy at least so much gains little from a larger batch."""
FEWEST_BATCHES = 10
"""A batch that leaves fewer steps an epoch is not advised: there would be hardly any training in one."""
WAIT_SHARE = 0.10
"""Above, the loop waits for data, and a larger batch waits longer."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where there is room in memory and time on the GPU."""
    peak, util, loader, wait = vitals.peak_share, vitals.gpu_util_pct, vitals.loader, vitals.exposed_wait_share
    if peak is None or util is None or loader is None or wait is None or not loader.batch_size:
        return None
    if peak >= MEMORY_SHARE or util >= BUSY_PCT or wait >= WAIT_SHARE:
        return None
    bigger = loader.batch_size * (4 if peak < 0.2 else 2)
    if loader.dataset_len is not None and loader.dataset_len < FEWEST_BATCHES * bigger:
        return None
    seen = batch_forecast(vitals, bigger)
    # Copies and evaluation take as long with another batch.
    kept = wait + (vitals.exposed_transfer_share or 0.0) + (vitals.evaluation_share or 0.0)
    cost = max(1.0 - util / 100.0 - kept, 0.0)
    refused = loader.refusals.get("batch_size", "")
    return Finding(
        rule="small-batch",
        headline=f"The batch is small: the GPU idles {percent(cost)} of the time and uses {percent(peak)} of memory.",
        cost_share=cost,
        evidence=(f"batch size {loader.batch_size}; NVML utilisation {util:.0f} %",),
        prescriptions=(
            Prescription(
                text=f"Train with a batch of {bigger}",
                safety=Safety.BY_HAND if refused else Safety.CHANGES_TRAINING,
                settings={} if refused else {"batch_size": bigger},
                code=f"DataLoader(..., batch_size={bigger})",
                predicted_speedup=seen.speedup if seen is not None else None,
                predicted_low=seen.low if seen is not None else None,
                predicted_high=seen.high if seen is not None else None,
                changes="Fewer, larger optimizer steps: scale the learning rate with the batch.",
            ),
        ),
    )
