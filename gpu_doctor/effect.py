"""Two sides of a comparison: speed-up in samples/s, its interval, a verdict, and what happened to the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_doctor.recording import SettingValue


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
