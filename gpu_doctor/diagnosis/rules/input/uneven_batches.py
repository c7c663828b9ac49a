"""A few batches take far longer to fetch than the rest, and too few are prefetched to bridge them.

What it means
    Most batches come quickly, some take many times as long (a long document, a cold file, a slow server). The workers
    are fast enough on average, but batches are handed out in order: all wait for the slow one.

Why it costs you
    When the batches fetched ahead are used up, nothing trains until the slow one is there, though the workers have
    time to spare.

What to try
    Fetch further ahead (`prefetch_factor`), so that the batches in stock last as long as a slow one takes; sort or
    bucket by length so that batches take equally long; find out what makes the slow ones slow.

When to leave it
    When memory is short: every batch fetched ahead lies in it. Where the slow fetches waited for a core (more processes
    than cores, other programs), batches cost alike and this rule is silent.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import at_best
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND, SATURATED
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, stock_line, who
from gpu_doctor.diagnosis.rules.input.slow_storage import SHARDS, storage_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("loader", "workers", "exposed_wait_share", "fetch_wall_s", "fetch_median_s", "fetch_p99_s"),
    *("consumer_s", "step_wall_s", "batches_per_step"),
)

EXCLUDES = ("slow-storage",)
"""The same wait, as in loader-without-workers: where the slow batches come from the storage, it is said here."""

WAIT_SHARE = 0.05
"""torch-tb-profiler's bar for data loading."""
UNEVEN = 5.0
"""The slowest batch in a hundred takes so many times the median (catalogue)."""
MARGIN = 1.5
"""Stock for half as long again as the slow batches that were seen."""
SPARE = 0.95
"""On average the workers must need less than this part of the training's time, else no stock builds up between slow
batches (tried: 16 batches ahead gained 2.4x with workers at 0.87 of the loop's pace, nothing at 1.6 times it)."""
PREFETCH = 2
"""torch's default prefetch_factor."""
PREFETCH_MOST = 32
"""Further ahead a run's end and its memory suffer more than a slow batch costs."""
STOCK_BYTES = 4e9
"""More than this is not advised to lie in memory."""

QUEUED = 0.5
"""So much of what the slow fetches take beyond the usual one is waiting for a core: then it is the machine, not the
data. More batches ahead gained 1.13x where this rule promised 1.66x (transfer-learning tutorial, 2 busy cores)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where workers have time to spare, yet single slow batches outlast the stock of prefetched ones."""
    wait, mean_s, median_s, slow_s = (
        *(vitals.exposed_wait_share, vitals.fetch_wall_s),
        *(vitals.fetch_median_s, vitals.fetch_p99_s),
    )
    consumer, step_s, workers = vitals.consumer_s, vitals.step_wall_s, vitals.workers
    batches, loader = vitals.batches_per_step, vitals.loader
    if not workers or wait is None or mean_s is None or not median_s or slow_s is None or loader is None:
        return None
    if not consumer or not step_s or not batches:
        return None
    cost = wait - (vitals.edge_share or 0.0)
    fetchers = workers * (vitals.loaders_at_once or 1.0)  # each of the loaders pulled in one step has its own
    busy = mean_s * batches / fetchers / consumer
    if cost < WAIT_SHARE or slow_s < UNEVEN * median_s or busy >= SPARE:
        return None
    a_batch_s = consumer / batches
    now = loader.prefetch_factor or PREFETCH
    wanted = math.ceil(MARGIN * slow_s / (fetchers * a_batch_s))
    room = int(STOCK_BYTES / max((vitals.batch_bytes or 0.0) * fetchers, 1.0))
    ahead = min(max(wanted, 2 * now), PREFETCH_MOST, room)
    if slow_s < now * fetchers * a_batch_s or ahead <= now:
        return None  # the stock outlasts such a batch already: something else makes the loop wait
    if _waited_for_a_core(vitals) >= QUEUED * (mean_s - median_s):
        return None
    refusal = loader.refusals.get("prefetch_factor", "")
    enough = ahead >= wanted
    return Finding(
        rule="uneven-batches",
        headline=f"A few slow batches make the {who(vitals)} wait {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"fetching takes {formatting.seconds(median_s)} for most batches, {formatting.seconds(slow_s)} for the "
            f"slowest in a hundred; {formatting.count(round(fetchers), 'worker')}, busy "
            f"{formatting.share(min(mean_s * batches / fetchers / step_s, 1.0))} of the time",
            f"prefetch_factor={now}: the batches fetched ahead last {formatting.seconds(now * fetchers * a_batch_s)}",
            *stock_line(vitals),
            *storage_lines(vitals),
            *fetch_lines(vitals),
        ),
        prescriptions=(
            Prescription(
                text=f"Fetch {ahead} batches ahead in each worker",
                safety=Safety.BY_HAND if refusal else Safety.SAFE,
                settings={} if refusal else {"prefetch_factor": ahead},
                code=f"DataLoader(..., prefetch_factor={ahead})",
                predicted_speedup=1.0 / (1.0 - cost) if enough else None,
                predicted_low=1.0 if enough else None,
                predicted_high=at_best(cost) if enough else None,
                at_most=True,
            ),
            Prescription(
                text="Make batches take equally long: bucket by length, cache what is slow",
                safety=Safety.BY_HAND,
            ),
            *((SHARDS,) if storage_lines(vitals) else ()),
        ),
    )


def _waited_for_a_core(vitals: Vitals) -> float:
    """Seconds of a fetch, on average, in which it queued; without the kernel's count, what is left of a fetch that
    computes, beside its CPU seconds, while all cores are taken."""
    wall_s, cpu_s, median_s = vitals.fetch_wall_s or 0.0, vitals.fetch_cpu_s, vitals.fetch_median_s or 0.0
    if vitals.fetch_queued_s is not None:
        return vitals.fetch_queued_s
    busy = (vitals.cpu_util_pct or 0.0) >= 100 * SATURATED
    computes = cpu_s is not None and cpu_s >= CPU_BOUND * median_s
    return max(wall_s - (cpu_s or 0.0), 0.0) if busy and computes else 0.0
