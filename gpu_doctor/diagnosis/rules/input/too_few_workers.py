"""The loader's workers are busy all the time and still the loop waits for them.

What it means
    The workers fetch without a break, yet batches arrive more slowly than the loop trains on them.

Why it costs you
    The wait of every step is time in which the device has nothing to do.

What to try
    More workers, as many as the forecast says: a dataset that waits for a disk or a network gains from more workers
    than there are cores. Verify it with a trial.

When to leave it
    When the fetch computes and all cores are used already: then the fetch itself must become cheaper (slow-getitem).
    A stream (IterableDataset) that does not ask which worker it is has to be sharded first: workers would repeat it.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.forecast.workers import stalled_share
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, stock_line, who
from gpu_doctor.diagnosis.rules.gpu_pace import BUSY_SHARE
from gpu_doctor.diagnosis.rules.input.slow_storage import SHARDS, storage_lines
from gpu_doctor.diagnosis.rules.prescriptions import more_workers, with_workers
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "exposed_wait_share", "fetch_wall_s", "step_wall_s", "batches_per_step")
EXCLUDES = ("slow-collate", "slow-storage")
"""The same wait, as in loader-without-workers."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where busy workers leave an exposed wait that more workers are forecast to shorten."""
    workers, loader, fetch_s, step_s = vitals.workers, vitals.loader, vitals.fetch_wall_s, vitals.step_wall_s
    if not workers or loader is None or fetch_s is None or not step_s:
        return None
    wait, busy, best = vitals.steady_wait_share, fetched_s(vitals) / step_s, more_workers(vitals)
    if busy < BUSY_SHARE or best is None:
        return None
    count, seen = best
    cost = max(wait - stalled_share(vitals, count), 0.0)  # what stays is for the slow batches: uneven-batches
    return Finding(
        rule="too-few-workers",
        headline=f"The {who(vitals)} waits for data {formatting.share(wait)} of the time: "
        f"{formatting.count(workers, 'worker')} cannot keep up.",
        cost_share=cost,
        evidence=(
            f"a batch takes a worker {formatting.seconds(fetch_s)}, {formatting.seconds(vitals.fetch_cpu_s or 0.0)} of "
            f"it on the CPU; the {workers} worker{'s are' if workers > 1 else ' is'} busy "
            f"{formatting.share(min(busy, 1.0))} of the time",
            f"with {formatting.count(count, 'worker')} a step would take {formatting.seconds(seen.step_s)}, limited "
            f"by {seen.why}",
            *stock_line(vitals),
            *storage_lines(vitals),
            *fetch_lines(vitals),
        ),
        prescriptions=(with_workers(loader, count, seen), *((SHARDS,) if storage_lines(vitals) else ())),
    )
