"""Batches that take far longer than the rest: how many there are, and what the stock of prefetched ones leaves of them.

Workers hand batches over in order, and fetch no more than `prefetch_factor` each ahead. While the loop trains on those,
a slow one has so long to come; it waits out the rest, however many workers have nothing to do meanwhile.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.forecast.stages import Stages
from gpu_doctor.diagnosis.vitals.distributed import PREFETCH
from gpu_doctor.diagnosis.vitals.fields import Vitals

UNEVEN: Final = 5.0
"""The slowest batch in a hundred takes so many times the median (catalogue)."""


def ahead(v: Vitals) -> int:
    """Batches that each worker fetches ahead, or would if there were any."""
    return (v.loader.prefetch_factor if v.loader is not None else None) or PREFETCH


def usual_s(s: Stages, v: Vitals, workers: int) -> float:
    """Seconds of a step with workers in which all batches take as long to fetch as most do."""
    median_s = min((v.fetch_median_s or 0.0) * s.batches, s.fetch)
    return max(s.consumer, s.device, median_s / (workers * s.loaders))


def slow_part_s(v: Vitals) -> float:
    """Of a fetch on average, seconds by which slow batches exceed the usual one, less what they queued for a core.

    The usual one may have queued as well, for all of its time that it does not compute.
    """
    wall_s, median_s = v.fetch_wall_s or 0.0, v.fetch_median_s or 0.0
    usually_s = max(median_s - (v.fetch_cpu_s or 0.0), 0.0)
    return max(wall_s - median_s - max((v.fetch_queued_s or 0.0) - usually_s, 0.0), 0.0)


def stalled_s(s: Stages, v: Vitals, workers: int) -> float:
    """Seconds of a step in which the loop waits for slow batches that outlast what so many workers fetched ahead."""
    median_s, slow_s = v.fetch_median_s, v.fetch_p99_s
    if workers < 1 or not median_s or slow_s is None or slow_s < UNEVEN * median_s:
        return 0.0
    known_s = max((s.fetch + s.queued) / s.batches - median_s, 0.0)  # without workers, what was waited for
    share = min(min(slow_part_s(v), known_s) / (slow_s - median_s), 1.0)  # so many of them make up the mean
    stock_s = ahead(v) * workers * s.loaders * usual_s(s, v, workers) / s.batches
    return share * max(slow_s - stock_s, 0.0) * s.batches
