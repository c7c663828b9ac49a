"""Reads how busy the parts of a GPU are, on Hopper and later: engines, SMs, occupancy, tensor cores, memory.

NVML's GPM needs no root: the driver subtracts two samples that are more than 100 ms apart. Earlier cards do not have
it, so nothing is read from them. The vendor module is an argument, so that a test can pass a stub.
GPU: not yet run on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.machine.nvml.visible import Gpu, ask
from gpu_doctor.machine.probe import Reading
from gpu_doctor.recording import Metric

APART_S: Final = 0.1
"""Least time between two samples, in s (NVML API reference, nvmlGpmMetricsGet)."""
_SUCCESS: Final = 0

METRICS: Final = {
    1: ("gr_engine_active_pct", "%", "graphics and compute engine active", "detail"),
    2: ("sm_active_pct", "%", "SMs active", "utilization"),
    3: ("sm_occupancy_pct", "%", "SM occupancy", "detail"),
    5: ("tensor_active_pct", "%", "tensor cores active", "detail"),
    10: ("dram_active_pct", "%", "GPU memory bandwidth used", "detail"),
}
"""Name, unit, label and group of each metric, by GPM's number (nvml.h, nvmlGpmMetricId_t)."""


class Gpm:
    """Activity of one GPU between two samples, which are taken in turn."""

    def __init__(self, vendor: Any, gpu: Gpu, clock: Callable[[], float]) -> None:
        """Allocates the samples and takes the first; NVML's errors pass through. Check `supported` first."""
        self._vendor, self._gpu, self._clock = vendor, gpu, clock
        self._instance = vendor.nvmlDeviceGetGpuInstanceId(gpu.handle) if gpu.mig else None
        self._metrics = {n: Metric(*form, gpu.index) for n, form in METRICS.items()}
        self._samples: list[Any] = []
        try:
            self._samples.append(vendor.nvmlGpmSampleAlloc())
            self._samples.append(vendor.nvmlGpmSampleAlloc())
            self._take(0)
        except Exception:
            self.close()
            raise
        self._latest, self._at = 0, clock()

    def _take(self, which: int) -> None:
        """Takes one of the two samples now."""
        if self._instance is None:
            self._vendor.nvmlGpmSampleGet(self._gpu.card, self._samples[which])
        else:
            self._vendor.nvmlGpmMigSampleGet(self._gpu.card, self._instance, self._samples[which])

    def read(self) -> list[Reading]:
        """Returns the activity since the last sample; nothing if that was taken too recently."""
        now = self._clock()
        if now - self._at <= APART_S:
            return []
        older, newer = self._latest, 1 - self._latest
        self._take(newer)
        self._latest, self._at = newer, now
        vendor = self._vendor
        get = vendor.c_nvmlGpmMetricsGet_t()
        get.version = vendor.NVML_GPM_METRICS_GET_VERSION
        get.numMetrics = len(METRICS)
        get.sample1, get.sample2 = self._samples[older], self._samples[newer]
        for at, number in enumerate(METRICS):
            get.metrics[at].metricId = number
        vendor.nvmlGpmMetricsGet(get)
        found = []
        for at, number in enumerate(METRICS):
            answer = get.metrics[at]
            if answer.nvmlReturn == _SUCCESS and math.isfinite(answer.value) and answer.value >= 0:
                found.append((self._metrics[number], answer.value))
        return found

    def close(self) -> None:
        """Frees the samples."""
        while self._samples:
            ask(self._vendor, "nvmlGpmSampleFree", self._samples.pop())


def supported(vendor: Any, gpu: Gpu) -> bool:
    """Returns True if the card has GPM, and this pynvml and driver support it."""
    answer = ask(vendor, "nvmlGpmQueryDeviceSupport", gpu.card)
    return answer is not None and bool(answer.isSupportedDevice)
