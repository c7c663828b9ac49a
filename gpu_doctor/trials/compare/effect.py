"""Two sides of a comparison: speed-up in samples/s, its interval, a verdict, and what happened to the loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.diagnosis import busy_machine, others_share
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import Recording, SettingValue, describe
from gpu_doctor.trials.compare import batch_scaling
from gpu_doctor.trials.compare.losses import BREAKS, DIFFERENT, loss_words, parity, spread
from gpu_doctor.trials.compare.measured_on import measured_on
from gpu_doctor.trials.compare.pairs import Measured, has_samples, pair_of, wait_share, warm_pairs
from gpu_doctor.trials.compare.ratio import FEWEST_ROWS, PairLog, Ratio, ratio

FASTER: Final = 1.03
"""A gain is worth keeping from here on (a treatment plan climbs until nothing gains 3 %). An interval that lies within
this and its inverse is no difference."""
SURELY: Final = 1.01
"""The interval's nearer end must lie beyond this for faster or slower: what is left of bias between equal runs."""
FAR: Final = 1.15
"""Smallest gain that a trial promises to find."""
A_PAIR: Final = 0.015
"""Increase per pair of the upper end below which a trial stops, from FASTER up to FAR: after four pairs `at most
1.06x` is an answer, after ten `at most 1.15x`. With 0.01, equal sides of a quiet loop took 5 pairs instead of 4; 1.05x
was found in 84 % of the replayed trials instead of 78 %, and 1.1x as often."""
NARROWED: Final = 6
"""Pairs after which the nearer end of an interval is the answer (`at least 1.3x`), however wide it is."""
CLEAR: Final = 1.5
"""A gain whose nearer end is this or more is an answer at once, however wide the interval is."""
MEASURED_S: Final = 0.05
"""Seconds that a side must measure before a difference is claimed. Equal stretches of 1 to 18 ms on two shared cores
were called faster or slower in 3 to 8 % of tries, up to 5.3x; from 33 ms on in 0 to 2.5 %, and never beyond 1.3x."""
STALL_S: Final = 0.01
"""A candidate too fast for that is faster if it would be with one stall of the scheduler more (a tick at 100 Hz)."""
UNMEASURED: Final = ("failed", "out-of-memory", "refused")
"""Outcomes without a speed: a candidate that fails is no cure, however fast its first steps were."""
COLD: Final = "because one side read from disk and the other from the page cache"
ALL_COLD: Final = f"no fair pair of runs, {COLD}: try again, the data is cached now"
BROKEN: Final = (*UNMEASURED, "interrupted", "stopped")
"""Outcomes after which a comparison has no further pair."""
AS_PASTED, BY_SETTINGS = "as pasted", "by settings"
"""Ways in which the last trial of a treatment ran: the cell's changed text, or the cell as written under knobs."""

_Pairs: TypeAlias = dict[int, tuple[Measured, Measured]]
"""Baseline and candidate of each pair, by its number in the trial."""


