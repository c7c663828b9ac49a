"""What a change of settings should give, from vitals alone: the what-if model, pure arithmetic on measured seconds.

A step is bound by its slowest stage (see `stages`). With w workers: step = max(consumer, fetch wall / w, what both take
on the same cores), with none: consumer + fetch wall. What they take on the same cores is told in `sharing`: all CPU
seconds over the cores, and more where the loop computes with several threads. Measured to hold within 13 % on two cores
with sleeping and spinning datasets, 0 to 8 workers. Where a recording cannot tell (precision, compilation, copies over
a link that nobody read) it is None: measure it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.batch_size import DISPATCH_SHARE as DISPATCH_SHARE
from gpu_doctor.diagnosis.forecast.batch_size import batch_forecast as batch_forecast
from gpu_doctor.diagnosis.forecast.copies import copies_with
from gpu_doctor.diagnosis.forecast.epoch_end import DRAW_ALL
from gpu_doctor.diagnosis.forecast.prediction import BAND as BAND
from gpu_doctor.diagnosis.forecast.prediction import FEW_STEPS_BAND, doubt, error_band
from gpu_doctor.diagnosis.forecast.prediction import LEAST_GAIN as LEAST_GAIN
from gpu_doctor.diagnosis.forecast.prediction import Forecast as Forecast
from gpu_doctor.diagnosis.forecast.sharing import APART, MIDDLE, TOGETHER, Sharing, fetch_bound_s, loop_bound_s
from gpu_doctor.diagnosis.forecast.slow_batches import stalled_s, usual_s
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND as CPU_BOUND
from gpu_doctor.diagnosis.forecast.stages import Stages
from gpu_doctor.diagnosis.forecast.stages import on_cores_s as on_cores_s
from gpu_doctor.diagnosis.forecast.stages import stages as stages_of
from gpu_doctor.diagnosis.forecast.stages import unqueued_fetch_s as unqueued_fetch_s
from gpu_doctor.diagnosis.forecast.worker_costs import DOUBT, FILLING_MOST, READING_MOST, handing, pace, starting_s
from gpu_doctor.diagnosis.vitals.distributed import workers_in_shm
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.recording import Settings

PERMUTED_S: Final = 5e-8
"""Seconds an index of a random permutation as a list (0.025, 0.037 and 0.063 us an index for 1e5, 1e6 and 3e6)."""
LEAST_ALONE: Final = (0.55, 0.25)
"""The loop's own work took 0.6 or more, a fetch 0.25 or more of what they took beside workers."""
TIED: Final = 1.01
"""Sharing the cores binds a step if it makes it longer by more than rounding."""
GOOD_ENOUGH: Final = 1.05
"""Of several numbers of workers the smallest is advised that is within 5 % of the best."""
CANDIDATES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WORKERS_PER_CORE: Final = 4
COPYING: Final = {"pin_memory", "non_blocking"}
"""Settings that change how batches are copied to the GPU."""


def forecast(vitals: Vitals, settings: Settings, others: Sequence[Vitals] = ()) -> Forecast | None:
    """Predicts what a change of one setting gives.

    Args:
        vitals: of the loop as it is.
        settings: knob values; those that the run had already are left aside.
        others: vitals of other runs of the same loop, such as with another batch size.

    Returns:
        The forecast, or None where it cannot be known from these runs: measure it.
    """
    loader, steps = vitals.loader, vitals.measured_steps
    if vitals.step_wall_s is None or steps < FEWEST_STEPS:
        return None
    written = {name: getattr(loader, name, None) for name in ("batch_size", "persistent_workers", "pin_memory")}
    now = {**written, "num_workers": vitals.workers, **vitals.settings}
    changed = {name: value for name, value in settings.items() if now.get(name) != value}
    if changed and set(changed) <= COPYING and all(value is True for value in changed.values()):
        return _copies(vitals, "pin_memory" in changed, others)  # what both give is no more than what each does
    name = next(iter(changed)) if len(changed) == 1 else ""
    return FORECASTS[name](vitals, changed[name], others) if name in FORECASTS else None


def best_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """The smallest number of workers (at least 1) within 5 % of the best, with its forecast.

    Returns:
        None where the fetch was not metered.
    """
    return enough({n: one for n in worker_counts(vitals) if (one := _workers(vitals, n)) is not None})


