"""What another batch size should give: from two sizes that were seen, or from one where physics leaves no choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.prediction import BAND, Forecast, error_band
from gpu_doctor.diagnosis.forecast.stages import Stages, stages
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.diagnosis.vitals.memory_fit import fit_of_runs

ROOM: Final = "; it may not fit: it needs at most that many times the memory"
NARROW: Final = 1.25
"""From a single batch size, a forecast for another is given only if it lies between 1x and this."""


def batch_forecast(vitals: Vitals, size: int, others: Sequence[Vitals] = ()) -> Forecast | None:
    """What another batch size gives in samples/s; `others` are vitals of runs that differ in their batch size.

    Returns:
        None where the sizes seen cannot tell: from one size alone, unless fetching is nearly the whole step.
    """
    v = vitals
    now, written = v.samples_per_step, v.loader.batch_size if v.loader else None
    if now is None or v.step_wall_s is None or not written or size < 1 or v.measured_steps < FEWEST_STEPS:
        return None
    target = now * size / written
    seen = _nearest(v, others, target)
    return _one_size(v, target / now) if seen is None else _between_two(v, seen, target)


@dataclass(frozen=True)
class Growth:
    """How many times as long the stages of a step take with another batch size."""

    samples: float
    """How many times as many samples a step has."""
    fetch: float
    own: tuple[float, float, float]
    """The loop's own work: at most, usually, at least; it is fixed, or grows with the samples, or lies between."""
    device: tuple[float, float, float]
    """Of a GPU, likewise."""


def growth(v: Vitals, now: Stages, size: int, others: Sequence[Vitals] = ()) -> Growth | None:
    """What another batch size does to each stage; None where `batch_forecast` is.

    Args:
        v: of the loop as it is.
        now: its stages.
        size: of a batch.
        others: as for `batch_forecast`.
    """
    written = v.loader.batch_size if v.loader else None
    if not written or batch_forecast(v, size, others) is None:
        return None
    factor = size / written
    nearest = _nearest(v, others, (v.samples_per_step or 0.0) * factor)
    seen = None if nearest is None else stages(nearest)
    if nearest is None or seen is None or seen.workers != now.workers:
        most, least = max(factor, 1.0), min(factor, 1.0)
        fixed = min(_fixed_s(v, factor) / now.consumer, 1.0) if now.consumer > 0 else 0.0
        own = fixed + (1.0 - fixed) * most
        return Growth(factor, factor, (own, math.sqrt(own * least), least), (most, math.sqrt(most * least), least))
    times = ((nearest.samples_per_step or 0.0) / (v.samples_per_step or 1.0), factor)
    band = _band(v, times[0], factor)
    fetch, own, device = (
        _on_line(*pair, *times)
        for pair in ((now.fetch, seen.fetch), (now.consumer, seen.consumer), (now.device, seen.device))
    )
    spread = (1.0 + band, 1.0, 1.0 - band)
    return Growth(factor, fetch, _times(own, spread), _times(device, spread))


def _times(usual: float, spread: tuple[float, float, float]) -> tuple[float, float, float]:
    most, middle, least = (usual * one for one in spread)
    return most, middle, least


def _on_line(now: float, seen: float, times: float, wanted: float) -> float:
    """How many times as long a stage takes, on the line through the two sizes that were seen."""
    slope = max((seen - now) / (times - 1.0), 0.0)
    return max(1.0 + slope * (wanted - 1.0) / now, 1e-3) if now > 0 else 1.0


def _fixed_s(v: Vitals, factor: float) -> float:
    """Seconds of a step that surely take as long for a batch so many times as large."""
    if v.on_gpu:
        return _launches_s(v) or 0.0 if factor > 1.0 else 0.0
    return 0.0


def _nearest(v: Vitals, others: Sequence[Vitals], target: float) -> Vitals | None:
    """Of the runs that differ in their batch size alone, the one next to so many samples a step."""
    known = [one for one in others if _same_but_batch(v, one)]
    return min(known, key=lambda one: _apart(one.samples_per_step, target), default=None)


def _band(v: Vitals, seen: float, wanted: float) -> float:
    """Relative error on the line through two sizes, wider beyond them; both as times the size now."""
    return min(error_band(v) + BAND * math.log2(max(wanted / max(seen, 1.0), min(seen, 1.0) / wanted, 1.0)), 0.6)


