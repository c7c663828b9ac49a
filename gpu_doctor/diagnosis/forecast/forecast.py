"""Forecasts what a change of settings gives, by simple arithmetic on the measured seconds of the vitals.

It covers the number of workers and whether they persist (see `workers`), pinned copies, and the batch size if a second
size was measured. Nothing else has a forecast, nor do combinations across these: only a trial can tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from gpu_doctor.diagnosis.forecast.batch_size import batch_forecast
from gpu_doctor.diagnosis.forecast.copies import without_copies
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import stages as stages_of
from gpu_doctor.diagnosis.forecast.workers import with_workers
from gpu_doctor.diagnosis.vitals.distributed import workers_in_shm
from gpu_doctor.diagnosis.vitals.fetching import with_other_runs
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.recording import Settings

GOOD_ENOUGH: Final = 1.05
"""Factor by which the best number of workers may be faster than the advised one, which is the smallest within it."""
CANDIDATES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WORKERS_PER_CORE: Final = 4
FEW_CORES_MOST: Final = 16
"""At most WORKERS_PER_CORE workers are considered for each core, and FEW_CORES_MOST on few cores."""
FULL_QUEUE_GAP: Final = 0.05
"""A GPU that limits its loop and idles for less than this share always has work in its queue."""
PIPELINE: Final = {"num_workers", "persistent_workers"}


def forecast(vitals: Vitals, settings: Settings, others: Sequence[Vitals] = ()) -> Forecast | None:
    """Predicts what a change of settings gives.

    Args:
        vitals: vitals of the loop as it is.
        settings: knob values; values that the run had already are ignored.
        others: vitals of other runs of the same loop, such as with another batch size.

    Returns:
        The forecast, or None if these runs cannot tell.
    """
    if vitals.step_wall_s is None or vitals.measured_steps < FEWEST_STEPS:
        return None
    written = {name: getattr(vitals.loader, name, None) for name in ("batch_size", "persistent_workers", "pin_memory")}
    now = {**written, "num_workers": vitals.workers, **vitals.settings}
    changed = {name: value for name, value in settings.items() if now.get(name) != value}
    if changed and set(changed) <= PIPELINE:
        return _pipeline(with_other_runs(vitals, others) if others else vitals, changed)
    if changed == {"pin_memory": True}:
        return without_copies(vitals, pins=True)
    if set(changed) == {"batch_size"}:
        return batch_forecast(vitals, int(changed["batch_size"]), others)
    return None


def _pipeline(v: Vitals, changed: Settings) -> Forecast | None:
    """Forecasts another number of workers, or persistent workers; None if there are no workers or epochs to persist.

    None too for 0 workers in a loop whose full queue keeps its GPU busy: launches wait for room in the queue, so the
    time left for fetching is unknown.
    """
    found, workers = stages_of(v), int(changed.get("num_workers", v.workers or 0))
    stay = changed.get("persistent_workers")
    if found is None or workers < 0 or stay is False or (stay and not workers):
        return None
    if stay and "num_workers" not in changed and not found.edge:
        return None
    if not workers and v.device_limits and (v.gpu_gap_share or 0.0) < FULL_QUEUE_GAP:
        return None
    return with_workers(found, v, workers, stay=bool(stay))


def best_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """Finds the smallest number of workers (at least 1) within 5 % of the best, with its forecast.

    Only numbers whose forecast pays are compared, if any does: when starting workers is slow, only a few may pay.

    Returns:
        The number and its forecast; None if the fetch was not timed.
    """
    known = {n: found for n in worker_counts(vitals) if (found := _pipeline(vitals, {"num_workers": n})) is not None}
    return fewest_near_best({n: found for n, found in known.items() if found.pays} or known)


def fewest_near_best(known: Mapping[int, Forecast], margin: float = GOOD_ENOUGH) -> tuple[int, Forecast] | None:
    """Finds the smallest number of workers within `margin` of the best; None if `known` is empty.

    Args:
        known: number of workers, rising, -> forecast.
        margin: factor by which the best may be faster.
    """
    best = max((found.speedup for found in known.values()), default=0.0)
    return next(((n, found) for n, found in known.items() if found.speedup * margin >= best), None)


def worker_counts(vitals: Vitals) -> list[int]:
    """Lists the numbers of workers to consider (at least 1), rising; empty if the fetch was not timed.

    They go up to twice what the loop needs if fetches only waited; the forecast accounts for the cores.
    """
    stages = stages_of(vitals)
    if stages is None:
        return []
    demand = math.ceil(stages.fetch / stages.loaders / max(*stages.host, stages.device, 1e-9))
    most = max(min(2 * demand, max(WORKERS_PER_CORE * int(stages.cores[0]), FEW_CORES_MOST)), 1)
    ahead = vitals.loader.prefetch_factor if vitals.loader is not None else None
    room = workers_in_shm(vitals.shm_free_bytes, vitals.batch_bytes, ahead) / stages.loaders
    if room < 1:
        return []  # the batches of a single one would fill /dev/shm
    most = int(min(most, room))
    return sorted({*(n for n in CANDIDATES if n <= most), min(most, CANDIDATES[-1])})
