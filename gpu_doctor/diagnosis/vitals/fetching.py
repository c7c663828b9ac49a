"""Vitals of fetching batches: from one loader, or from all loaders that a step pulls from in turn, taken as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import Fetch, Recording, Setup, Steps
from gpu_doctor.recording.steps import ratio

SPIN_S: Final = 0.01
"""Time for which each thread of torch's pool spins after its work before it sleeps, in s: libgomp's default of 300 000
rounds (GOMP_SPINCOUNT in its manual), each a PAUSE: 14 ms at 3 GHz with the 140 cycles of Intel's optimization manual
(since Skylake), 8.5 ms on one machine."""
BESIDE_SHARE: Final = 0.25
"""Smallest part of a fetch on other threads that counts; less may be the error of two clocks."""
SELDOM_READY: Final = 0.1
"""Smallest part of the steps with ready batches from which the cost of taking one over is measured."""
UNEVEN: Final = 5.0
"""Factor on the median fetch that the slowest in a hundred must reach for batches to be uneven (catalogue)."""
SLOW_PART: Final = 0.5
"""Part of all fetching that slow batches must take beyond the usual one for batches to be uneven."""
GROWS: Final = 0.5
"""Fetches hold each other up if they get longer by at least this part of the rise in workers."""
PIPELINE: Final = ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory")
"""Settings that do not change what a fetch does."""
STORAGE_WAITS: Final = 0.5
"""Part of a fetch that must be waiting for it to count as waiting rather than computing."""
SLOWEST_BYTES_PER_S: Final = 2e5
"""Bytes/s below which a fetch waits for something other than storage (a server, a lock, a sleep): a disk that seeks for
every page of 4 kB delivers 80 of them a second, 0.33 MB/s."""
COPIED_BYTES_PER_S: Final = 1e9
"""Bytes/s from which on a fetch does little but copy memory (one core copies 2 to 4 GB/s into new pages)."""


def merged_fetch(recording: Recording, fetch: Fetch | None, batches: float | None) -> tuple[Fetch | None, float | None]:
    """Merges the fetches of all loaders that a step pulls from in turn into one.

    Args:
        recording: recording of a run or a trial.
        fetch: fetches of the training loader.
        batches: batches per step.

    Returns:
        The merged fetches, and the effective number of loaders: all of their seconds over those of the costliest.
    """
    if fetch is None or not fetch.batches:
        return fetch, None
    fetches = step_fetches(recording, fetch, batches, fetch.workers)
    if len(fetches) < 2:
        return fetch, 1.0
    sums = {name: sum(getattr(each, name) for each in fetches) for name in ("batches", "wall_s", "cpu_s", "collate_s")}
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
        known = [getattr(each, name) for each in fetches]
        sums[name] = None if None in known else sum(known)
    for name in ("batch_bytes", "batch_tensors", "ready_batches", "empty_share"):
        known = [getattr(each, name) for each in fetches]
        weighted = (mean * each.batches for mean, each in zip(known, fetches, strict=True))
        sums[name] = None if None in known else sum(weighted) / sums["batches"]
    sums["walls_s"] = np.concatenate([each.walls_s for each in fetches])
    costliest_s = max(each.wall_s for each in fetches)
    return replace(fetch, **sums), sum(each.wall_s for each in fetches) / costliest_s if costliest_s > 0 else 1.0


def step_fetches(recording: Recording, fetch: Fetch, batches: float | None, workers: int | None = None) -> list[Fetch]:
    """Returns the fetches of every loader that a step pulls a batch from.

    If the loop pulls from its loaders one after the other rather than within one step, only `fetch` is returned.

    Args:
        recording: recording of a run or a trial.
        fetch: fetches of the training loader.
        batches: batches per step.
        workers: number of workers that a loader must have to count; None = any.
    """
    roles = {loader.key: loader.role for loader in recording.setup.loaders}
    fetches = [
        each
        for each in recording.fetches
        if workers in (None, each.workers)
        and _delivered(each) >= _delivered(fetch) / 2
        and roles.get(each.loader) != "evaluation"
    ]
    return fetches if 1 < len(fetches) <= round(batches or 1.0) else [fetch]


def _delivered(fetch: Fetch) -> int:
    """Returns the batches that the loop got; in an old recording those timed, only a part of a quick loader's."""
    return fetch.batches if fetch.delivered is None else fetch.delivered


def fetching(rest: Steps, fetch: Fetch | None, batches_per_step: float | None, setup: Setup) -> dict[str, float | None]:
    """Computes the vitals on fetching a batch, and the CPU time of a step without its fetching.

    Args:
        rest: training steps after the warm-up.
        fetch: fetches of the training loader, or of several merged (see `merged_fetch`).
        batches_per_step: batches that a training step takes.
        setup: setup of the run.
    """
    cpu_s = ratio(rest.cpu_s, rest.count)
    if fetch is None or not fetch.batches:
        return {"consumer_cpu_s": cpu_s}
    batches = batches_per_step or 0.0
    own = fetch.cpu_s / fetch.batches * batches if fetch.workers == 0 else 0.0
    others = 0.0
    if fetch.workers == 0 and cpu_s is not None:
        loop_s = ratio(rest.wall_s - rest.data_wait_s, rest.count) or 0.0
        others = _other_threads_s(cpu_s - own, loop_s, fetch.wall_s / fetch.batches * batches, own, setup)
    walls_s = fetch.walls_s[np.isfinite(fetch.walls_s)]
    return {
        "fetch_wall_s": fetch.wall_s / fetch.batches,
        "fetch_cpu_s": fetch.cpu_s / fetch.batches + (others / batches if others else 0.0),
        "fetch_beside_s": others / batches if others else None,
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
        "consumer_cpu_s": max(cpu_s - own - others, 0.0) if cpu_s is not None else None,
        "fetch_median_s": float(np.median(walls_s)) if len(walls_s) else None,
        "fetch_p99_s": float(np.percentile(walls_s, 99)) if len(walls_s) else None,
        "handover_s": _handover_s(rest, fetch, batches),
    }