def _same_but_batch(v: Vitals, other: Vitals) -> bool:
    """Whether another run differs in its batch size alone and measured enough."""
    mine = {name: value for name, value in v.settings.items() if name != "batch_size"}
    theirs = {name: value for name, value in other.settings.items() if name != "batch_size"}
    measured = other.measured_steps >= FEWEST_STEPS and other.step_wall_s is not None
    return measured and mine == theirs and other.samples_per_step not in (None, v.samples_per_step)


def _apart(samples: float | None, target: float) -> float:
    """How far two sizes are from each other, as a factor's logarithm."""
    return abs(math.log(target / samples)) if samples else math.inf


def _between_two(v: Vitals, other: Vitals, target: float) -> Forecast | None:
    """Step = fixed + slope * samples through the two sizes seen; so does peak memory."""
    b0, b1, s0, s1 = v.samples_per_step, other.samples_per_step, v.step_wall_s, other.step_wall_s
    if b0 is None or b1 is None or s0 is None or s1 is None:
        return None
    slope = max((s1 - s0) / (b1 - b0), 0.0)
    step = max(s0 + slope * (target - b0), 1e-9)
    speedup = target / step / (b0 / s0)
    band = _band(v, b1 / b0, target / b0)
    fit = fit_of_runs((v, other))
    peak = None if fit is None else fit.peak_bytes(target)
    total = v.memory_total_bytes
    fits = "" if peak is None or not total or peak < 0.95 * total else ", which would probably not fit into the memory"
    fixed = formatting.seconds(max(s0 - slope * b0, 0.0))
    why = f"{fixed} plus {formatting.seconds(slope)} a sample, from two batch sizes{fits}"
    return Forecast(speedup, speedup * (1 - band), speedup * (1 + band), step, why, peak)


def _launch_bound(v: Vitals, factor: float) -> Forecast | None:
    """A GPU that outruns the host: launches take as long for any batch, kernels at most in proportion to it.

    Kernels that are done when their launches are take no longer than these, and at worst so much more as the batch is
    larger: then nothing is gained. While they do not fill the GPU they take as long for a larger batch, which is the
    other end: how far they fill it no recording tells, and the forecast lies between the two. GPU: not yet run on one.
    """
    step, launches = v.step_wall_s, _launches_s(v)
    if factor <= 1.0 or step is None or launches is None:
        return None
    worst = step * factor
    best = (step - launches) * factor + launches  # what feeds the GPU grows with the batch
    likely = math.sqrt(worst * best)
    speedup, off = factor * step / likely, error_band(v)
    total, peak = v.memory_total_bytes, v.peak_bytes
    room = bool(peak and total and peak * factor > 0.95 * total)
    why = f"{formatting.seconds(launches)} of launches a step, whatever the batch" + (ROOM if room else "")
    low, high = (factor * step / one for one in (worst, best))
    return Forecast(speedup, low * (1 - off), high * (1 + off / 2), likely, why)


def _launches_s(v: Vitals) -> float | None:
    """Seconds of launches a step of a GPU that outruns its host; None of any other."""
    if v.step_wall_s is None or v.exposed_wait_share is None or not v.gpu_outruns_host:
        return None
    feeding = min(v.exposed_wait_share + (v.exposed_transfer_share or 0.0) + v.tripped_share, 1.0)
    return v.step_wall_s * (1.0 - feeding)


def _one_size(v: Vitals, factor: float) -> Forecast | None:
    """From one size: fetching grows with the batch, the rest of the step by at most as much."""
    step, wait = v.step_wall_s, v.data_wait_share
    if v.on_gpu:
        return _launch_bound(v, factor)
    if step is None or wait is None or v.fetch_wall_s is None:
        return None
    steady = wait * factor * step + (1.0 - wait) * step
    bound = factor * step / steady
    if not 1.0 / NARROW <= bound <= NARROW:
        return None
    speedup, band = math.sqrt(bound), error_band(v)
    why = f"fetching, {formatting.share(wait)} of the step, which grows with the batch"
    return Forecast(speedup, min(1.0, bound) * (1 - band), max(1.0, bound) * (1 + band), step * factor / speedup, why)
