"""What NVML is asked of one GPU during a run: one row of `GAUGES` a reading.

PCIe traffic is not among it: nvmlDeviceGetPcieThroughput waits 20 ms for each direction, and what the training copies
is known from the copies themselves. The vendor module is handed in, so
that a stub can stand for it. GPU: not yet run on one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.machine.nvml.visible import Gpu
from gpu_doctor.recording import Metric

CLOCK_SM: Final = 1
TEMPERATURE_GPU: Final = 0
"""NVML's numbers of a clock and of a sensor (nvml.h)."""
UNSUPPORTED: Final = {2, 3, 4, 6, 13}
"""NVML's codes for: invalid argument, not supported, no permission, not found, function not found (nvml.h)."""
_C2C_FIELDS: Final = (170, 172)
"""NVML's fields for the number of NVLink-C2C links to the CPU and for MB/s of each, one way (nvml.h)."""

OFTEN: Final = "often"
"""Read every time."""
RARELY: Final = "rarely"
"""Hardly changes: limits and maxima."""
FACT: Final = "fact"
"""Read rarely, and tells which GPUs there are, whatever their order."""


@dataclass(frozen=True)
class Gauge:
    """One reading of a GPU."""

    name: str
    """Of its metric; the ending is the unit."""
    unit: str
    label: str
    read: Callable[[Any, Gpu], float | None]
    """Takes pynvml and the GPU; raises what NVML raises, and gives None where there is no such thing."""
    when: str = OFTEN
    group: str = "detail"

    def metric(self, device: int) -> Metric:
        """The metric of the GPU with this number."""
        return Metric(self.name, self.unit, self.label, self.group, device)


def unsupported(error: Exception) -> bool:
    """True if it is useless to ask again: this card, driver or pynvml does not have the reading."""
    return isinstance(error, AttributeError) or getattr(error, "value", None) in UNSUPPORTED


def _temperature_c(nvml: Any, gpu: Gpu) -> float:
    try:
        return int(nvml.nvmlDeviceGetTemperature(gpu.card, TEMPERATURE_GPU))
    except AttributeError:  # the older name leaves with CUDA 14
        return int(nvml.nvmlDeviceGetTemperatureV(gpu.card, TEMPERATURE_GPU))


def _limit_bits(nvml: Any, gpu: Gpu) -> float:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.card))
    except Exception as error:
        if not unsupported(error):
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu.card))  # its name in drivers before 535


def _c2c_bytes_per_s(nvml: Any, gpu: Gpu) -> float | None:
    """One way between a GPU and the CPU that it shares a module with (GH200); None where there is no such link."""
    if not nvml.nvmlDeviceGetC2cModeInfoV1(gpu.card).isC2cEnabled:
        return None
    links, speed = nvml.nvmlDeviceGetFieldValues(gpu.card, list(_C2C_FIELDS))
    if links.nvmlReturn or speed.nvmlReturn:
        return None
    return 1e6 * float(links.value.sllVal) * float(speed.value.sllVal) or None


def _of_handle(function: str, field: str) -> Callable[[Any, Gpu], float]:
    """Asks one function of pynvml of the card or slice, and takes a field of its answer."""
    return lambda nvml, gpu: getattr(getattr(nvml, function)(gpu.handle), field)


def _of_card(function: str, *arguments: int, per: float = 1.0) -> Callable[[Any, Gpu], float]:
    """Asks one function of pynvml of the whole card, and divides what it says by `per`."""
    return lambda nvml, gpu: getattr(nvml, function)(gpu.card, *arguments) / per


_UTILIZATION: Final = _of_handle("nvmlDeviceGetUtilizationRates", "gpu")
_USED: Final = _of_handle("nvmlDeviceGetMemoryInfo", "used")
_TOTAL: Final = _of_handle("nvmlDeviceGetMemoryInfo", "total")
_ENERGY: Final = _of_card("nvmlDeviceGetTotalEnergyConsumption", per=1000)
_POWER_DEFAULT: Final = _of_card("nvmlDeviceGetPowerManagementDefaultLimit", per=1000)
_GEN_MAX: Final = _of_card("nvmlDeviceGetMaxPcieLinkGeneration")
_DRIVER_CUDA: Final = "highest CUDA version that the driver serves, 12040 = 12.4"

GAUGES: Final = (
    Gauge("gpu_util_pct", "%", "GPU (NVML utilization)", _UTILIZATION, group="utilization"),
    Gauge("gpu_memory_used_bytes", "bytes", "used on the GPU, all processes", _USED, group="memory"),
    Gauge("gpu_power_w", "W", "power", _of_card("nvmlDeviceGetPowerUsage", per=1000)),
    Gauge("gpu_temperature_c", "C", "temperature", _temperature_c),
    Gauge("gpu_energy_j", "J", "energy since the driver was loaded", _ENERGY),
    Gauge("sm_clock_mhz", "MHz", "SM clock", _of_card("nvmlDeviceGetClockInfo", CLOCK_SM)),
    Gauge("clock_limit_bits", "bits", "clock limit reasons", _limit_bits),
    Gauge("pcie_gen", "count", "PCIe generation", _of_card("nvmlDeviceGetCurrPcieLinkGeneration")),
    Gauge("pcie_width", "count", "PCIe lanes", _of_card("nvmlDeviceGetCurrPcieLinkWidth")),
    Gauge("gpu_power_limit_w", "W", "power limit", _of_card("nvmlDeviceGetEnforcedPowerLimit", per=1000), RARELY),
    Gauge("gpu_power_default_w", "W", "power limit as delivered", _POWER_DEFAULT, RARELY),
    Gauge("sm_clock_max_mhz", "MHz", "SM clock, maximum", _of_card("nvmlDeviceGetMaxClockInfo", CLOCK_SM), RARELY),
    Gauge("pcie_gen_max", "count", "PCIe generation, maximum of card and slot", _GEN_MAX, RARELY),
    Gauge("pcie_width_max", "count", "PCIe lanes, maximum", _of_card("nvmlDeviceGetMaxPcieLinkWidth"), RARELY),
    Gauge("c2c_bytes_per_s", "bytes/s", "NVLink-C2C to the CPU", _c2c_bytes_per_s, RARELY),
    Gauge("gpu_memory_total_bytes", "bytes", "GPU memory", _TOTAL, FACT),
    Gauge("driver_cuda", "count", _DRIVER_CUDA, lambda nvml, _: nvml.nvmlSystemGetCudaDriverVersion_v2(), FACT),
)
