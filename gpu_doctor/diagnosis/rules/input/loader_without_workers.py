"""The loop fetches its own batches: the loader has no worker processes.

What it means
    With `num_workers=0` the thread that trains also fetches every sample. While it fetches, nothing trains; while it
    trains, nothing is fetched.

Why it costs you
    Fetch and training take turns, so a step lasts as long as both together. Worker processes fetch the next batches
    while this one trains; then a step lasts only as long as the slower of the two.

What to try
    Give the loader as many workers as the forecast says, and verify it with a trial. A dataset that waits for a disk or
    a network gains from more workers than there are cores; one that computes gains up to the number of cores.

When to leave it
    When the data lies in memory and the wait is small; when only one core may be used and the dataset computes; when
    the dataset cannot be sent to worker processes (the panel then says why).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.workers import stalled_share
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, who
from gpu_doctor.diagnosis.rules.input.slow_getitem import in_one_indexing
from gpu_doctor.diagnosis.rules.input.slow_storage import SHARDS, storage_lines
from gpu_doctor.diagnosis.rules.prescriptions import more_workers, with_workers
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "exposed_wait_share", "fetch_wall_s")
EXCLUDES = ("slow-collate", "slow-storage")
"""The same wait: workers shorten it whatever it consists of, and what the storage has to do with it is said here."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the wait is exposed and workers are forecast to help."""
    wait, fetch_s, loader = vitals.exposed_wait_share, vitals.fetch_wall_s, vitals.loader
    if vitals.workers != 0 or wait is None or fetch_s is None or loader is None:
        return None
    wait = max(wait - _late_share(vitals, fetch_s), 0.0)
    best = more_workers(vitals)
    if best is None:
        return None
    count, seen = best
    if in_one_indexing(vitals, seen):
        return None  # slow-collate or slow-getitem: indexing whole batches gains more
    cost = max(wait - stalled_share(vitals, count), 0.0)  # what stays is for the slow batches: uneven-batches
    own_s = (vitals.consumer_s or 0.0) / (vitals.batches_per_step or 1.0)
    return Finding(
        rule="loader-without-workers",
        headline=f"The {who(vitals)} waits for data {formatting.share(wait)} of the time: "
        "num_workers=0 loads batches in the loop's own process.",
        cost_share=cost,
        evidence=(
            f"a batch takes {formatting.seconds(fetch_s)} to fetch, {formatting.seconds(vitals.fetch_cpu_s or 0.0)} "
            f"{'of CPU on several threads' if vitals.fetch_beside_s else 'of it on the CPU'}, "
            f"and {formatting.seconds(own_s)} to {'train' if vitals.backward_share else 'work'} on",
            f"with {formatting.count(count, 'worker')} a step would take {formatting.seconds(seen.step_s)}, limited "
            f"by {seen.why}",
            *storage_lines(vitals),
            *fetch_lines(vitals),
        ),
        prescriptions=(with_workers(loader, count, seen), *((SHARDS,) if storage_lines(vitals) else ())),
    )


def _late_share(vitals: Vitals, fetch_s: float) -> float:
    """Of the wall-clock, what epochs begin late beyond fetching their first batch: workers would not shorten it."""
    measured_s = (vitals.host_step_s or 0.0) * vitals.measured_steps
    return max((vitals.edge_share or 0.0) - fetch_s * vitals.edges / measured_s, 0.0) if measured_s else 0.0
