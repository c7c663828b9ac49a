"""Two sides of a comparison: speed-up in samples/s, its interval, a verdict, and what happened to the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Column, Recording, SettingValue, describe
from gpu_doctor.vitals import measure, warmup_rows


@dataclass(frozen=True)
class Effect:
    """What a trial of some settings gave, against the baseline (or what compare() found between two recordings)."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    baseline_settings: Mapping[str, SettingValue] = field(default_factory=dict)
    speedup: float | None = None
    """Samples/s of the candidate over the baseline's; None where one of them measured nothing."""
    low: float | None = None
    """Lower end of the 95 % interval of `speedup`."""
    high: float | None = None
    verdict: str = "inconclusive"
    """faster, slower, no-difference, inconclusive."""
    predicted_speedup: float | None = None
    outcome: str = "completed"
    """completed, budget-reached, interrupted, stopped, out-of-memory, failed, refused."""
    reason: str = ""
    """One sentence where there is no clean result: why refused, what failed, what fitted instead."""
    loss_drift: float | None = None
    """Largest relative difference of the two loss curves over the same samples; None = no losses to compare."""
    baseline_samples_per_s: float | None = None
    candidate_samples_per_s: float | None = None
    baseline_loss: float | None = None
    candidate_loss: float | None = None
    baseline_wait_share: float | None = None
    candidate_wait_share: float | None = None
    peak_bytes: float | None = None
    steps: int = 0
    """Measured steps of both sides together."""
    seconds: float = 0.0
    """What the comparison cost in wall-clock."""
    unit: str = "samples/s"
    """`steps/s` where no batch dimension could be read on one side."""

    def __str__(self) -> str:
        what = describe(self.settings)
        if self.speedup is None:
            return f"{what}: {self.outcome}" + (f" ({self.reason})" if self.reason else "")
        interval = f" ({self.low:.2f}-{self.high:.2f})" if self.low is not None and self.high is not None else ""
        predicted = f", predicted {self.predicted_speedup:.2f}x" if self.predicted_speedup is not None else ""
        return f"{what}: {self.speedup:.2f}x{interval}, {self.verdict}{predicted}"

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain data."""
        return {**dataclasses.asdict(self), "settings": dict(self.settings)}


FASTER: Final = 1.03
"""The interval's lower end from which on a candidate is called faster: a treatment plan keeps gains from 3 % on."""
EQUIVALENT: Final = 0.05
"""An interval inside +-5 % is no difference: what a rerun of the same code varies by on a machine in use."""
BLOCKS: Final = 10
"""Consecutive steps are resampled in so many blocks a run, because neighbouring steps are alike (bursts, drift)."""
DRAWS: Final = 2000


@dataclass(frozen=True)
class _Side:
    """One run's measured rows in blocks: wall seconds, amount (samples or steps), shape (blocks,)."""

    wall_s: Column
    amount: Column

    @property
    def rate(self) -> float:
        return float(self.amount.sum() / self.wall_s.sum())


def _blocks(recording: Recording, by_samples: bool) -> _Side | None:
    loader = recording.setup.training_loader
    steps = recording.steps
    rest = steps.rows(warmup_rows(steps, loader.num_workers if loader is not None else 0))
    if len(rest) < 2 or not rest.wall_s.sum() > 0:
        return None
    amount = rest.samples if by_samples else rest.count
    edges = np.linspace(0, len(rest), min(BLOCKS, len(rest)) + 1).astype(int)[:-1]
    return _Side(np.add.reduceat(rest.wall_s, edges), np.add.reduceat(amount, edges))


