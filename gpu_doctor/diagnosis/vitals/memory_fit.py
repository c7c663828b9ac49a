"""Peak memory as a line over the batch size: a fixed part (weights, gradients, optimizer, caches) plus a slope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_doctor.diagnosis.vitals.fields import Vitals


@dataclass(frozen=True)
class MemoryFit:
    """peak(samples) = fixed_bytes + per_sample_bytes * samples."""

    fixed_bytes: float
    """Bytes that a step takes whatever its batch size, at least 0 (the line itself may cut below 0)."""
    per_sample_bytes: float

    def peak_bytes(self, samples: float) -> float:
        """Returns the expected peak, in bytes, with a batch of so many samples."""
        return self.fixed_bytes + self.per_sample_bytes * samples

    def most_samples(self, limit_bytes: float) -> int:
        """Returns the largest batch, in samples, whose expected peak is within a limit; 0 if no batch fits."""
        return max(int((limit_bytes - self.fixed_bytes) / self.per_sample_bytes + 1e-9), 0)


def memory_fit(points: Iterable[tuple[float, float]]) -> MemoryFit | None:
    """Fits a line through the two largest batch sizes; the peaks of small ones depend more on rounding.

    Args:
        points: samples of a batch, and the peak in bytes with it.

    Returns:
        The fit; None if there are fewer than two sizes, or if the peak did not rise with the size.
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
    """Fits runs of one loop on a GPU with different batch sizes; None if fewer than two sizes have a peak.

    Peaks are those of the GPU's allocator. On a CPU device the process' memory holds too much else for a fit.
    """
    return memory_fit(
        (run.samples_per_step, run.peak_bytes)
        for run in runs
        if run.on_gpu and run.samples_per_step is not None and run.peak_bytes is not None
    )
