"""The readings that NVML gives of one GPU during a run; each row of `GAUGES` is one of them.

PCIe traffic is not among them: nvmlDeviceGetPcieThroughput waits 20 ms for each direction, and the copies of the
training are recorded themselves. The vendor module is an argument, so that a test can pass a stub. GPU: not yet run on
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.machine.nvml.visible import Gpu
from gpu_doctor.recording import Metric

CLOCK_SM: Final = 1
TEMPERATURE_GPU: Final = 0
"""NVML's numbers of the SM clock and of the GPU's temperature sensor (nvml.h)."""
UNSUPPORTED: Final = {2, 3, 4, 6, 13}
"""NVML's codes for: invalid argument, not supported, no permission, not found, function not found (nvml.h)."""
_C2C_FIELDS: Final = (170, 172)
"""NVML's fields for the number of NVLink-C2C links to the CPU, and for the rate of each one way in MB/s (nvml.h)."""

OFTEN: Final = "often"
"""Marks a gauge that is read every time."""
RARELY: Final = "rarely"
"""Marks a gauge that hardly changes, such as a limit or a maximum."""
FACT: Final = "fact"
"""Marks a gauge that is read rarely, and that is valid even if the order of the GPUs is uncertain."""


@dataclass(frozen=True)
class Gauge:
    """A quantity of a GPU, and the function that reads it."""

    name: str
    """Name of its metric; its suffix is the unit."""
    unit: str
    label: str
    read: Callable[[Any, Gpu], float | None]
    """Returns the value, given pynvml and the GPU; None if the GPU has no such quantity. NVML's errors pass through."""
    when: str = OFTEN
    """`OFTEN`, `RARELY` or `FACT`."""
    group: str = "detail"

    def metric(self, device: int) -> Metric:
        """Returns the metric for the GPU with this index."""
        return Metric(self.name, self.unit, self.label, self.group, device)


def unsupported(error: Exception) -> bool:
    """Returns True if this card, driver or pynvml does not have a reading, so that it is not tried again."""
    return isinstance(error, AttributeError) or getattr(error, "value", None) in UNSUPPORTED


def _temperature_c(nvml: Any, gpu: Gpu) -> float:
    try:
        return int(nvml.nvmlDeviceGetTemperature(gpu.card, TEMPERATURE_GPU))
    except AttributeError:  # CUDA 14 removes the older name
        return int(nvml.nvmlDeviceGetTemperatureV(gpu.card, TEMPERATURE_GPU))


def _limit_bits(nvml: Any, gpu: Gpu) -> float:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.card))
    except Exception as error:
        if not unsupported(error):
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu.card))  # the name in drivers before 535


def _c2c_bytes_per_s(nvml: Any, gpu: Gpu) -> float | None:
    """Returns the rate, one way, of the link to the CPU on the same module (GH200); None if there is no such link."""
    if not nvml.nvmlDeviceGetC2cModeInfoV1(gpu.card).isC2cEnabled:
        return None
    links, speed = nvml.nvmlDeviceGetFieldValues(gpu.card, list(_C2C_FIELDS))
    if links.nvmlReturn or speed.nvmlReturn:
        return None
    return 1e6 * float(links.value.sllVal) * float(speed.value.sllVal) or None


def _of_handle(function: str, field: str) -> Callable[[Any, Gpu], float]:
    """Returns a function that reads a field of a pynvml function's result for the card or slice."""
    return lambda nvml, gpu: getattr(getattr(nvml, function)(gpu.handle), field)


def _of_card(function: str, *arguments: int, per: float = 1.0) -> Callable[[Any, Gpu], float]:
    """Returns a function that divides a pynvml function's result for the whole card by `per`."""
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