def compare(
    baseline: Recording | Sequence[Recording],
    candidate: Recording | Sequence[Recording],
    *,
    predicted: float | None = None,
) -> Effect:
    """Compares two sides whose runs alternated.

    Args:
        baseline, candidate: a recording each, or several; `baseline[i]` and `candidate[i]` ran next to each other.
        predicted: the speed-up that was forecast, to be shown beside the measured one.

    Returns:
        The speed-up in samples/s (steps/s where samples are unknown on one side) with a 95 % interval: a bootstrap over
        pairs of runs and, inside each run, over blocks of consecutive steps (Davison and Hinkley 1997, ch. 8.2.3).
    """
    bases = [baseline] if isinstance(baseline, Recording) else list(baseline)
    candidates = [candidate] if isinstance(candidate, Recording) else list(candidate)
    by_samples = all(np.isfinite(one.steps.samples).any() for one in (*bases, *candidates))
    pairs = [
        (b, c)
        for b, c in zip(
            (_blocks(one, by_samples) for one in bases), (_blocks(one, by_samples) for one in candidates), strict=False
        )
        if b is not None and c is not None
    ]
    last = candidates[-1]
    vitals = measure(bases[-1]), measure(last)
    fields: dict[str, Any] = {
        "settings": dict(last.settings),
        "baseline_settings": dict(bases[-1].settings),
        "predicted_speedup": predicted,
        "outcome": last.outcome,
        "reason": last.reason,
        "loss_drift": loss_drift(bases[0], candidates[0]),
        "baseline_loss": _final(bases[0]),
        "candidate_loss": _final(candidates[0]),
        "baseline_wait_share": vitals[0].data_wait_share,
        "candidate_wait_share": vitals[1].data_wait_share,
        "peak_bytes": None if np.isnan(last.peak_bytes) else last.peak_bytes,
        "steps": sum(measure(one).measured_steps for one in (*bases, *candidates)),
        "seconds": sum(one.duration_s for one in (*bases, *candidates)),
        "unit": "samples/s" if by_samples else "steps/s",
    }
    if not pairs or last.outcome in ("failed", "out-of-memory", "refused"):
        return Effect(**fields)
    rates = [float(np.mean([side.rate for side in sides])) for sides in zip(*pairs, strict=True)]
    low, high = _interval(pairs)
    speedup = float(np.exp(np.mean([np.log(c.rate / b.rate) for b, c in pairs])))
    return Effect(
        **fields,
        speedup=speedup,
        low=min(low, speedup),
        high=max(high, speedup),
        verdict=_verdict(low, high),
        baseline_samples_per_s=rates[0],
        candidate_samples_per_s=rates[1],
    )


def _interval(pairs: Sequence[tuple[_Side, _Side]]) -> tuple[float, float]:
    """95 % interval of the ratio; its own generator, so that no global one is touched."""
    rng = np.random.default_rng(0)
    ratios = np.empty((DRAWS, len(pairs)))
    for number, sides in enumerate(pairs):
        rates = []
        for side in sides:
            drawn = rng.integers(0, len(side.wall_s), (DRAWS, len(side.wall_s)))
            rates.append(side.amount[drawn].sum(axis=1) / side.wall_s[drawn].sum(axis=1))
        ratios[:, number] = np.log(rates[1] / rates[0])
    chosen = rng.integers(0, len(pairs), (DRAWS, len(pairs)))
    means = np.take_along_axis(ratios, chosen, axis=1).mean(axis=1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return float(low), float(high)


def _verdict(low: float, high: float) -> str:
    if low >= FASTER:
        return "faster"
    if high <= 1.0 / FASTER:
        return "slower"
    if low >= 1.0 - EQUIVALENT and high <= 1.0 + EQUIVALENT:
        return "no-difference"
    return "inconclusive"


def needs_more(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> bool:
    """Whether another pair of runs is worth its time: always a second one, a third only while nothing is clear."""
    return len(baseline) < 2 or compare(baseline, candidate).verdict == "inconclusive"


def _final(recording: Recording) -> float | None:
    value = recording.losses.value
    return float(value[-1]) if len(value) else None


def loss_drift(baseline: Recording, candidate: Recording) -> float | None:
    """Largest relative difference of the two loss curves over the same samples, inf if only the candidate's breaks.

    Curves of different batch sizes are compared where both have seen the same number of samples.
    """
    a, b = baseline.losses, candidate.losses
    if not len(a.value) or not len(b.value):
        return None
    if np.isfinite(a.value).all() and not np.isfinite(b.value).all():
        return float("inf")
    known = np.isfinite(a.samples).all() and np.isfinite(b.samples).all()
    at, to = (a.samples, b.samples) if known else (a.step, b.step)
    shared = at <= to[-1]
    there = np.interp(at[shared], to, b.value)
    scale = np.maximum(np.abs(a.value[shared]), 1e-12)
    drift = float(np.max(np.abs(there - a.value[shared]) / scale)) if shared.any() else float("nan")
    return drift if np.isfinite(drift) else None