def _handover_s(rest: Steps, fetch: Fetch, batches: float) -> float | None:
    """Returns the seconds that a step waits although its batches are all ready.

    None if hardly any step found them ready, if this was not counted, or without workers.

    Args:
        rest: training steps after the warm-up.
        fetch: fetches of their loader.
        batches: batches per step.
    """
    waits = rest.data_wait_s[(rest.count == 1) & ~(rest.edge_s > 0) & np.isfinite(rest.data_wait_s)]
    if not fetch.workers or fetch.empty_share is None or not len(waits):
        return None
    ready = (1.0 - fetch.empty_share) ** max(batches, 1.0)
    # These steps waited least. The quantile is a quarter into them: a batch may lie ready while the loop waits for the
    # batch before it.
    return float(np.quantile(waits, ready / 4.0)) if ready >= SELDOM_READY else None


def stored_s(vitals: Vitals) -> float:
    """Seconds for which a fetch waits for the storage; 0 unless that is most of the fetch."""
    waiting_s = _storage_s(vitals)
    return waiting_s if waiting_s >= STORAGE_WAITS * (vitals.fetch_wall_s or 0.0) else 0.0


def served_s(vitals: Vitals) -> float:
    """Seconds of a fetch in which it waits for storage or copies memory, which more workers may not make faster."""
    alone_s = (vitals.fetch_wall_s or 0.0) - (vitals.fetch_queued_s or 0.0)
    copies = (vitals.fetch_read_bytes or 0.0) >= COPIED_BYTES_PER_S * alone_s > 0.0
    return alone_s if copies else _storage_s(vitals)


def _storage_s(vitals: Vitals) -> float:
    """Seconds for which a fetch waits for the storage; 0 if it reads nothing from there, or bytes were not counted."""
    wall, cpu, stored = vitals.fetch_wall_s, vitals.fetch_cpu_s, vitals.fetch_stored_bytes
    if not wall or cpu is None or not stored:
        return 0.0
    waiting_s = max(wall - cpu - (vitals.fetch_queued_s or 0.0), 0.0)
    if vitals.fetch_stored_share is not None:  # fetches that read nothing from the storage wait for something else
        waiting_s = min(waiting_s, vitals.fetch_stored_share * wall)
    return waiting_s if stored >= SLOWEST_BYTES_PER_S * waiting_s else 0.0


def _other_threads_s(cpu_s: float, loop_s: float, fetch_s: float, own_s: float, setup: Setup) -> float:
    """CPU seconds that a step's fetches used on threads of this process other than the fetching one.

    A fetch is timed by the clock of its own thread, but a tokenizer, or torch itself, computes on several. In a worker
    one thread does all of it.

    The result is the CPU time that the process used beyond the most that the loop's own work can have used on all of
    torch's threads, and beyond what idle threads spin.

    Args:
        cpu_s: CPU seconds of a step, without the fetching thread's own_s.
        loop_s: wall-clock seconds of a step without its wait for data.
        fetch_s: wall-clock seconds of the fetches.
        own_s: CPU seconds of the fetching thread.
        setup: setup of the run.
    """
    threads = 1 if setup.on_gpu else setup.torch_threads
    if threads is None:
        return 0.0
    least = max(cpu_s - loop_s * threads - SPIN_S * (threads - 1), 0.0)
    most = max(fetch_s * max(setup.usable_cores, 1.0) - own_s, 0.0)
    return min(least, most) if least >= BESIDE_SHARE * fetch_s else 0.0


def _each(total: float | None, count: int | None) -> float | None:
    """Returns the mean, or None if the total or the count is missing or the count is 0."""
    return total / count if total is not None and count else None


def slow_part_s(vitals: Vitals) -> float:
    """Seconds that a few slow batches add to the mean fetch; 0 if batches are even.

    Queueing for a core and computing are left out: that is work, however it is spread over the batches.
    """
    wall, median, slow = vitals.fetch_wall_s, vitals.fetch_median_s, vitals.fetch_p99_s
    if not wall or not median or slow is None or slow < UNEVEN * median:
        return 0.0
    part = wall - max(median, vitals.fetch_cpu_s or 0.0) - (vitals.fetch_queued_s or 0.0)
    return part if part >= SLOW_PART * wall else 0.0


def with_other_runs(vitals: Vitals, others: Sequence[Vitals]) -> Vitals:
    """Returns the vitals with the fetch times of other runs of the same loop, which had other numbers of workers.

    Runs whose settings differ in more than the loading are left out.
    """

    def rest(run: Vitals) -> dict[str, object]:  # settings that do not concern the loading
        return {name: value for name, value in run.settings.items() if name not in PIPELINE}

    found = tuple(
        (run.workers, run.fetch_wall_s - (run.fetch_queued_s or 0.0), run.fetch_cpu_s)
        for run in others
        if run.workers is not None and run.fetch_wall_s and run.fetch_cpu_s is not None and rest(run) == rest(vitals)
    )
    return replace(vitals, other_fetches=found)


def contending_runs(vitals: Vitals) -> tuple[int, float, int, float] | None:
    """Finds two runs that show fetches holding each other up: with more workers, a fetch waits (not computes) longer.

    Returns:
        The smaller number of workers and the seconds of its fetch, then the larger number and its seconds. None if no
        two runs show it; in a single run such a wait looks like one for a slow server.
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
