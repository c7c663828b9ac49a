"""The batch is so small that the GPU is neither full nor busy.

What it means
    The peak of memory is far below what the card has, the loop does not wait for data, and in many steps the GPU is
    done before the next work is launched.

Why it costs you
    Every step has a fixed cost (launches, the optimizer, Python) that a larger batch would share among more samples.
    The price is the most that it can be: the host's launching in these steps, shared among more samples.

What to try
    A larger batch; in training with the learning rate scaled along (linear scaling, Goyal et al. 2017). A trial
    compares the losses per sample seen.

When to leave it
    When the batch size was tuned for the result, or the dataset is small.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.prescriptions import larger_batch
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("peak_share", "launching_share", "loader", "exposed_wait_share")

MEMORY_SHARE = 0.6
"""Below 60 % of the card's memory there is room (catalogue)."""
WAIT_SHARE = 0.10
"""Above, the loop waits for data, and a larger batch waits longer."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where there is room in memory and time on the GPU."""
    peak, share, loader, wait = vitals.peak_share, gpu_idle.launching(vitals), vitals.loader, vitals.exposed_wait_share
    if peak is None or share is None or loader is None or wait is None or not loader.batch_size:
        return None
    if peak >= MEMORY_SHARE or wait >= WAIT_SHARE:
        return None
    times = 4 if peak < 0.2 else 2
    verb = "Run" if vitals.predicts else "Train"
    cure = larger_batch(vitals, times, f"{verb} with a batch of {times * loader.batch_size}")
    if cure is None:
        return None
    cost = share * (1.0 - 1.0 / times)
    return Finding(
        rule="small-batch",
        headline=f"The batch is small: a larger one could save up to {formatting.share(cost)} of the time, and uses "
        f"{formatting.share(peak)} of memory now.",
        cost_share=cost,
        evidence=(f"batch size {loader.batch_size}", gpu_idle.emptied(vitals), gpu_idle.launched(vitals)),
        prescriptions=(cure,),
    )
