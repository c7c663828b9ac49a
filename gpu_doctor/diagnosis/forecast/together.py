"""What several settings give at once: each changes stages of the step, and the slowest stage binds what is left.

Gains are never multiplied: workers hide a wait once, whatever the batch, and what is hidden gains nothing by being made
shorter. The usual forecast takes the usual change of each setting; how far off one of them may be is found by taking
its ends while the others stay usual, and all such doubts are taken together as independent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from gpu_doctor.diagnosis.forecast.batch_size import Growth, batch_forecast, growth
from gpu_doctor.diagnosis.forecast.copies import copies_with
from gpu_doctor.diagnosis.forecast.prediction import Forecast, doubt, error_band
from gpu_doctor.diagnosis.forecast.stages import Stages
from gpu_doctor.diagnosis.forecast.stages import stages as stages_of
from gpu_doctor.diagnosis.forecast.workers import first_batches_s, step_with, with_workers
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import Settings

COPYING: Final = ("pin_memory", "non_blocking")
"""Settings that change how batches are copied to the GPU."""
End: TypeAlias = Literal[0, 1, 2]
"""Of a change: what leaves the step longest, what is usual, what leaves it shortest."""
SLOW: Final[End] = 0
USUAL: Final[End] = 1
FAST: Final[End] = 2


@dataclass(frozen=True)
class Change:
    """What a setting does to a loop: to its stages, at one end of what is known of it, and to what else is asked."""

    stages: Callable[[Stages, End], Stages]
    certain: bool = False
    """Its ends are the same."""
    vitals: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the vitals, and of the loader in them, that are no longer what was measured."""


def together(v: Vitals, changed: Settings, others: Sequence[Vitals] = ()) -> Forecast | None:
    """What several settings give at once; None where one of them has no forecast.

    Args:
        v: of the loop as it is.
        changed: settings that it has not.
        others: vitals of other runs of the same loop.
    """
    found = stages_of(v)
    changes = None if found is None else _changes(v, found, changed, others)
    if found is None or changes is None:
        return None
    then = _vitals_after(v, changes)
    workers = int(changed.get("num_workers", found.workers))
    # The model is as far off as it is for the loop that was measured.
    off = found.step / step_with(found, found.workers, v)[0]

    def step(doubted: int | None = None, end: End = USUAL) -> Forecast:
        """The step where one of the changes has come to an end of what is known of it."""
        left = found
        for index, change in enumerate(changes):
            left = change.stages(left, end if index == doubted else USUAL)
        return _as_left(left, then, off, workers)

    usual = step()
    doubted = [index for index, change in enumerate(changes) if not change.certain]
    longer = [max(step(one, SLOW).step_s / usual.step_s, 1.0) for one in doubted]
    shorter = [max(usual.step_s / step(one, FAST).step_s, 1.0) for one in doubted]
    grown = changed.get("batch_size")
    samples = 1.0 if grown is None or v.loader is None else int(grown) / (v.loader.batch_size or int(grown))
    seen = None if grown is None else batch_forecast(v, int(grown), others)
    speedup = samples * found.step / usual.step_s
    return Forecast(
        speedup,
        speedup / doubt(usual.speedup / usual.low, *longer),
        speedup * doubt(usual.high / usual.speedup, *shorter),
        usual.step_s,
        usual.why,
        None if seen is None else seen.peak_bytes,
    )


def _as_left(left: Stages, v: Vitals, off: float, workers: int) -> Forecast:
    """Of a loop as the other settings leave it, with so many workers: the step's seconds, and how sure they are.

    Args:
        left: stages as the other settings leave them.
        v: vitals of the run.
        off: times as long as the model says.
        workers: of the loader by now.
    """
    step, why = step_with(left, left.workers, v)
    now = replace(left, step=max(off * step, 1e-9))
    if workers != left.workers:
        return with_workers(now, v, workers)
    band = 1.0 + error_band(v)
    return Forecast(1.0, 1.0 / band, band, now.step, why)


