"""Vitals of fetching: one loader's, or those of all that a step pulls from in turn, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import Fetch, Recording, Setup, Steps
from gpu_doctor.recording.steps import ratio

SPIN_S: Final = 0.01
"""So long each thread of torch's pool spins after its work before it sleeps: libgomp's default of 300 000 rounds
(GOMP_SPINCOUNT in its manual), each a PAUSE: 14 ms at 3 GHz with the 140 cycles of Intel's optimization manual (since
Skylake), 8.5 ms on one machine."""
BESIDE_SHARE: Final = 0.25
"""Less than this part of a fetch on other threads may as well be the error of two clocks."""
SELDOM_READY: Final = 0.1
"""Where batches lay ready at fewer steps than this part, what handing one over takes cannot be told."""
UNEVEN: Final = 5.0
"""Batches are uneven if the slowest in a hundred takes so many times the median (catalogue),"""
SLOW_PART: Final = 0.5
"""and if what slow ones take beyond the usual one is at least this part of all fetching."""
GROWS: Final = 0.5
"""Fetches hold each other up if they get longer by at least this part of what the number of workers rose by."""
PIPELINE: Final = ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory")
"""Settings that leave a fetch as it is."""
STORAGE_WAITS: Final = 0.5
"""A fetch waits, rather than computes, from this part of its time on."""
SLOWEST_BYTES_PER_S: Final = 2e5
"""A disk that seeks for every page of 4 kB delivers 80 of them a second, 0.33 MB/s: a fetch for which fewer bytes come
waits for something else (a server, a lock, a sleep)."""
COPIED_BYTES_PER_S: Final = 1e9
"""A fetch that reads more than this does little but copy memory (2 to 4 GB/s by one core into new pages)."""


def side_by_side(recording: Recording, fetch: Fetch | None, batches: float | None) -> tuple[Fetch | None, float | None]:
    """The fetches of all loaders that a step pulls from in turn as those of one, and how many loaders that are."""
    if fetch is None or not fetch.batches:
        return fetch, None
    beside = pulled(recording, fetch, batches, fetch.workers)
    if len(beside) < 2:
        return fetch, 1.0
    sums = {name: sum(getattr(one, name) for one in beside) for name in ("batches", "wall_s", "cpu_s", "collate_s")}
    optional = (
        "collate_cpu_s",
        "queued_s",
        "read_bytes",
        "stored_bytes",
        "stored_s",
        "delivered",
        "start_s",
        "first_s",
        "end_s",
    )
    for name in optional:
        known = [getattr(one, name) for one in beside]
        sums[name] = None if None in known else sum(known)
    for name in ("batch_bytes", "batch_tensors", "ready_batches", "empty_share"):
        known = [getattr(one, name) for one in beside]
        means = (one * other.batches for one, other in zip(known, beside, strict=True))
        sums[name] = None if None in known else sum(means) / sums["batches"]
    sums["walls_s"] = np.concatenate([one.walls_s for one in beside])
    dearest_s = max(one.wall_s for one in beside)
    return replace(fetch, **sums), sum(one.wall_s for one in beside) / dearest_s if dearest_s > 0 else 1.0


def pulled(recording: Recording, fetch: Fetch, batches: float | None, workers: int | None = None) -> list[Fetch]:
    """The fetches of all loaders (with so many workers) that a step pulls from; of one after the other, one."""
    roles = {one.key: one.role for one in recording.setup.loaders}
    beside = [
        one
        for one in recording.fetches
        if workers in (None, one.workers)
        and _delivered(one) >= _delivered(fetch) / 2
        and roles.get(one.loader) != "evaluation"
    ]
    return beside if 1 < len(beside) <= round(batches or 1.0) else [fetch]


def _delivered(fetch: Fetch) -> int:
    """Batches that the loop got; in an old recording those metered, which of quick loaders is a part."""
    return fetch.batches if fetch.delivered is None else fetch.delivered


def fetching(rest: Steps, fetch: Fetch | None, batches_per_step: float | None, setup: Setup) -> dict[str, float | None]:
    """What fetching a batch takes, and what the loop computes without it.

    Args:
        rest: training steps after the warm-up.
        fetch: of the loader that the run trained from, see `side_by_side`.
        batches_per_step: that a training step takes.
        setup: of the run.
    """
    cpu_s = ratio(rest.cpu_s, rest.count)
    if fetch is None or not fetch.batches:
        return {"consumer_cpu_s": cpu_s}
    batches = batches_per_step or 0.0
    own = fetch.cpu_s / fetch.batches * batches if fetch.workers == 0 else 0.0
    beside = 0.0
    if fetch.workers == 0 and cpu_s is not None:
        loop_s = ratio(rest.wall_s - rest.data_wait_s, rest.count) or 0.0
        beside = _beside(cpu_s - own, loop_s, fetch.wall_s / fetch.batches * batches, own, setup)
    walls_s = fetch.walls_s[np.isfinite(fetch.walls_s)]
    return {
        "fetch_wall_s": fetch.wall_s / fetch.batches,
        "fetch_cpu_s": fetch.cpu_s / fetch.batches + (beside / batches if beside else 0.0),
        "fetch_beside_s": beside / batches if beside else None,
        "collate_s": fetch.collate_s / fetch.batches,
        "collate_cpu_s": None if fetch.collate_cpu_s is None else fetch.collate_cpu_s / fetch.batches,
        "fetch_queued_s": None if fetch.queued_s is None else fetch.queued_s / fetch.batches,
        "fetch_read_bytes": None if fetch.read_bytes is None else fetch.read_bytes / fetch.batches,
        "fetch_stored_bytes": None if fetch.stored_bytes is None else fetch.stored_bytes / fetch.batches,
        "fetch_stored_share": None if fetch.stored_s is None else min(fetch.stored_s / max(fetch.wall_s, 1e-9), 1.0),
        "batch_bytes": None if np.isnan(fetch.batch_bytes) else float(fetch.batch_bytes),
        "batch_tensors": fetch.batch_tensors,
        "ready_batches": fetch.ready_batches,
        "empty_share": fetch.empty_share,
        "worker_start_s": _each(fetch.start_s, fetch.starts),
        "worker_first_s": _each(fetch.first_s, fetch.starts),
        "worker_end_s": _each(fetch.end_s, fetch.ends),
        "consumer_cpu_s": max(cpu_s - own - beside, 0.0) if cpu_s is not None else None,
        "fetch_median_s": float(np.median(walls_s)) if len(walls_s) else None,
        "fetch_p99_s": float(np.percentile(walls_s, 99)) if len(walls_s) else None,
        "handover_s": _handover_s(rest, fetch, batches),
    }


def _handover_s(rest: Steps, fetch: Fetch, batches: float) -> float | None:
    """What steps wait whose batches are all ready; None where hardly any did, or nobody counted.

    Args:
        rest: training steps after the warm-up.
        fetch: of their loader.
        batches: of a step.
    """
    waits = rest.data_wait_s[(rest.count == 1) & ~(rest.edge_s > 0) & np.isfinite(rest.data_wait_s)]
    if not fetch.workers or fetch.empty_share is None or not len(waits):
        return None
    ready = (1.0 - fetch.empty_share) ** max(batches, 1.0)
    # These steps waited least. A quarter into them: a batch may lie ready while the loop waits for the one before it.
    return float(np.quantile(waits, ready / 4.0)) if ready >= SELDOM_READY else None


def stored_s(vitals: Vitals) -> float:
    """Seconds of a fetch in which it waits for the storage, where that is most of it; else 0."""
    waiting_s = _storage_s(vitals)
    return waiting_s if waiting_s >= STORAGE_WAITS * (vitals.fetch_wall_s or 0.0) else 0.0


def served_s(vitals: Vitals) -> float:
    """Seconds of a fetch in which storage or memory serve it, and might serve several workers no faster."""
    alone_s = (vitals.fetch_wall_s or 0.0) - (vitals.fetch_queued_s or 0.0)
    copies = (vitals.fetch_read_bytes or 0.0) >= COPIED_BYTES_PER_S * alone_s > 0.0
    return alone_s if copies else _storage_s(vitals)


def _storage_s(vitals: Vitals) -> float:
    """Seconds of a fetch that waits while bytes come from the storage; 0 where none do, or nobody counted them."""
    wall, cpu, stored = vitals.fetch_wall_s, vitals.fetch_cpu_s, vitals.fetch_stored_bytes
    if not wall or cpu is None or not stored:
        return 0.0
    waiting_s = max(wall - cpu - (vitals.fetch_queued_s or 0.0), 0.0)
    if vitals.fetch_stored_share is not None:  # the fetches that read nothing from it wait for something else
        waiting_s = min(waiting_s, vitals.fetch_stored_share * wall)
    return waiting_s if stored >= SLOWEST_BYTES_PER_S * waiting_s else 0.0


def _beside(cpu_s: float, loop_s: float, fetch_s: float, own_s: float, setup: Setup) -> float:
    """CPU seconds of a step's fetches that other threads of this process computed with.

    The clock of a fetch is that of its thread, and a tokenizer, or torch itself, computes on several. In a worker all
    of it is done by one.

    It is what the process used beyond all that the loop's own work can have used with all of torch's threads, and
    beyond what these spin while they have nothing to do.

    Args:
        cpu_s: of a step, without the fetching thread's own_s.
        loop_s: wall-clock of a step without its wait for data.
        fetch_s: wall-clock of the fetches.
        own_s: CPU seconds of the fetching thread.
        setup: of the run.
    """
    threads = 1 if setup.on_gpu else setup.torch_threads
    if threads is None:
        return 0.0
    least = max(cpu_s - loop_s * threads - SPIN_S * (threads - 1), 0.0)
    most = max(fetch_s * max(setup.usable_cores, 1.0) - own_s, 0.0)
    return min(least, most) if least >= BESIDE_SHARE * fetch_s else 0.0


def _each(total: float | None, count: int | None) -> float | None:
    return total / count if total is not None and count else None


def slow_part_s(vitals: Vitals) -> float:
    """Seconds of a mean fetch by which few slow batches exceed the usual one; 0 where batches are even.

    What they queue for a core or compute is no part of it: that is work, however it is spread.
    """
    wall, median, slow = vitals.fetch_wall_s, vitals.fetch_median_s, vitals.fetch_p99_s
    if not wall or not median or slow is None or slow < UNEVEN * median:
        return 0.0
    part = wall - max(median, vitals.fetch_cpu_s or 0.0) - (vitals.fetch_queued_s or 0.0)
    return part if part >= SLOW_PART * wall else 0.0


def beside(vitals: Vitals, others: Sequence[Vitals]) -> Vitals:
    """The vitals with what fetches took in other runs of the same loop that had another number of workers."""

    def apart(one: Vitals) -> dict[str, object]:
        return {name: value for name, value in one.settings.items() if name not in PIPELINE}

    found = tuple(
        (one.workers, one.fetch_wall_s - (one.fetch_queued_s or 0.0), one.fetch_cpu_s)
        for one in others
        if one.workers is not None and one.fetch_wall_s and one.fetch_cpu_s is not None and apart(one) == apart(vitals)
    )
    return replace(vitals, other_fetches=found)


def held_up(vitals: Vitals) -> tuple[int, float, int, float] | None:
    """Two runs that show fetches holding each other up: fewer workers and their fetch in seconds, more and theirs.

    With more workers a fetch waits longer, rather than computes longer. None where no two runs show it: of one run
    nothing tells such a wait from one for a slow server.
    """
    if not vitals.fetch_wall_s or vitals.fetch_cpu_s is None or vitals.workers is None:
        return None
    mine = vitals.workers, vitals.fetch_wall_s - (vitals.fetch_queued_s or 0.0), vitals.fetch_cpu_s
    for other in vitals.other_fetches:
        (few, few_s, _), (many, many_s, cpu_s) = sorted((mine, other))
        rise = max(many, 1) / max(few, 1) - 1.0
        waits = many_s - cpu_s >= STORAGE_WAITS * many_s
        if rise > 0 and waits and many_s / few_s - 1.0 >= GROWS * rise:
            return few, few_s, many, many_s
    return None
