"""What a treatment may try next: the findings' settings, sharpened by the forecast, then what no rule has asked for.

Pure arithmetic on a diagnosis and on what was tried; nothing is run here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_doctor.diagnosis import OTHERS, Diagnosis, Forecast, Safety, Vitals, enough, worker_counts
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import FASTER
from gpu_doctor.trials.knobs.knob import Refused

WORTH: Final = FASTER
"""A setting is tried and kept for such a gain or more (3 %)."""
TRIES_A_KNOB: Final = 2
"""A knob is given up after so many values that gained nothing: the first advice, and one correction."""
ENOUGH: Final = 1.02
"""Of several numbers of workers the smallest is tried that is forecast within 2 % of the best."""
SPARE: Final = 0.25
"""So many more are tried where fetches wait: a pipeline whose workers are just as fast as the loop runs at neither's
pace (8 workers for fetches that sleep gave 7 % more than the 6 that are as fast as the loop)."""
THREADS_WORTH: Final = 1.10
"""More threads are tried if they gained so much at best (Amdahl); in practice about half of that is left."""
LAYER_S: Final = 2e-4
"""A layer runs some ten kernels a step (forward, backward, update), and to start a parallel region takes 5 to 20 us:
below such a time of a layer in a step more threads gain nothing."""
IDLE_WORKERS: Final = 0.85
"""Workers that fetch less than this of the time have some to spare (as in the rule uneven-batches)."""
WAIT_SHARE: Final = 0.05
"""torch-tb-profiler's bar for data loading."""
ON_WORKERS: Final = ("prefetch_factor", "persistent_workers")
"""Knobs that act on workers: torch refuses them where there are none."""
UPDATES_GAIN: Final = 2.0
"""A fused Adam is at least so much faster on a CPU (see the rule unfused-optimizer, which names it from 10 % on)."""
SATURATED: Final = 0.85
"""From this use of all cores on no stock of batches builds up: workers and training take the cores from each other."""
PREFETCH: Final = (2, 16)
"""torch's default prefetch_factor, and how far ahead is tried where the loop waits now and then."""


@dataclass(frozen=True)
class Move:
    """One thing to try."""

    settings: dict[str, SettingValue]
    """What it adds to the settings that are kept, or changes in them."""
    why: str
    """The rule that asked for it, or `forecast`."""
    expected: float | None = None
    """Samples/s with over without; None = nobody knows."""


@dataclass(frozen=True)
class Tried:
    """One candidate that had its trial."""

    settings: dict[str, SettingValue]
    """All of its settings."""
    turned: tuple[str, ...]
    """The knobs by which it differed from what was kept then."""
    gained: bool | None
    """Whether it was measured to gain; None while its trial is still going on."""
    lost: bool = False
    """It measured no gain at all; what gained too little to be sure, as on a busy machine, has not lost."""


def moves(diagnosis: Diagnosis, allowed: Set[Safety], kept: Settings, tried: Sequence[Tried]) -> Iterator[Move]:
    """What is worth a trial, the dearest finding's first.

    Args:
        diagnosis: of a run under the settings that are kept.
        allowed: kinds of settings that may be tried.
        kept: those found so far.
        tried: candidates so far.
    """
    for move in (*_asked(diagnosis, allowed, kept, tried), *_unasked(diagnosis.vitals, kept, tried)):
        candidate = joined(kept, move.settings)
        known = (kept, *(one.settings for one in tried))
        if candidate not in known and all(_failures(name, tried) < TRIES_A_KNOB for name in move.settings):
            yield move


def joined(kept: Settings, settings: Settings) -> dict[str, SettingValue]:
    """Settings with others added to them; without workers nothing that acts on workers is left."""
    both = {**kept, **settings}
    gone = ON_WORKERS if settings.get("num_workers") == 0 else ()
    return {name: value for name, value in both.items() if name not in gone}


def _failures(name: str, tried: Sequence[Tried]) -> int:
    return sum(name in one.turned and one.gained is False for one in tried)