@dataclass(frozen=True)
class Effect:
    """The result of a trial of some settings against the baseline, or of compare() on two recordings."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    baseline_settings: Mapping[str, SettingValue] = field(default_factory=dict)
    speedup: float | None = None
    """Samples/s of the candidate over the baseline's; None if one of them measured nothing."""
    low: float | None = None
    """Lower end of the 95 % interval of `speedup`."""
    high: float | None = None
    verdict: str = "inconclusive"
    """faster, slower, no-difference (the interval lies within FASTER), inconclusive."""
    predicted_speedup: float | None = None
    outcome: str = "completed"
    """completed, budget-reached, interrupted, stopped, out-of-memory, failed, refused."""
    reason: str = ""
    """Sentence for a result that is not clean: the refusal, the failure, or what fitted instead; else empty."""
    loss_drift: float | None = None
    """Largest relative difference of the two loss curves over the same samples; None = no losses to compare."""
    loss_verdict: str | None = None
    """same, different, not-finite (see `compare.losses`); None = as `loss_drift`, or batches of another size."""
    loss_first_step: int | None = None
    """First step (from 1) at which the losses differ, or the candidate's is not finite; None for other verdicts."""
    loss_alone: float | None = None
    """Largest relative difference of the losses of runs without the change; None = there was but one."""
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
    """Wall-clock seconds that the comparison took."""
    unit: str = "samples/s"
    """`steps/s` where no batch dimension could be read on one side."""
    busy: float | None = None
    """Share of the usable cores that other programs used during the trial, 0 to 1; None if not measured."""
    not_restored: tuple[str, ...] = ()
    """Clauses on what the trial could not restore: `a trial cannot put back: it (generator)`."""
    predicted_low: float | None = None
    """Lower end of the forecast of `predicted_speedup`; None if it had no interval."""
    predicted_high: float | None = None
    cold_pairs: int = 0
    """Pairs of runs that were not judged: one side read from the storage what others found in the page cache."""
    pairs: int = 0
    """Pairs of runs that were judged."""
    batch_ratio: float | None = None
    """Samples per step of the candidate over the baseline's; None if they are equal or were not read."""
    device: str = ""
    """Device that it was measured on, such as `NVIDIA H100 (cuda:0)`, with the machine's name if it is not this one,
    and both devices if the sides differ. Empty if no step ended."""
    elsewhere: bool = False
    """True if `device` is not on this machine or differs between the sides, so that reports name it."""
    verified: str = ""
    """`as pasted`: the candidate ran the cell's text with the settings written in. `by settings`: knobs were turned, in
    the last trial of a treatment. Empty for every other trial."""

    def __str__(self) -> str:
        parts = [self._judgement()]
        if self.predicted_speedup is not None:
            ends = formatting.interval(self.predicted_low, self.predicted_high)
            parts.append(f"predicted {formatting.forecast(self.predicted_speedup)}" + (f" ({ends})" if ends else ""))
        told = self.loss_drift is not None and (self.loss_changed or not self.loss_drift < 0.005)
        if told or self._breaks_anyway():
            parts.append(self.loss_words)
        turned = self.baseline_settings and dict(self.settings) != dict(self.baseline_settings)
        against = f" against {formatting.clean(describe(self.baseline_settings))}" if turned else ""
        asks = [self.scaling] if self.scaling else []
        took = [f"took {formatting.seconds(self.seconds)}"] if self.seconds else []
        said = [", ".join(parts), *asks, *self.notes, *took]
        return f"{self._candidate()}{against}: " + "; ".join(said)

    _repr_pretty_ = formatting.pretty

    def _candidate(self) -> str:
        """Returns the name of the candidate: its settings, or its place in the order if both sides have the same."""
        name = formatting.clean(describe(self.settings))
        if dict(self.settings) != dict(self.baseline_settings):
            return name
        return f"{name}, second run against the first" if self.settings else "second run against the first"

    @property
    def way(self) -> str:
        """Says how a treatment's result was verified: `measured again by running the changed cell`; else empty."""
        way = {AS_PASTED: "by running the changed cell", BY_SETTINGS: "by settings"}.get(self.verified)
        return f"measured again {way}" if way and self.speedup is not None else ""

    @property
    def loss_words(self) -> str:
        """Says how the losses compare: `loss within 0.3 %`; empty if there is nothing to compare."""
        if self._breaks_anyway():
            return "loss is NaN or infinite at the end, also without the change"
        return loss_words(self.loss_verdict, self.loss_drift, self.loss_first_step, self.loss_alone)

    @property
    def scaling(self) -> str:
        """Returns the advice on the learning rate as a clause; empty for the same batch size."""
        return batch_scaling.clause(self.batch_ratio)

    @property
    def loss_changed(self) -> bool:
        """True if the losses differ by more than this loop's do by themselves, or become NaN or infinite."""
        return self.loss_verdict in (BREAKS, DIFFERENT)

    def _breaks_anyway(self) -> bool:
        """True if the last losses of both sides are no numbers: they may be the same, but nothing is learned."""
        ends = (self.baseline_loss, self.candidate_loss)
        return not self.loss_changed and all(end is not None and not math.isfinite(end) for end in ends)

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns further clauses on the trial, each without a capital or a full stop."""
        said = [self.way] if self.way else []
        said += [f"measured on {formatting.clean(self.device, 120)}"] if self.elsewhere else []
        said += self.not_restored
        busy = busy_machine(self.busy)
        said += [busy] if busy else []
        if self.cold_pairs and self.reason != ALL_COLD:
            said.append(f"{formatting.count(self.cold_pairs, 'pair')} of runs not judged, {COLD}")
        return tuple(said)

    @property
    def verdict_words(self) -> str:
        """Returns the verdict in words; if nothing is proved, the measured bound: `at most 1.08x`."""
        if self.verdict != "inconclusive" or self.high is None or self.reason:
            return self.verdict.replace("-", " ")
        bound = f"at most {formatting.factor(self.high)}"
        return bound if self.high < FAR else f"inconclusive, {bound}"

    @property
    def settled(self) -> bool:
        """True if the interval gives an answer that further pairs would only sharpen; valid after any pair.

        It does if faster or slower is proved and the interval is narrow or CLEAR. It also does if the upper end is too
        low for the settings to be worth more pairs; that bound begins at FASTER and rises with each pair.
        """
        if self.high is None or (self.verdict == "inconclusive" and self.reason):
            return False
        if self.high < max(FASTER, min(1.0 + A_PAIR * self.pairs, FAR)):
            return True
        narrow = self.pairs >= NARROWED or not formatting.is_wide(self.speedup, self.low, self.high)
        clear = self.low is not None and (self.low >= CLEAR or self.high <= 1.0 / CLEAR)
        return self.verdict in ("faster", "slower") and (narrow or clear)

    def _judgement(self) -> str:
        why = f": {formatting.clean(self.reason)}" if self.reason else ""
        if self.speedup is None:
            ended = self.outcome in BROKEN
            return f"{OUTCOME_LABELS.get(self.outcome, self.outcome) if ended else 'nothing was measured'}{why}"
        left = f" ({self.outcome}{why})" if self.outcome in BROKEN else why
        return f"{formatting.speedup(self.speedup, self.low, self.high)} {self.verdict_words}{left}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the effect as plain data (numbers, strings, None, two mappings)."""
        plain = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in plain.items()}


