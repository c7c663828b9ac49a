"""A few batches take far longer to fetch than the rest, and the loop waits them out.

What it means
    Most batches come quickly, some take many times as long (a long document, a cold file or shard, a slow server).
    Workers hand batches over in order: all wait for the slow one. Without workers the loop itself waits for it.

Why it costs you
    When the batches fetched ahead are used up, nothing trains until the slow one is there, though the workers may have
    time to spare.

What to try
    Fetch further ahead (`prefetch_factor`), so that the batches in stock last as long as a slow one takes; sort or
    bucket by length so that batches take equally long; find out what makes the slow ones slow, and have the next shard
    on a local disk before its first batch is due.

When to leave it
    When memory is short: every batch fetched ahead lies in it. Where the slow fetches waited for a core (more processes
    than cores, other programs), batches cost alike and this rule is silent; so it is where slow batches compute and
    nothing is idle meanwhile, for the work is the same however it is spread (slow-getitem).
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.slow_batches import UNEVEN, ahead, slow_part_s
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND, SATURATED
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, stock_line, who
from gpu_doctor.diagnosis.rules.input.slow_storage import SHARDS, storage_lines
from gpu_doctor.diagnosis.rules.prescriptions import on_loader
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("loader", "workers", "exposed_wait_share", "fetch_wall_s", "fetch_median_s", "fetch_p99_s"),
    *("consumer_s", "step_wall_s", "batches_per_step"),
)

EXCLUDES = ("slow-storage",)
"""The same wait, as in loader-without-workers: where the slow batches come from the storage, it is said here."""

MARGIN = 1.5
"""Stock for half as long again as the slow batches that were seen."""
SPARE = 0.95
"""On average the workers must need less than this part of the training's time, else no stock builds up between slow
batches: a queue fills only below 1 (tried: 16 batches ahead gained 2.4x with workers at 0.87 of the loop's pace,
nothing at 1.6 times it)."""
PREFETCH_MOST = 32
"""Further ahead a run's end and its memory suffer more than a slow batch costs."""
STOCK_BYTES = 4e9
"""More than this is not advised to lie in memory."""

QUEUED = 0.5
"""So much of what the slow fetches take beyond the usual one is waiting for a core: then it is the machine, not the
data. More batches ahead gained 1.13x where this rule promised 1.66x (transfer-learning tutorial, 2 busy cores)."""

SAME_SPEED = Prescription(
    text="Make batches take equally long: bucket by length, cache what is slow, copy the next shard to a local disk "
    "before its first batch is due",
    safety=Safety.BY_HAND,
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where the loop waits for single slow batches, which outlast the stock of prefetched ones."""
    wait, mean_s, median_s, slow_s = (
        *(vitals.exposed_wait_share, vitals.fetch_wall_s),
        *(vitals.fetch_median_s, vitals.fetch_p99_s),
    )
    consumer, step_s, batches = vitals.consumer_s, vitals.step_wall_s, vitals.batches_per_step
    if wait is None or mean_s is None or not median_s or slow_s is None or vitals.workers is None:
        return None
    if not consumer or not step_s or not batches or slow_s < UNEVEN * median_s:
        return None
    fetchers = vitals.workers * (vitals.loaders_at_once or 1.0)  # each of the loaders pulled in one step has its own
    a_batch_s, cost = consumer / batches, vitals.steady_wait_share
    spare = fetchers > 0 and mean_s < SPARE * fetchers * a_batch_s
    if spare and slow_s < ahead(vitals) * fetchers * a_batch_s:
        return None  # the stock outlasts such a batch already: something else makes the loop wait
    gain = cost  # of more batches ahead: they bridge slow ones, but the sum of all fetches stays
    if not spare:
        cost = min(cost, _idle_s(vitals, fetchers) / step_s)
        gain = min(cost, 1.0 - mean_s * batches / fetchers / step_s) if fetchers else 0.0
    if _waited_for_a_core(vitals) >= QUEUED * (mean_s - median_s):
        return None
    further = _further(vitals, fetchers, gain) if gain >= NAMING_BAR else None
    if spare and further is None:
        return None
    busy = f"; {formatting.count(round(fetchers), 'worker')}, busy "
    busy += formatting.share(min(mean_s * batches / max(fetchers, 1.0) / step_s, 1.0)) + " of the time"
    stock = formatting.seconds(ahead(vitals) * fetchers * a_batch_s)
    return Finding(
        rule="uneven-batches",
        headline=f"A few slow batches make the {who(vitals)} wait {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"fetching takes {formatting.seconds(median_s)} for most batches, {formatting.seconds(slow_s)} for the "
            f"slowest in a hundred{busy if fetchers else ''}",
            f"prefetch_factor={ahead(vitals)}: the batches fetched ahead last {stock}"
            if fetchers
            else "num_workers=0: none is fetched ahead",
            *stock_line(vitals),
            *storage_lines(vitals),
            *fetch_lines(vitals),
        ),
        prescriptions=(
            *((further,) if further else ()),
            SAME_SPEED if further else SAME_SPEED.saving_at_most(cost),
            *((SHARDS,) if storage_lines(vitals) else ()),
        ),
    )


def _idle_s(vitals: Vitals, fetchers: float) -> float:
    """Seconds of a step in which slow fetches wait rather than compute, and that equally quick ones would save.

    Without workers, or with busy ones, the sum of all fetches counts: work that is only spread is not saved.
    """
    batches = vitals.batches_per_step or 1.0
    usual_s, cpu_s = vitals.fetch_median_s or 0.0, vitals.fetch_cpu_s or 0.0
    more_s = min(slow_part_s(vitals), max((vitals.fetch_wall_s or 0.0) - max(cpu_s, usual_s), 0.0))
    if not fetchers:
        return more_s * batches
    left_s = max(vitals.consumer_s or 0.0, ((vitals.fetch_wall_s or 0.0) - more_s) * batches / fetchers)
    return max((vitals.step_wall_s or 0.0) - left_s, 0.0)


def _further(vitals: Vitals, fetchers: float, gain: float) -> Prescription | None:
    """More batches ahead, so many as bridge a slow one; None where more would not fit, or are fetched already."""
    batches, now = vitals.batches_per_step or 1.0, ahead(vitals)
    wanted = math.ceil(MARGIN * (vitals.fetch_p99_s or 0.0) * batches / (fetchers * (vitals.consumer_s or 1.0)))
    room = int(STOCK_BYTES / max((vitals.batch_bytes or 0.0) * fetchers, 1.0))
    best = min(max(wanted, 2 * now), PREFETCH_MOST, room)
    if best <= now:
        return None
    cure = on_loader(vitals.loader, "prefetch_factor", best, f"Fetch {best} batches ahead in each worker")
    return cure.saving_at_most(gain) if best >= wanted else cure


def _waited_for_a_core(vitals: Vitals) -> float:
    """Seconds by which slow fetches, on average, exceed the usual one while they queue.

    Without the kernel's count, the rest of a fetch that computes, beside its CPU seconds, while all cores are taken.
    """
    wall_s, cpu_s, median_s = vitals.fetch_wall_s or 0.0, vitals.fetch_cpu_s, vitals.fetch_median_s or 0.0
    if vitals.fetch_queued_s is not None:
        return wall_s - median_s - slow_part_s(vitals)
    busy = (vitals.cpu_util_pct or 0.0) >= 100 * SATURATED
    computes = cpu_s is not None and cpu_s >= CPU_BOUND * median_s
    return max(wall_s - (cpu_s or 0.0), 0.0) if busy and computes else 0.0
