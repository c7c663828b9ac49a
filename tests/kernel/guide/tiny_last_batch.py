"""The last batch of each epoch has only a few samples, and a step of its own is spent on it.

What it means
    The dataset's length is no multiple of the batch size, and the loader keeps the rest as a batch.

Why it costs you
    A step has fixed costs (launches, the optimizer, Python) that a few samples pay like a full batch. With few batches
    an epoch, that is a good part of the run.

What to try
    Set `drop_last=True`: shuffled data leaves out other samples in each epoch.

In code
    # sick
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    # cured
    loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)

When to leave it
    When every sample must be seen in every epoch, as in an evaluation.
"""

from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader",)

TINY_SHARE = 0.1
"""Of a full batch: such a step trains next to nothing."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where an epoch ends with a batch of a few samples, priced as the step that it takes."""
    loader = vitals.loader
    if loader is None or loader.drop_last or not loader.dataset_len or not loader.batch_size or not loader.batches:
        return None
    rest = loader.dataset_len % loader.batch_size
    if not rest or rest > TINY_SHARE * loader.batch_size or loader.batches < 2:
        return None
    return Finding(
        rule="tiny-last-batch",
        headline=f"The last of {loader.batches} batches has only {rest} of {loader.batch_size} samples.",
        cost_share=1.0 / loader.batches,
        evidence=(f"{loader.dataset_len} samples in batches of {loader.batch_size}, drop_last=False",),
        prescriptions=(
            Prescription("Leave the last batch out", Safety.BY_HAND, code="DataLoader(..., drop_last=True)"),
        ),
    )