def _asked(diagnosis: Diagnosis, allowed: Set[Safety], kept: Settings, tried: Sequence[Tried]) -> Iterator[Move]:
    """The findings' own settings; of those that add workers, as many as the forecast says by now."""
    v = diagnosis.vitals
    hints = (one for one in diagnosis.hints if not one.risk)  # turning a risk gains nothing that a trial could show
    for finding in (*diagnosis.findings, *hints):
        for one in finding.prescriptions:
            high = one.predicted_high
            if not one.settings or one.safety not in allowed or (high is not None and high < WORTH):
                continue
            if set(one.settings) == {"num_workers"} and int(one.settings["num_workers"]) > (v.workers or 0):
                sharper = _workers(v, kept, tried)
                if sharper is not None:
                    yield replace(sharper, why=finding.rule)
                    continue
            yield Move(dict(one.settings), finding.rule, one.predicted_speedup)


def _unasked(v: Vitals, kept: Settings, tried: Sequence[Tried]) -> list[Move]:
    """What the numbers allow and no rule has named, most promising first; all of it safe."""
    found = [
        one
        for one in (_workers(v, kept, tried), _staying(v), _ahead(v), _fused(v), _threads(v))
        if one is not None and (one.expected or 0.0) >= WORTH
    ]
    return sorted(found, key=lambda one: -(one.expected or 0.0))


# ---- workers --------------------------------------------------------------------------------------------------------


def _workers(v: Vitals, kept: Settings, tried: Sequence[Tried]) -> Move | None:
    """Another number of workers, the cheapest near the best that was not tried beside the other settings kept."""
    loader = v.loader
    if loader is None or v.workers is None or loader.refusals.get("num_workers"):
        return None
    kept_on: dict[str, SettingValue] = {"persistent_workers": True} if _could_stay(v) else {}
    least, most = _open_counts(v.workers, kept, tried)
    seen = {}
    for count in (*((0,) if v.workers else ()), *worker_counts(v)):
        one = forecast(v, {"num_workers": count, **(kept_on if count else {})}) if least < count < most else None
        if one is not None and not _was_tried(count, kept, tried):
            seen[count] = one
    if not seen:
        return None
    found, best = enough(seen, ENOUGH), max(one.speedup for one in seen.values())
    if found is None or best < WORTH:
        return None
    count = _with_spare(found[0], v, seen)
    return Move({"num_workers": count, **(kept_on if count else {})}, "forecast", seen[count].speedup)


def _with_spare(found: int, v: Vitals, seen: Mapping[int, Forecast]) -> int:
    """A number of workers that has some to spare for fetches that wait, if it is as good; see `SPARE`."""
    if v.fetch_wall_s is None or v.fetch_cpu_s is None:
        return found
    slower = v.fetch_wall_s + SPARE * max(v.fetch_wall_s - v.fetch_cpu_s, 0.0)
    side_by_side = (v.batches_per_step or 1.0) / (v.loaders_at_once or 1.0)
    enough_for = {n: one for n, one in seen.items() if n and slower * side_by_side / n <= one.step_s}
    good = (n for n, one in sorted(enough_for.items()) if n >= found and one.speedup * ENOUGH >= seen[found].speedup)
    return next(good, found)


def _open_counts(now: int, kept: Settings, tried: Sequence[Tried]) -> tuple[float, float]:
    """Numbers of workers lie between these: beyond one that lost, others lose more."""
    lost = [
        int(one.settings["num_workers"])
        for one in tried
        if one.lost and "num_workers" in one.turned and _others(one.settings) == _others(kept)
    ]
    return max((n for n in lost if n < now), default=-1), min((n for n in lost if n > now), default=math.inf)


def _was_tried(count: int, kept: Settings, tried: Sequence[Tried]) -> bool:
    return any(one.settings.get("num_workers") == count and _others(one.settings) == _others(kept) for one in tried)


