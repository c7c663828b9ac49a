"""What one metric read during a run, thinned where a run is long."""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Metric, Series, series_key

MOST_READINGS: Final = 16384
"""Readings kept per metric (over two hours at 2 Hz), an even number; then each is the mean of twice as many."""


class Readings:
    """The readings of one metric. One thread writes, any may read."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.stride = 1
        """Readings that one which is kept is the mean of."""
        self._kept: tuple[list[float], list[float]] = [], []  # in one assignment, so that a reader sees both thinned
        self._open: list[tuple[float, float]] = []

    def add(self, at_s: float, value: float) -> None:
        """One reading."""
        times, values = self._kept
        if len(values) >= MOST_READINGS:
            times, values = (np.asarray(one).reshape(-1, 2).mean(axis=1).tolist() for one in self._kept)
            self._kept = times, values
            self.stride *= 2
        if self.stride > 1:
            self._open.append((at_s, value))
            if len(self._open) >= self.stride:
                self.finish()
            return
        times.append(at_s)
        values.append(value)

    def finish(self) -> None:
        """Puts down what waits for its neighbours, at the run's end."""
        if self._open:
            at_s, value = np.mean(self._open, axis=0).tolist()
            self._kept[0].append(at_s)
            self._kept[1].append(value)
            self._open = []

    def series(self) -> Series:
        """What was read so far, but for a last mean that is not whole."""
        times, values = self._kept
        n = min(len(times), len(values))
        return Series(self.metric, np.asarray(times[:n]), np.asarray(values[:n]))


class AllReadings:
    """The readings of all metrics of a run."""

    def __init__(self, began_ns: int) -> None:
        """`began_ns`: when the run began, on the host clock."""
        self._began_ns = began_ns
        self._readings: dict[str, Readings] = {}

    def add(self, metric: Metric, at_clock: float, value: float) -> None:
        """One reading; `at_clock` in seconds of the host clock (`time.perf_counter`)."""
        key = series_key(metric)
        readings = self._readings.get(key)
        if readings is None:
            readings = self._readings[key] = Readings(metric)
        readings.add(at_clock - self._began_ns * 1e-9, value)

    def finish(self) -> None:
        """The run is over."""
        for readings in list(self._readings.values()):
            readings.finish()

    def series(self) -> tuple[Series, ...]:
        """What every metric read so far."""
        return tuple(readings.series() for readings in list(self._readings.values()))
