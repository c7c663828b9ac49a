"""What NVIDIA's management library says of the GPUs that this process sees, through nvidia-ml-py.

Every single reading may be missing: what a card, a driver or an old pynvml does not support is asked once and absent
from then on. PCIe traffic comes from GPM where the card has it and from nowhere else: nvmlDeviceGetPcieThroughput waits
20 ms for each direction, and what the training copies is known from the copies themselves. GPU: not yet run on one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.machine.nvml.activity import Gpm, supported
from gpu_doctor.machine.nvml.neighbours import neighbours
from gpu_doctor.machine.nvml.visible import Gpu, ask, device_setup, look, text
from gpu_doctor.machine.probe import ProbeScope, Reader, Reading
from gpu_doctor.machine.torch_memory import cuda_in_use, device_uuids
from gpu_doctor.recording import DeviceSetup, Metric

VENDOR: Any = None
"""The module pynvml, None where it cannot be imported."""
try:  # at import, on the caller's thread: the poller's thread imports nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old distribution named pynvml warns of itself
        import pynvml

        VENDOR = pynvml
except Exception:
    pass

RARELY_S: Final = 5.0
"""Seconds between two readings of what hardly changes: limits, maxima, other processes."""
_GPU_CLOCK_SM: Final = 1
_TEMPERATURE_GPU: Final = 0
_C2C_FIELDS: Final = (170, 172)
"""NVML's fields for the number of NVLink-C2C links to the CPU and for MB/s of each, one way (nvml.h)."""
_UNSUPPORTED: Final = {2, 3, 4, 6, 13}
"""NVML's codes for: invalid argument, not supported, no permission, not found, function not found (nvml.h)."""
_NO_DRIVER: Final = {9, 12}
"""NVML's codes for: driver not loaded, library not found (nvml.h)."""

_Answers = tuple[float | None, ...]
_Gauges = dict[tuple[Metric, ...], Callable[[], _Answers]]


@dataclass(frozen=True)
class Access:
    """NVML while it is initialised, or why it is not."""

    vendor: Any | None
    problem: str = ""
    """`no-library` (nvidia-ml-py missing), `no-driver`, or NVML's own message; empty if it works."""


@contextmanager
def initialised() -> Iterator[Access]:
    """NVML for the duration of the context; never raises by itself, and shuts down what it initialised."""
    vendor = VENDOR
    if vendor is None:
        yield Access(None, "no-library")
        return
    try:
        vendor.nvmlInit()
    except Exception as error:
        problem = "no-driver" if getattr(error, "value", None) in _NO_DRIVER else str(error) or type(error).__name__
        yield Access(None, problem)
        return
    process = os.getpid()
    try:
        yield Access(vendor)
    finally:
        if os.getpid() == process:  # a forked child has the handle but not the right to it
            ask(vendor, "nvmlShutdown")


def devices() -> tuple[DeviceSetup, ...]:
    """The GPUs that this process sees, in torch's order as far as it can be known; empty without GPU or driver."""
    with initialised() as access:
        vendor = access.vendor
        return () if vendor is None else tuple(device_setup(vendor, gpu) for gpu in look(vendor, device_uuids()).gpus)


def driver_version() -> str:
    """The NVIDIA driver's version, such as `580.65.06`; empty without one."""
    with initialised() as access:
        return text(ask(access.vendor, "nvmlSystemGetDriverVersion")) if access.vendor is not None else ""


def readings(vendor: Any, gpu: Gpu) -> dict[str, float]:
    """One reading of everything that is read of a GPU during a run, by the metric's name; what fails is absent."""
    found: dict[str, float] = {}
    for metrics, read in {**_often(vendor, gpu), **_rarely(vendor, gpu), **_facts(vendor, gpu)}.items():
        with suppress(Exception):
            answers = zip(metrics, read(), strict=True)
            found |= {metric.name: value for metric, value in answers if value is not None}
    return found