def enough(known: Mapping[int, Forecast], margin: float = GOOD_ENOUGH) -> tuple[int, Forecast] | None:
    """The smallest number of workers within `margin` of the best, also if handing over is cheap on this machine.

    Args:
        known: forecasts by number of workers, rising. margin: as a factor.
    """
    best = max((one.speedup for one in known.values()), default=0.0)
    hoped = max((one.hoped or one.speedup for one in known.values()), default=0.0)
    good = [n for n, one in known.items() if one.speedup * margin >= best]
    if not good:
        return None
    # Where the two do not agree (more workers on a busy machine), the usual cost decides.
    chosen = next((n for n in good if (known[n].hoped or known[n].speedup) * margin >= hoped), good[0])
    return chosen, known[chosen]


def kept_workers(vitals: Vitals) -> Forecast | None:
    """What it gives if the workers of all loaders stay, those of the evaluation passes too (no knob turns these).

    Returns:
        None where no pass after a loader's first was seen to start workers, or less than their first batch was paid.
    """
    step_s, steps = vitals.step_wall_s, vitals.measured_steps
    share = _restarted_share(vitals)
    if step_s is None or steps < FEWEST_STEPS or share is None or share <= 0:
        return None
    own = forecast(vitals, {"persistent_workers": True})
    left_s = (step_s if own is None else own.step_s) - share * step_s
    speedup, band = step_s / max(left_s, 1e-9), error_band(vitals)
    why = "the loop within its epochs and passes"
    return Forecast(speedup, max(1.0, speedup * (1 - band)), speedup * (1 + band), left_s, why)


def _restarted_share(v: Vitals) -> float | None:
    """Of the wall-clock, what evaluation passes after a loader's first pay at their begin beyond their first batch."""
    loaders = [one for one in v.setup.loaders if one.role == "evaluation"]
    edge, passes, fetch_s = v.evaluation_edge_share, v.evaluation_passes, v.evaluation_fetch_s
    if edge is None or not passes or fetch_s is None or not v.run_s:
        return None
    if not any(one.num_workers and not one.persistent_workers for one in loaders):
        return None
    again = max(passes - len(loaders), 0)
    return edge * again / passes - again * (fetch_s + taking_s(v)) / v.run_s


def worker_counts(vitals: Vitals) -> list[int]:
    """Numbers of workers worth a thought (at least 1), rising; empty where the fetch was not metered.

    A fetch that waits (disk, network) may gain from more workers than cores; one that computes never does.
    """
    stages = stages_of(vitals)
    if stages is None:
        return []
    cores = max(1, int(stages.cores))
    if stages.fetch_cpu >= CPU_BOUND * min(stages.fetch, (vitals.fetch_median_s or stages.fetch) * stages.batches):
        most = max(1, int(cores / stages.loaders))
    else:
        demand = math.ceil(stages.fetch / stages.loaders / max(stages.consumer, stages.device, 1e-9))
        most = max(WORKERS_PER_CORE * cores, min(2 * demand, CANDIDATES[-1]))
    ahead = vitals.loader.prefetch_factor if vitals.loader is not None else None
    room = workers_in_shm(vitals.shm_free_bytes, vitals.batch_bytes, ahead) / stages.loaders
    if room < 1:
        return []  # the batches of a single one would fill /dev/shm
    most = int(min(most, room))
    return sorted({*(n for n in CANDIDATES if n <= most), min(most, CANDIDATES[-1])})


