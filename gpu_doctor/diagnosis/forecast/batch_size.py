"""What another batch size should give: from two sizes that were seen, or from one where physics leaves no choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.prediction import BAND, Forecast, error_band
from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.vitals.arithmetic import CORE_FLOPS, flops_at_most
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.diagnosis.vitals.memory_fit import fit_of_runs

DISPATCH_SHARE: Final = 0.3
"""A CPU is bound by going from operation to operation from this part of the wall-clock on, at the least that an
operation can take: those of a usual model take 1.4 times as much (6.8 and 9.3 us, linear layers alone and with
normalisations, activations and sums). Of seven small models, each that reached 0.3 was 1.9 to 3.7 times as fast with
four times the batch (catalogue: mean op time near dispatch cost)."""
ARITHMETIC_SHARE: Final = 0.2
"""Of forward, loss and backward, what the arithmetic of the larger batch may take for all of them to be fixed."""
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
    known = [one for one in others if _same_but_batch(v, one)]
    if known:  # of several sizes the one next to what is asked for
        return _between_two(v, min(known, key=lambda one: _apart(one.samples_per_step, target)), target)
    return _one_size(v, target / now)


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
    """step = fixed + slope * samples through the two sizes seen; so does peak memory."""
    b0, b1, s0, s1 = v.samples_per_step, other.samples_per_step, v.step_wall_s, other.step_wall_s
    if b0 is None or b1 is None or s0 is None or s1 is None:
        return None
    slope = max((s1 - s0) / (b1 - b0), 0.0)
    step = max(s0 + slope * (target - b0), 1e-9)
    speedup = target / step / (b0 / s0)
    band = min(error_band(v) + BAND * math.log2(max(target / max(b0, b1), min(b0, b1) / target, 1.0)), 0.6)
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
    step, wait = v.step_wall_s, v.exposed_wait_share
    if factor <= 1.0 or step is None or wait is None:
        return None
    if not v.launches_limit:
        return None
    feeding = min(wait + (v.exposed_transfer_share or 0.0) + v.tripped_share, 1.0)  # grows with the batch
    launches = step * (1.0 - feeding)
    worst = step * factor
    best = step * feeding * factor + launches
    likely = math.sqrt(worst * best)
    speedup, off = factor * step / likely, error_band(v)
    total, peak = v.memory_total_bytes, v.peak_bytes
    room = bool(peak and total and peak * factor > 0.95 * total)
    why = f"{formatting.seconds(launches)} of launches a step, whatever the batch" + (ROOM if room else "")
    low, high = (factor * step / one for one in (worst, best))
    return Forecast(speedup, low * (1 - off), high * (1 + off / 2), likely, why)


def _dispatch_bound(v: Vitals, factor: float, step: float) -> Forecast | None:
    """A CPU that goes from operation to operation: they, and updates, take as long for any batch.

    So much is sure only where the larger batch's arithmetic, by the number of trained weights, would still take next to
    no time. Whether fetching in the loop and Python between the phases grow with the batch no recording tells: the
    forecast lies between the two. What workers fetch meanwhile does grow.
    """
    backward, ahead = v.backward_share or 0.0, (v.forward_share or 0.0) + (v.loss_share or 0.0)
    flops = flops_at_most(v.setup)
    if flops is None:
        return None
    calls = max((v.inputs.per_step if v.inputs is not None else None) or 1.0, 1.0)
    if factor * flops * calls / CORE_FLOPS > ARITHMETIC_SHARE * (ahead + backward) * step:
        return None
    fixed, least = min(ahead + backward + (v.optimizer_share or 0.0), 1.0), factor * fetched_s(v)
    worst, best = max(step * (fixed + factor * (1.0 - fixed)), least), max(step, least)
    likely, off = math.sqrt(worst * best), error_band(v)
    why = f"{formatting.seconds(fixed * step)} of operations and updates a step that take as long for any batch"
    low, high = (factor * step / one for one in (worst, best))
    return Forecast(factor * step / likely, low * (1 - off), high * (1 + off / 2), likely, why)


def _one_size(v: Vitals, factor: float) -> Forecast | None:
    """From one size: fetching grows with the batch, the rest of the step by at most as much."""
    step, wait = v.step_wall_s, v.data_wait_share
    if v.on_gpu:
        return _launch_bound(v, factor)
    if step is not None and factor > 1.0 and (v.dispatch_share or 0.0) >= DISPATCH_SHARE:
        return _dispatch_bound(v, factor, step)
    if step is None or wait is None or v.fetch_wall_s is None:
        return None
    steady = wait * factor * step + (1.0 - wait) * step
    bound = factor * step / steady
    if not 1.0 / NARROW <= bound <= NARROW:
        return None
    speedup, band = math.sqrt(bound), error_band(v)
    why = f"fetching, {formatting.share(wait)} of the step, which grows with the batch"
    return Forecast(speedup, min(1.0, bound) * (1 - band), max(1.0, bound) * (1 + band), step * factor / speedup, why)