class _Device:
    """The readings of one GPU."""

    def __init__(self, vendor: Any, gpu: Gpu, clock: Callable[[], float], sure: bool) -> None:
        """Reads of a GPU whose number is not `sure` only the facts."""
        self.gpu = gpu
        self._often, self._rarely = (_often(vendor, gpu), _rarely(vendor, gpu)) if sure else ({}, {})
        self._rarely |= _facts(vendor, gpu)
        self._gpm: Gpm | None = None
        if sure and supported(vendor, gpu):
            try:
                self._gpm = Gpm(vendor, gpu, clock)
            except Exception:  # a guest of a virtual machine may see the feature without the right to it
                self._gpm = None
        self._answered = False

    def read(self, rarely: bool) -> list[Reading]:
        """All readings that work; raises the last error if everything fails that worked before."""
        found: list[Reading] = []
        errors: list[Exception] = []
        for gauges in (self._often, self._rarely) if rarely else (self._often,):
            for metrics, read in tuple(gauges.items()):
                try:
                    answers = read()
                except Exception as error:
                    if _is_unsupported(error):
                        del gauges[metrics]
                    else:
                        errors.append(error)
                    continue
                found += [(metric, value) for metric, value in zip(metrics, answers, strict=True) if value is not None]
        if self._answered and errors and not found:
            raise errors[-1]
        self._answered = self._answered or bool(found)
        return found + self._inside()

    def _inside(self) -> list[Reading]:
        try:
            return self._gpm.read() if self._gpm is not None else []
        except Exception:
            self.close()
            return []

    def close(self) -> None:
        """Gives back what GPM holds."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None


def _is_unsupported(error: Exception) -> bool:
    return isinstance(error, AttributeError) or getattr(error, "value", None) in _UNSUPPORTED


def _often(vendor: Any, gpu: Gpu) -> _Gauges:
    """What is read every time: metrics -> their values, in the same order."""
    index, handle, card = gpu.index, gpu.handle, gpu.card

    def metric(name: str, unit: str, label: str, group: str = "detail") -> Metric:
        return Metric(name, unit, label, group, index)

    def utilization() -> _Answers:
        rates = vendor.nvmlDeviceGetUtilizationRates(handle)
        return float(rates.gpu), float(rates.memory)

    return {
        (
            metric("gpu_util_pct", "%", "GPU (NVML utilization)", "utilization"),
            metric("gpu_memory_busy_pct", "%", "GPU memory controller busy"),
        ): utilization,
        (metric("gpu_memory_used_bytes", "bytes", "used on the GPU, all processes", "memory"),): lambda: (
            float(vendor.nvmlDeviceGetMemoryInfo(handle).used),
        ),
        (metric("gpu_power_w", "W", "power"),): lambda: (vendor.nvmlDeviceGetPowerUsage(card) / 1000,),
        (metric("gpu_temperature_c", "C", "temperature"),): lambda: (float(_temperature_c(vendor, card)),),
        (metric("gpu_energy_j", "J", "energy since the driver was loaded"),): lambda: (
            vendor.nvmlDeviceGetTotalEnergyConsumption(card) / 1000,
        ),
        (metric("sm_clock_mhz", "MHz", "SM clock"),): lambda: (
            float(vendor.nvmlDeviceGetClockInfo(card, _GPU_CLOCK_SM)),
        ),
        (metric("clock_limit_bits", "bits", "clock limit reasons"),): lambda: (float(_limit_bits(vendor, card)),),
        (metric("pcie_gen", "count", "PCIe generation"), metric("pcie_width", "count", "PCIe lanes")): lambda: (
            float(vendor.nvmlDeviceGetCurrPcieLinkGeneration(card)),
            float(vendor.nvmlDeviceGetCurrPcieLinkWidth(card)),
        ),
    }


def _facts(vendor: Any, gpu: Gpu) -> _Gauges:
    """What tells which GPUs there are, whatever their order; read every RARELY_S."""
    index, handle = gpu.index, gpu.handle
    return {
        (Metric("gpu_memory_total_bytes", "bytes", "GPU memory", "detail", index),): lambda: (
            float(vendor.nvmlDeviceGetMemoryInfo(handle).total),
        ),
        (Metric("mig", "count", "1 = a MIG slice of a card", "detail", index),): lambda: (float(gpu.mig),),
        (
            Metric(
                "driver_cuda", "count", "highest CUDA version that the driver serves, 12040 = 12.4", "detail", index
            ),
        ): lambda: (float(vendor.nvmlSystemGetCudaDriverVersion_v2()),),
    }


def _rarely(vendor: Any, gpu: Gpu) -> _Gauges:
    """What is read every RARELY_S: metrics -> their values, in the same order."""
    index, card = gpu.index, gpu.card

    def metric(name: str, unit: str, label: str) -> Metric:
        return Metric(name, unit, label, "detail", index)

    return {
        (metric("gpu_power_limit_w", "W", "power limit"),): lambda: (
            vendor.nvmlDeviceGetEnforcedPowerLimit(card) / 1000,
        ),
        (metric("gpu_power_default_w", "W", "power limit as delivered"),): lambda: (
            vendor.nvmlDeviceGetPowerManagementDefaultLimit(card) / 1000,
        ),
        (metric("pcie_gen_card", "count", "PCIe generation of the card alone"),): lambda: (
            float(vendor.nvmlDeviceGetGpuMaxPcieLinkGeneration(card)),
        ),
        (metric("c2c_bytes_per_s", "bytes/s", "NVLink-C2C to the CPU"),): lambda: (_c2c_bytes_per_s(vendor, card),),
        (metric("sm_clock_max_mhz", "MHz", "SM clock, maximum"),): lambda: (
            float(vendor.nvmlDeviceGetMaxClockInfo(card, _GPU_CLOCK_SM)),
        ),
        (
            metric("pcie_gen_max", "count", "PCIe generation, maximum"),
            metric("pcie_width_max", "count", "PCIe lanes, maximum"),
        ): lambda: (
            float(vendor.nvmlDeviceGetMaxPcieLinkGeneration(card)),
            float(vendor.nvmlDeviceGetMaxPcieLinkWidth(card)),
        ),
    }


def _temperature_c(vendor: Any, card: Any) -> int:
    """Degrees Celsius of the GPU; raises what NVML raises."""
    try:
        return int(vendor.nvmlDeviceGetTemperature(card, _TEMPERATURE_GPU))
    except AttributeError:  # the older name leaves with CUDA 14
        return int(vendor.nvmlDeviceGetTemperatureV(card, _TEMPERATURE_GPU))


def _c2c_bytes_per_s(vendor: Any, card: Any) -> float | None:
    """Bytes/s one way between a GPU and the CPU that it shares a module with (GH200); None where there is no such link.

    Raises what NVML raises.
    """
    if not vendor.nvmlDeviceGetC2cModeInfoV1(card).isC2cEnabled:
        return None
    links, speed = vendor.nvmlDeviceGetFieldValues(card, list(_C2C_FIELDS))
    if links.nvmlReturn or speed.nvmlReturn:
        return None
    return 1e6 * float(links.value.sllVal) * float(speed.value.sllVal) or None


def _limit_bits(vendor: Any, card: Any) -> int:
    """Why the clocks are where they are, as NVML's bits; raises what NVML raises."""
    try:
        return int(vendor.nvmlDeviceGetCurrentClocksEventReasons(card))
    except Exception as error:
        if not _is_unsupported(error):
            raise
        return int(vendor.nvmlDeviceGetCurrentClocksThrottleReasons(card))  # its name in drivers before 535