def _step_with(s: Stages, workers: int, v: Vitals, doubt: float = 1.0, cores: float | None = None) -> tuple[float, str]:
    """Seconds of a step with so many workers, and the stage that binds.

    Args:
        doubt: scales the cost of handing over. cores: that our work gets; None = its fair part.
    """
    # What several threads of the loop's process computed with, a worker computes with one.
    fetch = max(s.fetch, s.fetch_cpu) if workers else s.fetch + s.fetch_cpu * (1.0 / s.speed - 1.0)
    if workers == 0:
        return max(_alone(s, fetch, v, doubt), s.device), "the loop fetches every batch itself"
    cost, (edge, staggered) = s.handing(doubt), _edge_with(s, workers, v, doubt)
    each = " for each loader" if s.loaders > 1.5 else ""
    bounds = {
        "the loop's own work": s.consumer + s.slow * cost.taking + edge,
        "the GPU": s.device + edge,
        f"fetching with {workers} worker{'s' if workers > 1 else ''}{each}": (fetch + s.slow * cost.packing)
        / (workers * s.loaders)
        + staggered,
        "batches that take far longer than the rest": usual_s(s, v, workers) + stalled_s(s, v, workers),
    }
    worth, sharing = _end(s, doubt)
    shared = (s.work(workers, cost), (cores or s.cores) * worth, sharing, 0.0 if cores else s.others)
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
    """Seconds of a step of a loop that fetches by itself; of one that has workers, what they slow down is taken out."""
    if not s.workers:
        return s.consumer + fetch
    cost = s.handing((2.0 + doubt) / 3.0)  # caches are cold after a wake-up everywhere; only how cold is doubtful
    drawing = drawing_s(v) * s.batches / max(_epoch_batches(s, v), 1.0)
    own = s.consumer - cost.beside - min(cost.reading, READING_MOST * s.consumer)
    fetch_s = fetch - cost.making - min(cost.filling, FILLING_MOST * fetch)
    return max(own, s.consumer * LEAST_ALONE[0]) + max(fetch_s, fetch * LEAST_ALONE[1]) + drawing


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
    loader, length = v.loader, _epoch_batches(s, v)
    if loader is None or not length:
        return 0.0, 0.0
    first = s.fetch / s.batches / 2.0
    every, half = (
        (doubt * starting_s(v, late) + first) * s.batches / length for late in (workers, (workers + 1) / 2.0)
    )
    return every, half


def _epoch_batches(s: Stages, v: Vitals) -> float:
    """Batches of an epoch: of all loaders that are pulled in turn; a stream without a length tells by its epochs."""
    if v.loader is not None and v.loader.batches:
        return float(v.loader.batches)
    # The epochs that were touched: the last may have been left early, so that this many batches are the least.
    return v.measured_steps * s.batches / s.loaders / max(v.epochs or 1, 1)


def _workers(v: Vitals, workers: int) -> Forecast | None:
    s = stages_of(v)
    if s is None or workers < 0:
        return None
    step, stage = _step_with(s, workers, v)
    sure, doubtful = (_step_with(s, workers, v, one)[0] for one in (DOUBT if workers else DOUBT[::-1]))
    # Where the loop as it is runs faster than the model of it says, the model is that much too slow.
    known = min(s.step / _step_with(s, s.workers, v)[0], 1.0) if s.workers and workers else 1.0
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
        frozen = max(_step_with(s, workers, v, DOUBT[1], s.frozen_cores)[0], step)
        step, slowest = math.sqrt(step * frozen), max(frozen, doubtful) * error
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
    return PERMUTED_S * loader.dataset_len


def taking_s(v: Vitals) -> float:
    """Seconds of `next()` for a batch that a worker has ready."""
    return handing(1.0, v.batch_bytes or 0.0, v.batch_tensors, pace(v)).taking


def _copies(v: Vitals, pins: bool, others: Sequence[Vitals]) -> Forecast | None:
    """Copies from pinned memory, waited for or not: see `copies.py`."""
    found = copies_with(v, pins, others)
    if found is None or v.step_wall_s is None:
        return None
    band = FEW_STEPS_BAND / math.sqrt(max(v.measured_steps, 1))
    low, usual, high = (v.step_wall_s / one for one in (found.worst_s, found.step_s, found.best_s))
    return Forecast(usual, min(low, usual) * (1 - band), max(high, usual) * (1 + band), found.step_s, found.why)


def _persistent(v: Vitals) -> Forecast | None:
    """Workers that stay: an epoch's edge then costs its first batch alone."""
    edges = (v.epochs or 1) - 1
    if not v.workers or not v.edge_share or v.step_wall_s is None or v.fetch_wall_s is None or not edges:
        return None
    first = (v.fetch_wall_s + taking_s(v) + drawing_s(v)) * edges / v.measured_steps
    step = v.step_wall_s - max(v.edge_share * v.step_wall_s - first, 0.0)
    speedup, band = v.step_wall_s / max(step, 1e-9), error_band(v)
    return Forecast(speedup, max(1.0, speedup * (1 - band)), speedup * (1 + band), step, "the loop within its epochs")


FORECASTS: Final[Mapping[str, Callable[[Vitals, Any, Sequence[Vitals]], Forecast | None]]] = {
    "num_workers": lambda vitals, value, others: _workers(vitals, int(value)),
    "batch_size": lambda vitals, value, others: batch_forecast(vitals, int(value), others),
    "persistent_workers": lambda vitals, value, others: _persistent(vitals) if value is True else None,
}
"""Knob -> what one value of it gives, beside other runs of the loop; copies, which two knobs change, stand above."""
