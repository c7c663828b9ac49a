"""How long a step takes with so many workers: the slowest of its stages, and what that is not sure of.

See `forecast` for the model, `stages` for the seconds that it takes from a recording.
"""

from __future__ import annotations

import math
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast import worker_costs
from gpu_doctor.diagnosis.forecast.epoch_end import DRAW_ALL, DRAWN_S
from gpu_doctor.diagnosis.forecast.prediction import Forecast, doubt, error_band
from gpu_doctor.diagnosis.forecast.sharing import APART, MIDDLE, TOGETHER, Sharing, fetch_bound_s, loop_bound_s
from gpu_doctor.diagnosis.forecast.slow_batches import stalled_s, usual_s
from gpu_doctor.diagnosis.forecast.stages import Stages
from gpu_doctor.diagnosis.forecast.stages import stages as stages_of
from gpu_doctor.diagnosis.forecast.worker_costs import handing_s, starting_s
from gpu_doctor.diagnosis.vitals.fields import Vitals

ALONE: Final = (1.0, 0.75, 0.5)
"""What computing takes without workers, of what it takes beside them: at most all of it, at least half, and usually
the middle. The loop and its workers wake each other, to cold caches and into new pages: nothing recorded tells what
that takes, but it is over soon, so that of long computing no more is slowed than lasts as long as handing over on
either side."""
TIED: Final = 1.01
"""Sharing the cores binds a step if it makes it longer by more than rounding."""


def step_with(s: Stages, workers: int, v: Vitals, doubt: float = 1.0, cores: float | None = None) -> tuple[float, str]:
    """Seconds of a step with so many workers, and the stage that binds.

    Args:
        s: the stages.
        workers: of each loader.
        v: what the stages were read off.
        doubt: scales the cost of handing over.
        cores: that our work gets; None = its fair part.
    """
    # What several threads of the loop's process computed with, a worker computes with one.
    fetch = max(s.fetch, s.fetch_cpu) if workers else s.fetch + s.fetch_cpu * (1.0 / s.speed - 1.0)
    if workers == 0:
        return max(_alone(s, fetch, v, doubt), s.device), "the loop fetches every batch itself"
    handed, (edge, staggered) = doubt * s.handed, _edge_with(s, workers, v, doubt)
    each = " for each loader" if s.loaders > 1.5 else ""
    bounds = {
        "the loop's own work": s.consumer + handed + edge,
        "the GPU": s.device + edge,
        f"fetching with {workers} worker{'s' if workers > 1 else ''}{each}": (fetch + handed) / (workers * s.loaders)
        + staggered,
        "batches that take far longer than the rest": usual_s(s, v, workers) + stalled_s(s, v, workers),
    }
    worth, sharing = _end(s, doubt)
    shared = (s.work(workers, handed), (cores or s.cores) * worth, sharing, 0.0 if cores else s.others)
    on_cores = max(loop_bound_s(*shared) + edge, fetch_bound_s(*shared) + staggered)
    stage = max(bounds, key=lambda name: bounds[name])
    if on_cores > TIED * bounds[stage]:
        stage = f"the CPU work of loading and of the loop on {_cores(s)}"
    return max(on_cores, *bounds.values()), stage


def _end(s: Stages, doubt: float) -> tuple[float, Sharing]:
    """What a core is worth where all compute, and how threads get on that share cores: at best, usually, at worst."""
    if doubt == 1.0:
        return s.worth[1], MIDDLE
    return (s.worth[0], APART) if doubt > 1.0 else (s.worth[2], TOGETHER)


def _alone(s: Stages, fetch: float, v: Vitals, doubt: float) -> float:
    """Seconds of a step of a loop that fetches by itself; of one that has workers, what they may slow down is left out.

    Where handing over is dear (`doubt`), a loop without it is fast.
    """
    if not s.workers:
        return s.consumer + fetch
    slow, usual, fast = ALONE
    part = usual if doubt == 1.0 else fast if doubt > 1.0 else slow
    slowed = min(min(s.consumer_cpu, s.consumer) + min(s.fetch_cpu, fetch), 2.0 * doubt * s.handed)
    return s.consumer + fetch - (1.0 - part) * slowed + drawing_s(v) * s.batches / _epoch_batches(s, v)


def _cores(s: Stages) -> str:
    if s.worth[1] == 1.0:
        return formatting.cores(s.cores)
    return f"{formatting.count(s.cores, 'hardware thread')} that share cores"


