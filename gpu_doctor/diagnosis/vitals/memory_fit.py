"""Peak memory over the batch size: a fixed part (weights, gradients, optimizer, caches) and a slope per sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_doctor.diagnosis.vitals.fields import Vitals


@dataclass(frozen=True)
class MemoryFit:
    """peak(samples) = fixed_bytes + per_sample_bytes * samples."""

    fixed_bytes: float
    """What a step takes whatever its batch; never below 0 (the line through two sizes may say so)."""
    per_sample_bytes: float

    def peak_bytes(self, samples: float) -> float:
        """Expected peak of a batch."""
        return self.fixed_bytes + self.per_sample_bytes * samples

    def most_samples(self, limit_bytes: float) -> int:
        """The largest batch whose expected peak is within a limit; 0 where even the fixed part is not."""
        return max(int((limit_bytes - self.fixed_bytes) / self.per_sample_bytes + 1e-9), 0)


def memory_fit(points: Iterable[tuple[float, float]]) -> MemoryFit | None:
    """The line through the two largest sizes seen: small ones say more of rounding than of the batch.

    Args:
        points: samples of a batch, and the peak in bytes with it.

    Returns:
        None where fewer than two sizes were seen, or the peak did not rise with the size: that is not measured then.
    """
    highest: dict[float, float] = {}
    for samples, peak in points:
        if samples > 0 and peak > 0:
            highest[samples] = max(peak, highest.get(samples, 0.0))
    if len(highest) < 2:
        return None
    small, large = sorted(highest)[-2:]
    slope = (highest[large] - highest[small]) / (large - small)
    if slope <= 0:
        return None
    return MemoryFit(max(highest[large] - slope * large, 0.0), slope)


def fit_of_runs(runs: Iterable[Vitals]) -> MemoryFit | None:
    """The fit from runs of one loop with different batch sizes; None where a GPU's peak was read of fewer than two.

    Peaks are the allocator's on a GPU. On a CPU device the process' memory holds too much else for a fit.
    """
    return memory_fit(
        (one.samples_per_step, one.peak_bytes)
        for one in runs
        if one.on_gpu and one.samples_per_step is not None and one.peak_bytes is not None
    )
