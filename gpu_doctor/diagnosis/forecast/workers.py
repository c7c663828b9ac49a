"""Forecasts a step with another number of workers, or with persistent ones: the slowest of its stages.

Without workers the loop fetches by itself: step = max(host + fetch, device). With w workers: step = max(host +
handover, device, fetch / w, (fetch CPU + host CPU) / cores), plus the cost of epoch starts. Values that the recording
lacks (handover and start of workers if there were none, storage shared by more readers) have a best and a worst case:
both are computed, and the forecast is the middle.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.prediction import Forecast, between
from gpu_doctor.diagnosis.forecast.stages import HANDOVER_MOST_S, Stages
from gpu_doctor.diagnosis.vitals.fields import Vitals

BEST: Final = 0
WORST: Final = 1
THREADED: Final = 1.2
"""A loop that uses more cores than this computes with several threads. An operator waits for its slowest thread: at
worst, if a worker computes on that thread's core, it takes twice as long."""
START_MOST_S: Final = {"fork": 0.03, "forkserver": 3.0, "spawn": 3.0}
"""Most seconds that starting a worker adds to an epoch's start, by start method, if the run started none (a fork copies
page tables, the others import torch again). It only widens a band."""


def with_workers(s: Stages, v: Vitals, workers: int, stay: bool = False) -> Forecast:
    """Forecasts the loop with another number of workers.

    Args:
        s: stages of the loop as it is.
        v: vitals of the loop as it is.
        workers: worker processes of each loader.
        stay: True if workers persist from epoch to epoch.
    """
    ends = [_step_s(s, v, workers, stay, end) for end in (BEST, WORST)]
    (best, why), (worst, _) = min(ends), max(ends)
    return between(v, best, worst, why, s.step)


def _step_s(s: Stages, v: Vitals, workers: int, stay: bool, end: int) -> tuple[float, str]:
    """Returns seconds of a step in the best or worst case, and the stage that limits it."""
    steady, why = _steady_s(s, workers, end)
    measured = max(s.step - s.edge, 1e-9)
    if workers and workers == s.workers:
        steady, why = measured, "the loop as it runs within an epoch"
    elif workers and s.workers:  # the arithmetic is as far off as it is for the loop that was measured
        computed = max(_steady_s(s, s.workers, end)[0], 1e-9)
        steady *= min(measured / computed, 1.0)
        if end == WORST or workers > s.workers:  # the time that the arithmetic misses may come from too many workers
            steady += max(measured - computed, 0.0)
    edge = _edge_s(s, v, workers, stay, end) if workers else 0.0
    return max(steady + edge, 1e-9), why


def _steady_s(s: Stages, workers: int, end: int) -> tuple[float, str]:
    """Returns seconds of a step within an epoch, and the stage that limits it."""
    if not workers:
        return max(_host_alone_s(s, end) + s.fetch, s.device), "fetching in the loop itself"
    each, fetchers = " for each loader" if s.loaders > 1.5 else "", workers * s.loaders
    took = {
        "the loop's own work": s.host[WORST] + s.handover[end],
        "the GPU": s.device,
        f"fetching with {formatting.count(workers, 'worker')}{each}": s.fetch / fetchers,
        f"the CPU work of loading and of the loop on {formatting.cores(s.cores[BEST])}": (s.fetch_cpu + s.host_cpu)
        / s.cores[end],
    }
    threads = s.host_cpu / s.host[WORST] if s.host[WORST] > 0 else 0.0
    if end == WORST and threads > THREADED and threads + fetchers > s.cores[end]:
        slowed = s.host[WORST] + min(s.fetch_cpu, s.host[WORST])
        took["the loop's threads, which share their cores with workers"] = slowed + s.handover[end]
    readers = max(s.workers, 1) * s.loaders
    if fetchers > readers:
        took["storage or a lock that more workers do not speed up"] = s.alone[end] / readers
    return max((seconds, why) for why, seconds in took.items())


def _host_alone_s(s: Stages, end: int) -> float:
    """Seconds of the loop's own work if its workers go; they slow it down, as they use its caches and wake it up.

    At best half of it goes, but no more than the bound for handing over a batch; at worst it takes as long as now.
    """
    if not s.workers or end == WORST:
        return s.host[end]
    return s.host[end] - min(s.host[end] / 2.0, HANDOVER_MOST_S * s.batches)


def _edge_s(s: Stages, v: Vitals, workers: int, stay: bool, end: int) -> float:
    """Seconds per step that epoch starts cost with this number of workers."""
    per_step = v.edges / max(v.measured_steps, 1)
    first = (s.fetch / s.batches + s.handover[end] / s.batches) * per_step
    if not s.workers:
        persistent = stay or (v.loader is not None and v.loader.persistent_workers)
        method = v.loader.start_method if v.loader is not None else ""
        start = (
            0.0 if persistent or end == BEST else START_MOST_S.get(method, START_MOST_S["fork"]) * workers * per_step
        )
        return first + start
    if stay:
        return min(first, s.edge)
    return (min, max)[end](s.edge, s.edge * workers / s.workers)
