"""Which rows of two runs that took turns are compared: after warm-up, and the same steps of both where that is fair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_doctor.diagnosis.vitals.measure import warmup_rows
from gpu_doctor.recording import Recording, Steps
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials.compare.ratio import Stretch


def has_samples(recording: Recording) -> bool:
    """Whether the batch dimension of every step could be read."""
    samples = recording.steps.samples
    return bool(np.isfinite(samples).all() and samples.sum() > 0)


def _measured_from(recording: Recording) -> tuple[Steps, int]:
    """The rows that count (as `vitals.measure` takes them), and how many of them are warm-up."""
    training = recording.steps.kind == TRAINING
    steps = recording.steps.where(training) if training.any() and not training.all() else recording.steps
    loader = recording.setup.training_loader
    return steps, warmup_rows(steps, loader.num_workers if loader is not None else 0)


def pair_of(baseline: Recording, candidate: Recording, by_samples: bool) -> tuple[Steps, Steps]:
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


def stretch_of(steps: Steps, by_samples: bool) -> Stretch:
    """Measured rows as seconds and work done in them."""
    return Stretch(steps.wall_s, steps.samples if by_samples else steps.count)


def wait_share(side: Sequence[Steps]) -> float | None:
    """Data wait over wall-clock of all runs of a side (host clock), None if it was not measured."""
    share = sum(one.data_wait_s.sum() for one in side) / sum(one.wall_s.sum() for one in side)
    return None if np.isnan(share) else float(share)
