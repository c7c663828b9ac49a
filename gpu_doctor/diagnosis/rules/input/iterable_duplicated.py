"""Every worker of an IterableDataset delivers all items, so the loop trains on duplicates.

What it means
    Each worker runs `__iter__` on its own copy of the dataset. If `__iter__` does not call `get_worker_info()` to find
    out which worker it runs in, all workers yield the same items, and an epoch with n workers has every item n times.

Why it costs you
    (n - 1) of n steps repeat work, and an epoch takes n times as long. The batches also hold the same items one after
    the other, which is not the training that you intended.

What to try
    Give each worker its own share in `__iter__`: every n-th item, or its own files.

In code
    # sick
    def __iter__(self):
        yield from self.items()
    # cured
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        yield from itertools.islice(self.items(), first, None, step)

When to leave it
    Leave it if the repetition is intended, for example because random augmentation makes every copy different.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.prescriptions import REPEATS, SHARDED
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers")

SURELY = 1.5
"""Smallest length of an epoch over the dataset's own length that proves repeated items."""
ONCE = 1.05
"""Largest length of an epoch over the dataset's own that proves the opposite, whatever the code looks like; 5 % are for
a last batch."""


def check(vitals: Vitals) -> Finding | None:
    """Reports an IterableDataset that several workers repeat, by its code or by the length of an epoch.

    The length counts more than the code: an epoch of the dataset's own length has no repeated items.
    """
    loader, workers = vitals.loader, vitals.workers
    if loader is None or not workers or workers < 2 or loader.dataset_kind != "iterable":
        return None
    length, epoch = loader.dataset_len, vitals.epoch_samples
    counted = epoch / length if length and epoch else None
    repeats = REPEATS in loader.refusals.get("num_workers", "")
    if not repeats and (counted is None or counted < SURELY):
        return None
    if counted is not None and counted <= ONCE:
        return None
    copies = min(counted, float(workers)) if counted is not None and counted >= SURELY else float(workers)
    cost = 1.0 - 1.0 / copies
    return Finding(
        rule="iterable-duplicated",
        headline=f"All {workers} workers deliver the whole dataset: {formatting.share(cost)} of the steps repeat "
        "items.",
        cost_share=cost,
        first=True,  # the training itself is not the intended one
        evidence=(
            f"{loader.dataset} is an IterableDataset"
            + (" whose code never calls get_worker_info()" if repeats else ""),
            *(
                (
                    f"an epoch had {formatting.count(epoch, 'sample')}; the dataset's length is "
                    f"{formatting.grouped(length or 0)}",
                )
                if counted is not None
                else ()
            ),
        ),
        prescriptions=(
            Prescription(
                text="Let each worker take its share (an epoch then has as many samples as the dataset)",
                safety=Safety.BY_HAND,
                code=SHARDED,
                changes="Each item comes once per epoch, so an epoch has fewer steps.",
            ),
        ),
    )