def _vitals_after(v: Vitals, changes: Sequence[Change]) -> Vitals:
    fields: dict[str, Any] = {name: one for change in changes for name, one in change.vitals.items()}
    of_loader: dict[str, Any] = {name: one for change in changes for name, one in change.loader.items()}
    return replace(v, loader=v.loader and replace(v.loader, **of_loader), **fields)


def _changes(v: Vitals, s: Stages, changed: Settings, others: Sequence[Vitals]) -> list[Change] | None:
    """What the settings but the number of workers do; None where that of one of them is not known."""
    if not set(changed) <= {"num_workers", *COPYING, *CHANGES}:
        return None
    asked: list[Change | None] = []
    if any(name in changed for name in COPYING):
        asked.append(_copied(v, changed, others))
    asked += [make(v, s, changed, others) for name, make in CHANGES.items() if name in changed]
    known = [one for one in asked if one is not None]
    return known if len(known) == len(asked) and int(changed.get("num_workers", 0)) >= 0 else None


def _copied(v: Vitals, changed: Settings, others: Sequence[Vitals]) -> Change | None:
    """Without workers the loop pins each batch itself: it counts how many there will be."""
    if not all(changed[name] is True for name in COPYING if name in changed):
        return None
    then = replace(v, workers=int(changed.get("num_workers", v.workers or 0)))
    found = copies_with(then, "pin_memory" in changed, others)
    if found is None or v.step_wall_s is None:
        return None
    return _saving(*(v.step_wall_s - one for one in (found.worst_s, found.step_s, found.best_s)))


def _saving(*saved_s: float) -> Change:
    """So many seconds less of the loop's own work: at least, usually, at most."""

    def change(s: Stages, end: End) -> Stages:
        own = max(s.consumer - saved_s[end], 1e-9)
        return replace(s, consumer=own, consumer_cpu=s.consumer_cpu * own / s.consumer if s.consumer > 0 else 0.0)

    return Change(change)


def _kept(v: Vitals, s: Stages, changed: Settings, others: Sequence[Vitals]) -> Change | None:
    """Workers that stay start once: of an epoch's edge its first batch is left."""
    first = first_batches_s(v)
    if changed["persistent_workers"] is not True or not int(changed.get("num_workers", s.workers)):
        return None
    if s.workers:
        return None if first is None else Change(lambda s, end: replace(s, edge=min(s.edge, first)), certain=True)
    return Change(lambda s, end: s, certain=True, loader={"persistent_workers": True})


def _resized(v: Vitals, s: Stages, changed: Settings, others: Sequence[Vitals]) -> Change | None:
    """A loop with another batch size: an epoch has fewer steps for more samples in each."""
    size = int(changed["batch_size"])
    found = growth(v, s, size, others)
    if found is None or v.loader is None:
        return None
    timed = ("fetch_wall_s", "fetch_cpu_s", "fetch_median_s", "fetch_p99_s", "fetch_queued_s")
    longer = {name: one * found.fetch for name in timed if (one := getattr(v, name)) is not None}
    batches = None if v.loader.batches is None else max(round(v.loader.batches / found.samples), 1)
    return Change(partial(_grown, found), vitals=longer, loader={"batch_size": size, "batches": batches})


def _grown(times: Growth, s: Stages, end: End) -> Stages:
    own, device = times.own[end], times.device[end]
    return replace(
        s,
        consumer=s.consumer * own,
        consumer_cpu=s.consumer_cpu * own,
        device=s.device * device,
        fetch=s.fetch * times.fetch,
        fetch_cpu=s.fetch_cpu * times.fetch,
        queued=s.queued * times.fetch,
        storage=s.storage * times.fetch,
        pages=s.pages * times.samples,
        edge=s.edge * times.samples,
    )


CHANGES: Final[Mapping[str, Callable[[Vitals, Stages, Settings, Sequence[Vitals]], Change | None]]] = {
    "persistent_workers": _kept,
    "batch_size": _resized,
}
"""In the order in which they act on the step as it was measured; the number of workers comes last."""