def compare(
    baseline: Recording | Sequence[Recording],
    candidate: Recording | Sequence[Recording],
    *,
    predicted: float | None = None,
) -> Effect:
    """Compares two sides whose runs took turns (A B B A).

    Args:
        baseline: one or several recordings of the first side.
        candidate: recordings of the second side; `baseline[i]` and `candidate[i]` ran next to each other, the baseline
            first if i is even.
        predicted: forecast of the speed-up, to show with the measured speed-up.

    Returns:
        The speed-up in samples/s after warm-up (steps/s if one side has no batch dimension, see `unit`) with its 95 %
        interval (see `compare.ratio`), a verdict, and the losses of the first pair. A candidate that failed, did not
        fit or was refused has no speed-up; a stopped candidate has the speed-up of its steps so far. Runs from
        different machines have a speed-up but no verdict, and the reason says so.

    Raises:
        TypeError: if a side is anything else, such as the path of a recording.
        ValueError: if a side has no recording.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> gpu_doctor.compare(recording, recording).speedup
        1.0
    """
    bases, candidates = _side_of(baseline), _side_of(candidate)
    if not bases or not candidates:
        raise ValueError("compare() needs at least one recording of each side.")
    outcome, reason = _outcome(bases, candidates)
    by_samples = all(has_samples(recording) for recording in (*bases, *candidates) if len(recording.steps))
    pairs = [pair_of(b, c, by_samples) for b, c in zip(bases, candidates, strict=False)]
    whole = [all(side.whole for side in pair) for pair in pairs]
    warm = [fair and full for fair, full in zip(warm_pairs(bases, candidates), whole, strict=True)]
    measured = _compared(pairs, warm if any(warm) else whole, _numbers(bases))
    own = [base.losses for base in bases]
    batch = batch_scaling.batch_ratio(bases, candidates)
    losses = parity(own, candidates[0].losses, same_batch=batch is None)
    compared = outcome not in UNMEASURED
    peaks = [candidate.peak_bytes for candidate in candidates if np.isfinite(candidate.peak_bytes)]
    where = measured_on(bases, candidates)
    effect = Effect(
        settings=dict(candidates[0].settings),
        baseline_settings=dict(bases[0].settings),
        predicted_speedup=predicted,
        outcome=outcome,
        reason=reason,
        loss_drift=losses.drift if compared else None,
        loss_verdict=losses.verdict if compared else None,
        loss_first_step=losses.first_step if compared else None,
        loss_alone=spread(own) if compared else None,
        baseline_loss=losses.baseline,
        candidate_loss=losses.candidate,
        peak_bytes=max(peaks, default=None),
        steps=int(sum(side.steps.count.sum() for pair in measured.values() for side in pair)),
        seconds=float(sum(recording.duration_s for recording in (*bases, *candidates))),
        unit="samples/s" if by_samples else "steps/s",
        busy=others_share((*bases, *candidates)),
        cold_pairs=sum(whole) - sum(warm) if compared else 0,
        pairs=len(measured) if compared and any(warm) else 0,
        batch_ratio=batch if compared else None,
        device=where.device,
        elsewhere=where.told,
    )
    if not compared:
        return effect
    if not measured:
        return dataclasses.replace(effect, reason=reason or _nothing(pairs))
    effect = _with_speed(effect, measured, by_samples)
    if where.unfair:
        return dataclasses.replace(effect, verdict="inconclusive", reason=reason or where.unfair)
    return effect if any(warm) else dataclasses.replace(effect, verdict="inconclusive", reason=reason or ALL_COLD)


