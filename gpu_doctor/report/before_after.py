"""Both sides of a trial to one time scale: where a step goes, and how its steps spread, before and after the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals, paced_s, warmup_rows
from gpu_doctor.diagnosis.words import anatomy_rows
from gpu_doctor.recording import CLEAN, Recording, describe
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.report.remembered import Remembered
from gpu_doctor.report.runs import vitals_of
from gpu_doctor.report.trials import Sides
from gpu_doctor.trials.compare import Effect

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
BEYOND: Final = 1.5
"""A bursty loader's slow steps last several times the mean: the scale goes so far beyond the longer bar at most."""
FEWEST: Final = 5
"""Steps whose spread is told; of fewer, five quantiles are nothing but the steps themselves."""


_spreads: Remembered[list[float]] = Remembered()


@dataclass(frozen=True)
class OneSide:
    """One side of a trial."""

    label: str
    total: str
    """`41.3 ms`; where its steps hold another number of samples, for as many as a step of the other side."""
    step_s: float
    """The same in seconds."""
    phases: tuple[tuple[str, float, float], ...]
    """Phase, its share of the step, and its seconds of `step_s`."""
    quantiles_s: tuple[float, ...]
    """Of its steps' times, at QUANTILES; empty where there are too few."""

    @property
    def spread(self) -> str:
        """`median 40.0 ms, 90 % of the steps 39.1 ms to 44.0 ms`; empty where there are too few steps."""
        if not self.quantiles_s:
            return ""
        low, _, middle, _, high = (formatting.seconds(one) for one in self.quantiles_s)
        return f"median {middle}, 90 % of the steps {low} to {high}"


@dataclass(frozen=True)
class BeforeAfter:
    """A trial whose sides are set beside each other."""

    of: str
    """`trial 3: means of 48 and 48 steps of its last pair of runs`."""
    sides: tuple[OneSide, OneSide]

    @property
    def scale_s(self) -> float:
        """The end of the time scale of bars and spreads; a spread that goes far beyond the bars is cut off there."""
        longest = max(one.step_s for one in self.sides)
        slowest = max((one.quantiles_s[-1] for one in self.sides if one.quantiles_s), default=0.0)
        return min(max(longest, slowest), BEYOND * longest)


def newest(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> BeforeAfter | None:
    """The newest trial that measured both sides; None before any.

    Args:
        effects: of a case, oldest first.
        sides: the recordings of each.
    """
    for number, (effect, both) in reversed(list(enumerate(zip(effects, sides, strict=True), 1))):
        if both is None or effect.speedup is None or effect.outcome not in CLEAN:
            continue
        before, after = (vitals_of(one) for one in both)
        if before.host_step_s and after.host_step_s:
            steps = f"{formatting.grouped(before.measured_steps)} and {formatting.grouped(after.measured_steps)}"
            of = f"trial {number}: means of {steps} steps of its last pair of runs"
            return BeforeAfter(of, (_side(both[0], before), _side(both[1], after, effect.batch_ratio)))
    return None


def _side(recording: Recording, vitals: Vitals, ratio: float | None = None) -> OneSide:
    """`ratio`: samples of its step over those of the other side's step, where they differ."""
    each, own_s = ratio or 1.0, vitals.host_step_s or 0.0
    step = f" for as many samples ({formatting.seconds(own_s)} a step)" if ratio else ""
    return OneSide(
        label=formatting.clean(describe(recording.settings), 120),
        total=formatting.seconds(own_s / each) + step,
        step_s=own_s / each,
        phases=tuple((phase, share, took / each) for phase, share, took in anatomy_rows(vitals)),
        quantiles_s=tuple(one / each for one in _spreads.of(recording, lambda: _quantiles(recording))),
    )


def _quantiles(recording: Recording) -> list[float]:
    """Of the time of a step after warm-up."""
    training = recording.steps.where(recording.steps.kind == TRAINING)
    steps = training if len(training) else recording.steps
    loader = recording.setup.training_loader
    rows = steps.rows(warmup_rows(steps, loader.num_workers if loader is not None else 0), len(steps))
    took = paced_s(recording, rows) / rows.count
    took = took[np.isfinite(took)]
    return np.quantile(took, QUANTILES).tolist() if len(took) >= FEWEST else []
