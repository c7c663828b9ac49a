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
SM: Final = 1
"""NVML has this number for the clock of the SMs (nvml.h, nvmlClockType_t)."""
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
    """Takes two samples of the first card and reads what GPM says of the time between them."""

    def __init__(self) -> None:
        """Takes the first sample, where the card has GPM."""
        self._ends, self._began = contextlib.ExitStack(), time.monotonic()
        self._samples: list[Any] = []
        with contextlib.suppress(Exception), contextlib.ExitStack() as stack:
            self._vendor, self._card = stack.enter_context(handle())
            for _ in range(2):
                self._samples.append(self._vendor.nvmlGpmSampleAlloc())
                stack.callback(self._vendor.nvmlGpmSampleFree, self._samples[-1])
            self._vendor.nvmlGpmSampleGet(self._card, self._samples[0])
            self._ends = stack.pop_all()

    def read(self, numbers: Iterable[int]) -> dict[int, float]:
        """Takes the second sample; returns the metrics that answer, by number."""
        found: dict[int, float] = {}
        time.sleep(max(LEAST_S - (time.monotonic() - self._began), 0.0))
        with contextlib.suppress(Exception), self._ends:
            self._vendor.nvmlGpmSampleGet(self._card, self._samples[1])
            for number in numbers:  # one at a time: a number that this driver does not know fails its whole request
                with contextlib.suppress(Exception):
                    found |= self._asked(number)
        return found

    def _asked(self, number: int) -> dict[int, float]:
        get = self._vendor.c_nvmlGpmMetricsGet_t()
        get.version, get.numMetrics = self._vendor.NVML_GPM_METRICS_GET_VERSION, 1
        get.sample1, get.sample2 = self._samples
        get.metrics[0].metricId = number
        self._vendor.nvmlGpmMetricsGet(get)
        answer = get.metrics[0]
        return {number: float(answer.value)} if answer.nvmlReturn == 0 and math.isfinite(answer.value) else {}


@contextlib.contextmanager
def clocks(every_s: float = 0.05) -> Iterator[list[tuple[float, int]]]:
    """Reads the SM clock in MHz while the body runs, each with its seconds since the begin."""
    found: list[tuple[float, int]] = []
    over = threading.Event()
    with handle() as (vendor, card):
        began = time.monotonic()

        def look() -> None:
            while not over.wait(every_s):
                found.append((time.monotonic() - began, vendor.nvmlDeviceGetClockInfo(card, SM)))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()
