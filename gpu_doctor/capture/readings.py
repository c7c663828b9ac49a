"""The readings of each metric during a run, averaged down in a long run."""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Metric, Series, series_key

MOST_READINGS: Final = 16384
"""Most readings stored per metric (over two hours at 2 Hz), an even number; then pairs of them are averaged."""


class Readings:
    """The readings of one metric; one thread writes, any thread may read."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.stride = 1
        """Number of readings that each stored value is the mean of."""
        self._stored: tuple[list[float], list[float]] = [], []  # in one assignment, so that a reader sees both thinned
        self._open: list[tuple[float, float]] = []

    def add(self, at_s: float, value: float) -> None:
        """Adds a reading."""
        times, values = self._stored
        if len(values) >= MOST_READINGS:
            times, values = (np.asarray(column).reshape(-1, 2).mean(axis=1).tolist() for column in self._stored)
            self._stored = times, values
            self.stride *= 2
        if self.stride > 1:
            self._open.append((at_s, value))
            if len(self._open) >= self.stride:
                self.finish()
            return
        times.append(at_s)
        values.append(value)

    def finish(self) -> None:
        """Stores the mean of the readings that are not stored yet, at the run's end."""
        if self._open:
            at_s, value = np.mean(self._open, axis=0).tolist()
            self._stored[0].append(at_s)
            self._stored[1].append(value)
            self._open = []

    def series(self) -> Series:
        """Returns the series so far, without a last mean that is incomplete."""
        times, values = self._stored
        n = min(len(times), len(values))
        return Series(self.metric, np.asarray(times[:n]), np.asarray(values[:n]))


class AllReadings:
    """The readings of all metrics of a run."""

    def __init__(self, began_ns: int) -> None:
        """`began_ns`: start of the run, in ns of the host clock."""
        self._began_ns = began_ns
        self._readings: dict[str, Readings] = {}

    def add(self, metric: Metric, at_clock: float, value: float) -> None:
        """Adds a reading; `at_clock`: its time, in seconds of the host clock (`time.perf_counter`)."""
        key = series_key(metric)
        readings = self._readings.get(key)
        if readings is None:
            readings = self._readings[key] = Readings(metric)
        readings.add(at_clock - self._began_ns * 1e-9, value)

    def finish(self) -> None:
        """Stores the incomplete means of all metrics, at the run's end."""
        for readings in list(self._readings.values()):
            readings.finish()

    def series(self) -> tuple[Series, ...]:
        """Returns the series of all metrics so far."""
        return tuple(readings.series() for readings in list(self._readings.values()))