def _edge_with(s: Stages, workers: int, v: Vitals, doubt: float) -> tuple[float, float]:
    """Seconds a step that starting workers will cost: scaled from what this run's starts cost, else by constants.

    Returns:
        What a loop pays that is held up until all have started; and what one pays that is bound by fetching: workers
        start one after the other, and those that have fetch already, so that half of them is late on average.
    """
    if s.workers > 0:
        edge = s.edge * (1.0 + workers / s.workers) / 2.0
        return edge, edge
    stay, first = v.loader is not None and v.loader.persistent_workers, s.fetch / s.batches / 2.0
    every, half = (
        ((0.0 if stay else doubt * starting_s(v, late)) + first) * s.batches / _epoch_batches(s, v)
        for late in (workers, (workers + 1) / 2.0)
    )
    return every, half


def _epoch_batches(s: Stages, v: Vitals) -> float:
    """Batches of an epoch: of all loaders that are pulled in turn; a stream without a length tells by its epochs."""
    if v.loader is not None and v.loader.batches:
        return float(v.loader.batches)
    # The epochs that were touched: the last may have been left early, so that this many batches are the least.
    return max(v.measured_steps * s.batches / s.loaders / max(v.epochs or 1, 1), 1.0)


def with_workers(s: Stages, v: Vitals, workers: int) -> Forecast:
    """What so many workers give over the step that the stages have now."""
    step, stage = step_with(s, workers, v)
    least, most = worker_costs.doubt(v)
    sure, doubtful = (step_with(s, workers, v, one)[0] for one in ((least, most) if workers else (most, least)))
    # Where the loop as it is runs faster than the model of it says, the model is that much too slow.
    known = min(s.step / step_with(s, s.workers, v)[0], 1.0) if s.workers and workers else 1.0
    floor = max(s.consumer if workers else sure, s.device, 1e-9)
    step, sure, doubtful = (max(known * one, floor) for one in (step, sure, doubtful))
    hoped, feared = s.step / min(sure, step), None if s.workers else s.step / max(doubtful, step)
    error = 1.0 + error_band(v)
    dear, cheap = max(doubtful / step, 1.0), max(step / sure, 1.0)
    # Without workers both doubts are of the same thing, what a fetch takes in the loop itself: they add up.
    slowest, fastest = (
        (step * doubt(error, dear), step / doubt(error, cheap))
        if workers
        else (step * dear / (2.0 - error), step / (error * cheap))
    )
    if s.others and workers:
        # Whether more of our processes get more of a taken machine depends on how it is shared out, which cannot be
        # read: by threads they do, by users or containers they do not. The forecast lies between the two.
        frozen, worst = (step_with(s, workers, v, one, s.frozen_cores)[0] for one in (1.0, most))
        step, slowest = math.sqrt(step * max(frozen, step)), max(worst, doubtful) * error
        stage += (
            f", on a busy machine (other programs run about {formatting.average(s.others)} threads beside this one)"
        )
    if s.storage > step and workers * s.loaders > max(s.workers, 1):
        # How much more storage or memory gives to several readers no recording can tell: nothing (a disk, a limit of so
        # many MB/s) or all of it (a server that is only late). The forecast lies between the two.
        step, slowest = math.sqrt(step * s.storage), max(doubtful, s.storage) * error
        stage += ", as far as storage and memory serve several at once"
    fastest = min(max(fastest, floor / (1.0 + error_band(v) / 2.0)), step)
    return Forecast(s.step / step, s.step / slowest, s.step / fastest, step, stage, hoped=hoped, feared=feared)


def stalled_share(v: Vitals, workers: int) -> float:
    """Of the wall-clock as it is, what slow batches would still make the loop wait with so many workers."""
    s = stages_of(v)
    return stalled_s(s, v, workers) / s.step if s is not None and s.step > 0 else 0.0


def drawing_s(v: Vitals) -> float:
    """Seconds that the sampler takes at an epoch's begin, in the loop itself; 0 where it draws as it goes."""
    loader = v.loader
    if loader is None or loader.sampler not in DRAW_ALL or not loader.dataset_len:
        return 0.0
    return (v.setup.speeds.drawn_index_s or DRAWN_S) * loader.dataset_len


def taking_s(v: Vitals) -> float:
    """Seconds of `next()` for a batch that a worker has ready."""
    return handing_s(v, 1.0, v.batch_bytes or 0.0, v.batch_tensors)


def first_batches_s(v: Vitals) -> float | None:
    """Seconds a step of what is left of the epochs' edges where workers stay: their first batches.

    Returns:
        None without workers, and where no epoch's edge was seen.
    """
    edges = (v.epochs or 1) - 1
    if not v.workers or not v.edge_share or v.step_wall_s is None or v.fetch_wall_s is None or not edges:
        return None
    return min((v.fetch_wall_s + taking_s(v) + drawing_s(v)) * edges / v.measured_steps, v.edge_share * v.step_wall_s)