def without_losses(effect: Effect) -> Effect:
    """Returns an effect without its losses, for sides that are not meant to learn the same."""
    nothing = {item.name: None for item in dataclasses.fields(Effect) if "loss" in item.name}
    return dataclasses.replace(effect, **nothing)  # type: ignore[arg-type]


def _side_of(given: Recording | Sequence[Recording]) -> list[Recording]:
    """Returns the recordings of one side as a list.

    Raises:
        TypeError: if it is anything else.
    """
    side = [given] if isinstance(given, Recording) else list(given) if isinstance(given, Sequence) else [given]
    wrong = next((item for item in side if not isinstance(item, Recording)), None)
    if isinstance(given, str) or wrong is not None:
        raise TypeError(f"compare() takes recordings, such as gpu_doctor.load(path) gives, not {given!r:.60}.")
    return side


def _numbers(bases: Sequence[Recording]) -> list[int]:
    """Returns the number of each pair, from 0; a change of machine between two pairs skips two numbers.

    So the parity of a number still shows which side ran first, and pairs of different machines are not neighbours.
    """
    moved = [0, *(2 * (base.setup.machine != following.setup.machine) for base, following in pairwise(bases))]
    return [number + sum(moved[: number + 1]) for number in range(len(bases))]


def _compared(pairs: Sequence[tuple[Measured, Measured]], fair: Sequence[bool], numbers: Sequence[int]) -> _Pairs:
    """Returns the fair pairs by their number in the trial.

    A run that the end of the trial's seconds cut short has no interval and would leave the others none, so its pair is
    left out where there are others.
    """
    used = {number: pair for number, pair, good in zip(numbers, pairs, fair, strict=False) if good}
    return {number: pair for number, pair in used.items() if min(map(len, pair)) >= FEWEST_ROWS} or used


def _with_speed(effect: Effect, pairs: _Pairs, by_samples: bool) -> Effect:
    stretches = [(b.stretch(by_samples), c.stretch(by_samples)) for b, c in pairs.values()]
    result = ratio([PairLog.of(*pair, number) for number, pair in zip(pairs, stretches, strict=True)])
    rates = [
        float(sum(measured.amount.sum() for measured in side) / sum(measured.wall_s.sum() for measured in side))
        for side in zip(*stretches, strict=True)
    ]
    waits = [wait_share([measured.steps for measured in side]) for side in zip(*pairs.values(), strict=True)]
    # The longest step of each run is left out: it may be nothing but a stall.
    seconds = [
        sum(float(measured.wall_s.sum() - measured.wall_s.max()) for measured in side)
        for side in zip(*stretches, strict=True)
    ]
    verdict = verdict_of(result)
    few = "too few steps for an interval: give the trial more seconds or steps" if result.low is None else ""
    short = verdict in ("faster", "slower") and _too_short(*seconds)
    told = (
        f"one side measured only {formatting.seconds(min(seconds))} of steps, too short to compare: let the loop run "
        "for more steps"
    )
    return dataclasses.replace(
        effect,
        reason=effect.reason or (told if short else few),
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
    """True if a stall of the machine explains the difference: a side measured little, and the other is not far more."""
    shorter, longer = min(seconds), max(seconds)
    return shorter < MEASURED_S and longer < max(MEASURED_S, FAR * (shorter + STALL_S))


def verdict_of(result: Ratio) -> str:
    """Returns the verdict of an interval: faster, slower, no-difference or inconclusive."""
    value, low, high = result.value, result.low, result.high
    if low is None or high is None:
        return "inconclusive"
    if value >= FASTER and low > SURELY:
        return "faster"
    if value <= 1 / FASTER and high < 1 / SURELY:
        return "slower"
    return "no-difference" if high < FASTER and low > 1 / FASTER else "inconclusive"


def _nothing(pairs: Sequence[tuple[Measured, Measured]]) -> str:
    """Returns the sentence that says why there is no speed to compare."""
    sides = [name for i, name in enumerate(("baseline", "candidate")) if not any(len(pair[i]) for pair in pairs)]
    where = f" in the {sides[0]}" if len(sides) == 1 else ""
    return f"No training step was seen{where}, so there is no speed to compare."


def _outcome(bases: Sequence[Recording], candidates: Sequence[Recording]) -> tuple[str, str]:
    """Returns outcome and reason of a comparison: the candidate's trouble first, then the baseline's."""
    for side, name in ((candidates, ""), (bases, "The baseline ended early")):
        for recording in side:
            if recording.outcome in BROKEN:
                return recording.outcome, ": ".join(part for part in (name, recording.reason) if part)
    return candidates[-1].outcome, candidates[-1].reason