class _Cards:
    """The GPUs that this process sees: looked up at first, and once more when torch has initialised CUDA.

    Until then their order is a guess, and the cell may still choose other ones (CUDA_VISIBLE_DEVICES). Of several cards
    nothing is read by then that would stand under another one's number.
    """

    def __init__(self, vendor: Any, scope: ProbeScope) -> None:
        self._vendor, self._scope = vendor, scope
        self._devices: list[_Device] = []
        self._look()

    def _look(self) -> None:
        self._in_use = cuda_in_use()  # asked first: if CUDA comes up in between, the next reading looks again
        sight = look(self._vendor, device_uuids())
        self.counted, self._sure = sight.cards, sight.sure or self._in_use
        self.close()
        self._devices = [_Device(self._vendor, gpu, self._scope.clock, self._sure) for gpu in sight.gpus]
        self._rarely_at, self._newest_us = float("-inf"), dict[int, int]()
        if self._in_use and sight.note:
            self._scope.note(sight.note)
        if self._in_use and any(gpu.mig for gpu in sight.gpus):
            self._scope.note(
                "The GPU is a MIG slice: clocks, power and link are the whole card's, utilization is not measured."
            )

    def read(self) -> list[Reading]:
        """All readings of all cards; raises the error of the last one that stops answering."""
        if not self._in_use and cuda_in_use():
            self._look()
        now = self._scope.clock()
        rarely = now - self._rarely_at >= RARELY_S
        self._rarely_at = now if rarely else self._rarely_at
        found: list[Reading] = []
        for device in tuple(self._devices):
            try:
                found += device.read(rarely)
            except Exception as error:
                self._devices.remove(device)
                device.close()
                if not self._devices:
                    raise
                self._scope.note(f"GPU {device.gpu.index} stopped answering, so its readings end here: {error}")
        if rarely and self._sure:
            found += neighbours(self._vendor, [one.gpu for one in self._devices], self._in_use, self._newest_us)
        return found

    def close(self) -> None:
        """Gives back what the readings hold."""
        for device in self._devices:
            device.close()


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader of the GPUs that this process sees; None where NVML has none, without a word."""
    with initialised() as access:
        cards = _Cards(access.vendor, scope) if access.vendor is not None else None
        if cards is None or not cards.counted:
            yield None
            return
        try:
            yield cards.read
        finally:
            cards.close()