def _others(settings: Settings) -> dict[str, SettingValue]:
    return {name: value for name, value in settings.items() if name not in ("num_workers", *ON_WORKERS)}


def _could_stay(v: Vitals) -> bool:
    """Whether workers may be kept over epochs, and there are epochs to keep them over."""
    loader = v.loader
    if loader is None or loader.persistent_workers or v.settings.get("persistent_workers") or (v.epochs or 1) < 2:
        return False
    try:
        knobs.allow({"num_workers": max(v.workers or 0, 1), "persistent_workers": True}, v.setup)
    except Refused:
        return False
    return True


def _staying(v: Vitals) -> Move | None:
    if not v.workers or not _could_stay(v):
        return None
    one = forecast(v, {"persistent_workers": True})
    return None if one is None else Move({"persistent_workers": True}, "forecast", one.speedup)


def _ahead(v: Vitals) -> Move | None:
    """Further ahead, where workers have time to spare and still the loop waits now and then."""
    loader, fetch_s, step_s, wait = v.loader, v.fetch_wall_s, v.step_wall_s, v.exposed_wait_share
    if loader is None or not v.workers or fetch_s is None or not step_s or wait is None:
        return None
    wait -= v.edge_share or 0.0
    busy = fetch_s * (v.batches_per_step or 1.0) / (v.workers * (v.loaders_at_once or 1.0) * step_s)
    computed_s = (v.fetch_cpu_s or 0.0) * (v.batches_per_step or 1.0) + (v.consumer_cpu_s or 0.0)
    if computed_s >= SATURATED * step_s * v.usable_cores:
        return None
    now, wanted = loader.prefetch_factor or PREFETCH[0], PREFETCH[1]
    if wait < WAIT_SHARE or busy >= IDLE_WORKERS or now >= wanted or loader.refusals.get("prefetch_factor"):
        return None
    if (v.batch_bytes or 0.0) * v.workers * wanted > 0.5 * (v.shm_free_bytes or math.inf):
        return None
    return Move({"prefetch_factor": wanted}, "forecast", 1.0 / max(1.0 - wait, 0.1))


# ---- computing on a CPU ----------------------------------------------------------------------------------------------


def _fused(v: Vitals) -> Move | None:
    """A fused Adam where the rule finds it too cheap to name."""
    facts, share = v.setup.optimizer_facts or (), v.optimizer_share or 0.0
    if v.setup.device != "cpu" or not facts:
        return None
    if not all(one.can_fuse and not one.fused and one.name.startswith("Adam") for one in facts):
        return None
    return Move({"fused_optimizer": True}, "forecast", 1.0 / (1.0 - share * (1.0 - 1.0 / UPDATES_GAIN)))


def _threads(v: Vitals) -> Move | None:
    """As many threads as there are cores to spare, where a CPU computes in pieces that are worth sharing out."""
    now, layers = v.setup.torch_threads, sum(v.setup.layers.values())
    if v.setup.device != "cpu" or now is None or not layers or not v.step_wall_s:
        return None
    parts: tuple[Any, ...] = (v.forward_share, v.backward_share, v.optimizer_share, v.loss_share)
    computing = min(sum(part or 0.0 for part in parts), 1.0)
    loading = (v.fetch_cpu_s or 0.0) * (v.batches_per_step or 1.0) / v.step_wall_s if v.workers else 0.0
    used = v.usable_cores * (v.cpu_util_pct or 0.0) / 100.0
    others = max(used - loading - (v.consumer_cpu_s or 0.0) / v.step_wall_s, 0.0)
    cores = min(v.usable_cores, v.setup.physical_cores or v.usable_cores)  # torch takes one thread a core, with reason
    wanted = int(cores - loading - (others if others >= OTHERS else 0.0) + 0.5)
    if wanted <= now or computing * v.step_wall_s / layers < LAYER_S:
        return None
    bound = 1.0 / (1.0 - computing * (1.0 - now / wanted))
    return Move({"threads": wanted}, "forecast", math.sqrt(bound)) if bound >= THREADS_WORTH else None
