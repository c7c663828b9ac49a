"""Asks NVML directly, past our probes, for clocks while the card wakes and for GPM between two moments."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

COMPUTE: Final = 1
"""GPM has this number for the share of time in which any compute ran, in per cent (nvml.h, nvmlGpmMetricId_t)."""
LEAST_S: Final = 0.15
"""Two samples must lie more than 100 ms apart."""


@contextlib.contextmanager
def handle() -> Iterator[tuple[Any, Any]]:
    """pynvml, and its first card."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    finally:
        pynvml.nvmlShutdown()


class Between:
    """Takes two samples of one card and reads what GPM says of the time between them."""

    def __init__(self, vendor: Any, card: Any) -> None:
        """Takes the first sample."""
        self._vendor, self._card, self._began = vendor, card, time.monotonic()
        self._samples = [vendor.nvmlGpmSampleAlloc(), vendor.nvmlGpmSampleAlloc()]
        vendor.nvmlGpmSampleGet(card, self._samples[0])

    def read(self, numbers: Iterable[int]) -> dict[int, float]:
        """Takes the second sample; returns the metrics that answer, by number."""
        time.sleep(max(LEAST_S - (time.monotonic() - self._began), 0.0))
        vendor, found = self._vendor, dict[int, float]()
        vendor.nvmlGpmSampleGet(self._card, self._samples[1])
        for number in numbers:  # one at a time: a number that this driver does not know fails its whole request
            get = vendor.c_nvmlGpmMetricsGet_t()
            get.version, get.numMetrics = vendor.NVML_GPM_METRICS_GET_VERSION, 1
            get.sample1, get.sample2 = self._samples
            get.metrics[0].metricId = number
            with contextlib.suppress(Exception):
                vendor.nvmlGpmMetricsGet(get)
                if get.metrics[0].nvmlReturn == 0 and math.isfinite(get.metrics[0].value):
                    found[number] = float(get.metrics[0].value)
        for one in self._samples:
            vendor.nvmlGpmSampleFree(one)
        return found


class Compute:
    """Reads GPM 1 between `start` and `stop`."""

    def __init__(self) -> None:
        self._open: contextlib.ExitStack | None = None
        self._between: Between | None = None

    def start(self) -> None:
        """Takes the first sample."""
        with contextlib.suppress(Exception), contextlib.ExitStack() as stack:
            self._between = Between(*stack.enter_context(handle()))
            self._open = stack.pop_all()

    def stop(self) -> float | None:
        """Takes the second; returns the share between them, None where the card has no GPM."""
        if self._open is None or self._between is None:
            return None
        with self._open:
            found = self._between.read([COMPUTE])
        return found[COMPUTE] / 100.0 if COMPUTE in found else None


@contextlib.contextmanager
def clocks(every_s: float = 0.05) -> Iterator[list[tuple[float, int]]]:
    """Reads the SM clock in MHz while the body runs, each with its seconds since the begin."""
    found: list[tuple[float, int]] = []
    over = threading.Event()
    with handle() as (vendor, card):
        began = time.monotonic()

        def look() -> None:
            while not over.wait(every_s):
                found.append((time.monotonic() - began, vendor.nvmlDeviceGetClockInfo(card, vendor.NVML_CLOCK_SM)))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()
