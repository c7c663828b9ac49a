"""Compares both sides of a trial on one time scale: a step's phases and the spread of step times, before and after."""

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
"""Largest end of the time scale, as a multiple of the longer bar: a bursty loader's slow steps last several times the
mean and would squeeze the bars."""
FEWEST: Final = 5
"""Fewest steps whose spread is shown: five quantiles of fewer steps are just the steps themselves."""


_spreads: Remembered[list[float]] = Remembered()


@dataclass(frozen=True)
class SideSummary:
    """The mean step of one side of a trial, by phase, and the spread of its step times."""

    label: str
    total: str
    """Mean step time in words, such as `41.3 ms`. If the batch size differs, it is scaled to the baseline's batch."""
    step_s: float
    """Mean step time in seconds, scaled like `total`."""
    phases: tuple[tuple[str, float, float], ...]
    """Phase name, its share of the step, and its seconds of `step_s`."""
    quantiles_s: tuple[float, ...]
    """Step times in seconds at QUANTILES; empty if there are too few steps."""

    @property
    def spread(self) -> str:
        """The spread in words, `median 40.0 ms, 90 % of the steps 39.1 ms to 44.0 ms`; empty for too few steps."""
        if not self.quantiles_s:
            return ""
        low, _, middle, _, high = (formatting.seconds(quantile) for quantile in self.quantiles_s)
        return f"median {middle}, 90 % of the steps {low} to {high}"


@dataclass(frozen=True)
class BeforeAfter:
    """The two sides of one trial, for comparison."""

    of: str
    """Name of the trial and its sample, `trial 3: means of 48 and 48 steps of its last pair of runs`."""
    sides: tuple[SideSummary, SideSummary]

    @property
    def scale_s(self) -> float:
        """The end of the time scale of bars and spreads, in seconds. A spread that goes far beyond it is cut off."""
        longest = max(side.step_s for side in self.sides)
        slowest = max((side.quantiles_s[-1] for side in self.sides if side.quantiles_s), default=0.0)
        return min(max(longest, slowest), BEYOND * longest)


def newest(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> BeforeAfter | None:
    """Returns the comparison for the newest trial that measured both sides, or None if there is none.

    Args:
        effects: effects of a case, oldest first.
        sides: recordings of each effect, in the same order.
    """
    for number, (effect, both) in reversed(list(enumerate(zip(effects, sides, strict=True), 1))):
        if both is None or effect.speedup is None or effect.outcome not in CLEAN:
            continue
        before, after = (vitals_of(recording) for recording in both)
        if before.host_step_s and after.host_step_s:
            steps = f"{formatting.grouped(before.measured_steps)} and {formatting.grouped(after.measured_steps)}"
            of = f"trial {number}: means of {steps} steps of its last pair of runs"
            return BeforeAfter(of, (_side(both[0], before), _side(both[1], after, effect.batch_ratio)))
    return None


def _side(recording: Recording, vitals: Vitals, ratio: float | None = None) -> SideSummary:
    """Summarises one side of a trial.

    Args:
        recording: the side's run.
        vitals: figures of that run.
        ratio: samples in a step of this side over samples in a step of the other; None if they are equal.
    """
    samples_ratio, own_s = ratio or 1.0, vitals.host_step_s or 0.0
    step = f" for as many samples ({formatting.seconds(own_s)} a step)" if ratio else ""
    return SideSummary(
        label=formatting.clean(describe(recording.settings), 120),
        total=formatting.seconds(own_s / samples_ratio) + step,
        step_s=own_s / samples_ratio,
        phases=tuple((phase, share, took / samples_ratio) for phase, share, took in anatomy_rows(vitals)),
        quantiles_s=tuple(value / samples_ratio for value in _spreads.of(recording, lambda: _quantiles(recording))),
    )


def _quantiles(recording: Recording) -> list[float]:
    """Returns the quantiles of step time after warm-up, in seconds; empty for fewer than FEWEST steps."""
    training = recording.steps.where(recording.steps.kind == TRAINING)
    steps = training if len(training) else recording.steps
    loader = recording.setup.training_loader
    rows = steps.rows(warmup_rows(steps, loader.num_workers if loader is not None else 0), len(steps))
    took = paced_s(recording, rows) / rows.count
    took = took[np.isfinite(took)]
    return np.quantile(took, QUANTILES).tolist() if len(took) >= FEWEST else []
