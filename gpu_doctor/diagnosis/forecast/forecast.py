"""What a change of settings should give, from vitals alone: the what-if model, pure arithmetic on measured seconds.

A step is bound by its slowest stage (see `stages`). With w workers: step = max(consumer, fetch wall / w, what both take
on the same cores), with none: consumer + fetch wall. What they take on the same cores is told in `sharing`: all CPU
seconds over the cores, and more where the loop computes with several threads. Measured to hold within 13 % on two cores
with sleeping and spinning datasets, 0 to 8 workers. Where a recording cannot tell (precision, compilation, copies over
a link that nobody read) it is None: measure it.

What the user's own machine tells stands before any constant: what handing a tensor over, an epoch's order, a copy of
memory and a step of a fused optimizer take there, which is timed when the run is over; the run's own starts and edges,
copies that were waited for. Of what no run tells two things are known from one machine alone, and their ends are wide:
how well the three stages hold (`BAND`), and what caches that other work has emptied cost (`removed_work`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpu_doctor.diagnosis.forecast.batch_size import batch_forecast
from gpu_doctor.diagnosis.forecast.copies import copies_with
from gpu_doctor.diagnosis.forecast.prediction import FEW_STEPS_BAND, Forecast, error_band
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND, always_behind
from gpu_doctor.diagnosis.forecast.stages import stages as stages_of
from gpu_doctor.diagnosis.forecast.together import COPYING, together
from gpu_doctor.diagnosis.forecast.workers import first_batches_s, taking_s, with_workers
from gpu_doctor.diagnosis.vitals.distributed import workers_in_shm
from gpu_doctor.diagnosis.vitals.fields import SYNC_SHARE, Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.recording import Settings

GOOD_ENOUGH: Final = 1.05
"""Of several numbers of workers the smallest is advised that is within 5 % of the best."""
CANDIDATES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WORKERS_PER_CORE: Final = 4


def forecast(vitals: Vitals, settings: Settings, others: Sequence[Vitals] = ()) -> Forecast | None:
    """Predicts what a change of settings gives, of several at once as `together` does.

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
    if changed and set(changed) <= {*COPYING} and all(value is True for value in changed.values()):
        return _copies(vitals, "pin_memory" in changed, others)  # what both give is no more than what each does
    if len(changed) > 1:
        return together(vitals, changed, others)
    name = next(iter(changed), "")
    return FORECASTS[name](vitals, changed[name], others) if name in FORECASTS else None


def best_workers(vitals: Vitals) -> tuple[int, Forecast] | None:
    """The smallest number of workers (at least 1) within 5 % of the best, with its forecast.

    Of those that are worth an advice: where starting workers is dear (a kernel that holds gigabytes), a few may be sure
    to pay while as many as might gain most are not.

    Returns:
        None where the fetch was not metered.
    """
    known = {n: one for n in worker_counts(vitals) if (one := _workers(vitals, n)) is not None}
    return enough({n: one for n, one in known.items() if one.pays} or known)


def enough(known: Mapping[int, Forecast], margin: float = GOOD_ENOUGH) -> tuple[int, Forecast] | None:
    """The smallest number of workers within `margin` of the best, also if handing over is cheap on this machine.

    Args:
        known: forecasts by number of workers, rising.
        margin: as a factor.
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
    first = first_batches_s(v)
    if first is None or v.step_wall_s is None:
        return None
    step = v.step_wall_s - ((v.edge_share or 0.0) * v.step_wall_s - first)
    speedup, band = v.step_wall_s / max(step, 1e-9), error_band(v)
    return Forecast(speedup, max(1.0, speedup * (1 - band)), speedup * (1 + band), step, "the loop within its epochs")


def _workers(v: Vitals, workers: int) -> Forecast | None:
    """So many workers; None also where the loop could fetch while a full queue holds it up: nobody knows how long.

    A loop that waits for values has no such time: it fetches when the queue is empty.
    """
    found = stages_of(v)
    if found is None or workers < 0:
        return None
    if workers == 0 < found.workers and always_behind(v) and (v.sync_share or 0.0) < SYNC_SHARE:
        return None
    return with_workers(found, v, workers)


FORECASTS: Final[Mapping[str, Callable[[Vitals, Any, Sequence[Vitals]], Forecast | None]]] = {
    "num_workers": lambda vitals, value, others: _workers(vitals, int(value)),
    "batch_size": lambda vitals, value, others: batch_forecast(vitals, int(value), others),
    "persistent_workers": lambda vitals, value, others: _persistent(vitals) if value is True else None,
}
"""Knob -> what one value of it gives, beside other runs of the loop; copies, which two knobs change, stand above."""
