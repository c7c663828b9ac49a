"""Two sides of a comparison: speed-up in samples/s, its interval, a verdict, and what happened to the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gpu_doctor import wording
from gpu_doctor.interval import Ratio, Stretch, ratio
from gpu_doctor.parity import parity
from gpu_doctor.recording import TRAINING, Recording, SettingValue, Steps, describe
from gpu_doctor.vitals import warmup_rows

FASTER: Final = 1.03
"""A gain is worth keeping from here on (a treatment plan climbs until nothing gains 3 %)."""
SURELY: Final = 1.01
"""The interval's nearer end must lie beyond this for faster or slower: what is left of bias between equal runs."""
NEAR: Final = 1.05
"""No difference: the estimate is nearer to 1 than this (nobody changes a training for less) ..."""
FAR: Final = 1.15
"""... and the interval rules out a gain or loss of this size, the smallest that a trial promises to find."""
BELIEVED: Final = 1.10
"""Smaller gains and losses are claimed only after a third pair: two pairs agree by chance too often."""
MOST_PAIRS: Final = 4
"""Pairs of runs after which a comparison that is not clear is left inconclusive."""
ONE_PAIR: Final = 1.5
"""An interval beyond this is clear after one pair: more than a machine's mood explains."""
MEASURED_S: Final = 0.05
"""Seconds that a side must measure before a difference is claimed. Equal stretches of 1 to 18 ms on two shared cores
were called faster or slower in 3 to 8 % of tries, up to 5.3x; from 33 ms on in 0 to 2.5 %, and never beyond 1.3x."""
STALL_S: Final = 0.01
"""A candidate too fast for that is faster if it would be with one stall of the scheduler more (a tick at 100 Hz)."""
UNMEASURED: Final = ("failed", "out-of-memory", "refused")
"""Outcomes that leave no speed: a candidate that fails is no cure, however fast its first steps were."""
_BROKEN: Final = (*UNMEASURED, "interrupted", "stopped")


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
        parts = [self._judgement()]
        if self.predicted_speedup is not None:
            parts.append(f"predicted {wording.forecast(self.predicted_speedup)}")
        if self.loss_drift is not None and not self.loss_drift < 0.005:
            parts.append(f"loss {wording.parity(self.loss_drift)}")
        against = f" against {wording.clean(describe(self.baseline_settings))}" if self.baseline_settings else ""
        return f"{wording.clean(describe(self.settings))}{against}: " + ", ".join(parts)

    def _judgement(self) -> str:
        why = f": {wording.clean(self.reason)}" if self.reason else ""
        if self.speedup is None:
            ended = self.outcome in _BROKEN
            return f"{wording.OUTCOME_LABELS.get(self.outcome, self.outcome) if ended else 'nothing was measured'}{why}"
        left = f" ({self.outcome}{why})" if self.outcome in _BROKEN else why
        return f"{wording.speedup(self.speedup, self.low, self.high)} {self.verdict}{left}"

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain data (numbers, strings, None, two mappings)."""
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in plain.items()}


def compare(
    baseline: Recording | Sequence[Recording],
    candidate: Recording | Sequence[Recording],
    *,
    predicted: float | None = None,
) -> Effect:
    """Compares two sides whose runs took turns (A B A B).

    Args:
        baseline, candidate: a recording each, or several; `baseline[i]` and `candidate[i]` ran next to each other.
        predicted: the speed-up that was forecast, to be shown beside the measured one.

    Returns:
        The speed-up in samples/s after warm-up (steps/s where one side has no batch dimension, see `unit`) with its
        95 % interval (see `gpu_doctor.interval`), a verdict, and the loss of the first pair. A candidate that failed,
        did not fit or was refused has no speed-up; one that was stopped has that of the steps it did.

    Raises:
        TypeError: if a side is anything else, such as the path of a recording.
        ValueError: if a side has no recording.
    """
    bases, candidates = _side(baseline), _side(candidate)
    if not bases or not candidates:
        raise ValueError("compare() needs at least one recording of each side.")
    outcome, reason = _outcome(bases, candidates)
    by_samples = all(_has_samples(one) for one in (*bases, *candidates) if len(one.steps))
    pairs = [_pair(b, c, by_samples) for b, c in zip(bases, candidates, strict=False)]
    measured = [pair for pair in pairs if all(len(steps) and steps.wall_s.sum() > 0 for steps in pair)]
    losses = parity(bases[0].losses, candidates[0].losses)
    peaks = [one.peak_bytes for one in candidates if np.isfinite(one.peak_bytes)]
    effect = Effect(
        settings=dict(candidates[0].settings),
        baseline_settings=dict(bases[0].settings),
        predicted_speedup=predicted,
        outcome=outcome,
        reason=reason,
        loss_drift=None if outcome in UNMEASURED else losses.drift,
        baseline_loss=losses.baseline,
        candidate_loss=losses.candidate,
        peak_bytes=max(peaks, default=None),
        steps=int(sum(steps.count.sum() for pair in measured for steps in pair)),
        seconds=float(sum(one.duration_s for one in (*bases, *candidates))),
        unit="samples/s" if by_samples else "steps/s",
    )
    if outcome in UNMEASURED:
        return effect
    if not measured:
        return dataclasses.replace(effect, reason=reason or _nothing(pairs))
    return _with_speed(effect, measured, by_samples)


def _side(given: Recording | Sequence[Recording]) -> list[Recording]:
    side = [given] if isinstance(given, Recording) else list(given) if isinstance(given, Sequence) else [given]
    wrong = next((one for one in side if not isinstance(one, Recording)), None)
    if isinstance(given, str) or wrong is not None:
        raise TypeError(f"compare() takes recordings, such as gpu_doctor.load(path) gives, not {given!r:.60}.")
    return side


def needs_more(baseline: Recording | Sequence[Recording], candidate: Recording | Sequence[Recording]) -> bool:
    """Whether another pair of runs is worth its time.

    A second pair always is, unless the first is beyond doubt. A third is while the verdict is open, and before a small
    gain or loss is believed; more only while it is open, up to MOST_PAIRS. None is after a failure, a refusal, an
    interrupt or a Stop.
    """
    effect = compare(baseline, candidate)
    pairs = min(1 if isinstance(side, Recording) else len(side) for side in (baseline, candidate))
    low, high = effect.low, effect.high
    if effect.outcome in _BROKEN or pairs >= MOST_PAIRS:
        return False
    if low is None or high is None or effect.speedup is None:
        return True
    if pairs < 2:
        return low < ONE_PAIR and high > 1 / ONE_PAIR
    small = 1 / BELIEVED < effect.speedup < BELIEVED
    claimed = effect.verdict in ("faster", "slower")
    return effect.verdict == "inconclusive" or (claimed and small and pairs < 3)


def _with_speed(effect: Effect, pairs: Sequence[tuple[Steps, Steps]], by_samples: bool) -> Effect:
    stretches = [(_stretch(b, by_samples), _stretch(c, by_samples)) for b, c in pairs]
    result = ratio(stretches)
    rates = [
        float(sum(one.amount.sum() for one in side) / sum(one.wall_s.sum() for one in side))
        for side in zip(*stretches, strict=True)
    ]
    waits = [_wait_share(side) for side in zip(*pairs, strict=True)]
    # The longest step of each run is left out: it may be nothing but a stall.
    seconds = [sum(float(one.wall_s.sum() - one.wall_s.max()) for one in side) for side in zip(*stretches, strict=True)]
    verdict = _verdict(result)
    short = verdict in ("faster", "slower") and _too_short(*seconds)
    told = (
        f"only {1e3 * min(seconds):.2g} ms of steps were measured on one side, where a stall of the machine outweighs "
        "any change: let the loop run for more steps"
    )
    return dataclasses.replace(
        effect,
        reason=effect.reason or (told if short else ""),
        speedup=result.value,
        low=result.low,
        high=result.high,
        verdict="inconclusive" if short else verdict,
        baseline_samples_per_s=rates[0],
        candidate_samples_per_s=rates[1],
        baseline_wait_share=waits[0],
        candidate_wait_share=waits[1],
    )


def _too_short(*seconds: float) -> bool:
    """Whether a stall of the machine explains the difference: a side measured little, and the other is not far more."""
    shorter, longer = min(seconds), max(seconds)
    return shorter < MEASURED_S and longer < max(MEASURED_S, FAR * (shorter + STALL_S))


def _verdict(result: Ratio) -> str:
    value, low, high = result.value, result.low, result.high
    if low is None or high is None:
        return "inconclusive"
    if value >= FASTER and low > SURELY:
        return "faster"
    if value <= 1 / FASTER and high < 1 / SURELY:
        return "slower"
    near = 1 / NEAR <= value <= NEAR
    return "no-difference" if near and low > 1 / FAR and high < FAR else "inconclusive"


def _nothing(pairs: Sequence[tuple[Steps, Steps]]) -> str:
    """Why there is no speed to compare."""
    sides = [name for i, name in enumerate(("baseline", "candidate")) if not any(len(pair[i]) for pair in pairs)]
    where = f" on the {sides[0]}'s side" if len(sides) == 1 else ""
    return f"No training step was seen{where}, so there is no speed to compare."


def _outcome(bases: Sequence[Recording], candidates: Sequence[Recording]) -> tuple[str, str]:
    """Outcome and reason of the comparison: the candidate's trouble first, then the baseline's, else how it ended."""
    for side, name in ((candidates, ""), (bases, "The baseline ended early")):
        for one in side:
            if one.outcome in _BROKEN:
                return one.outcome, ": ".join(part for part in (name, one.reason) if part)
    return candidates[-1].outcome, candidates[-1].reason


def _has_samples(recording: Recording) -> bool:
    samples = recording.steps.samples
    return bool(np.isfinite(samples).all() and samples.sum() > 0)


def _measured_from(recording: Recording) -> tuple[Steps, int]:
    """The rows that count (as `vitals.measure` takes them), and how many of them are warm-up."""
    training = recording.steps.kind == TRAINING
    steps = recording.steps.where(training) if training.any() and not training.all() else recording.steps
    loader = recording.setup.training_loader
    return steps, warmup_rows(steps, loader.num_workers if loader is not None else 0)


def _pair(baseline: Recording, candidate: Recording, by_samples: bool) -> tuple[Steps, Steps]:
    """Measured rows of one pair; where both sides do the same work per step, the same steps of both.

    Otherwise an evaluation pass, an epoch's edge or a checkpoint that only one side's budget reached would be taken
    for a difference in speed.
    """
    (a, warm_a), (b, warm_b) = _measured_from(baseline), _measured_from(candidate)
    single = all(len(side) and bool((side.count == 1).all()) for side in (a, b))
    if single and (not by_samples or np.isclose(np.median(a.samples), np.median(b.samples), rtol=0.01)):
        warm, stop = max(warm_a, warm_b), min(len(a), len(b))
        if stop - warm >= 0.6 * min(len(a) - warm_a, len(b) - warm_b):
            return a.rows(warm, stop), b.rows(warm, stop)
    return a.rows(warm_a), b.rows(warm_b)


def _stretch(steps: Steps, by_samples: bool) -> Stretch:
    return Stretch(steps.wall_s, steps.samples if by_samples else steps.count)


def _wait_share(side: Sequence[Steps]) -> float | None:
    """Data wait over wall-clock of all runs of a side (host clock), None if it was not measured."""
    share = sum(one.data_wait_s.sum() for one in side) / sum(one.wall_s.sum() for one in side)
    return None if np.isnan(share) else float(share)
