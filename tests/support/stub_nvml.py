"""A stand-in for NVIDIA's module pynvml: cards as plain values, every answer counted, any call made to fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NO_DRIVER, NO_LIBRARY, LOST = 3, 4, 6, 9, 12, 15


class NVMLError(Exception):
    """As pynvml's: the code in `value`."""

    def __init__(self, value: int, message: str = "") -> None:
        super().__init__(message or f"NVML error {value}")
        self.value = value


@dataclass
class Card:
    """One card or MIG slice, healthy and busy unless told otherwise. None = the driver says 'not supported'."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa"
    bus: str = "00000000:0A:00.0"
    memory: int = 141 * GIB
    used: int = 1 * GIB
    capability: tuple[int, int] = (9, 0)
    util: tuple[int, int] | None = (71, 33)
    power_mw: int | None = 402_500
    power_limit_mw: int | None = 700_000
    power_default_mw: int | None = 700_000
    temperature: int | None = 54
    clock: int | None = 1_755
    energy_mj: int | None = 1_000_000
    clock_max: int | None = 1_980
    reasons: int | None = 0
    gen: int | None = 5
    gen_max: int | None = 5
    width: int | None = 16
    width_max: int | None = 16
    c2c: tuple[int, int] | None = None
    """Links to the CPU's module, and MB/s of each."""
    ecc: int | None = 0
    persistence: int | None = 1
    processes: list[tuple[int, int | None]] | None = field(default_factory=list)
    busy_for: list[tuple[int, int, int]] | None = None
    """Time stamp, process id, per cent, as NVML's samples per process."""
    gpm: dict[int, float] | None = None
    slices: list[Card] = field(default_factory=list)
    parent: Card | None = None
    refused: bool = False
    """A device cgroup forbids the card: NVML counts it and gives no handle."""
    failing: int | None = None
    """Every question about this card fails with this code."""


class _Metric:
    def __init__(self) -> None:
        self.metricId, self.nvmlReturn, self.value = 0, 0, 0.0


class StubNvml:
    """Answers as pynvml would for these cards."""

    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, *cards: Card, driver: str = "580.65.06", cuda: int = 13000, init_fails: int = 0) -> None:
        self.cards, self.driver, self.cuda, self.init_fails = list(cards), driver, cuda, init_fails
        self.open = 0
        self.samples = 0
        self.calls: Counter[str] = Counter()
        self.without: set[str] = set()
        """Functions that this pynvml does not have."""
        for card in cards:
            for one in card.slices:
                one.parent = card

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in object.__getattribute__(self, "without"):
                raise AttributeError(name)
            object.__getattribute__(self, "calls")[name] += 1
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """The questions that one field of the card answers."""
        fields = {
            "nvmlDeviceGetName": "name",
            "nvmlDeviceGetUUID": "uuid",
            "nvmlDeviceGetCudaComputeCapability": "capability",
            "nvmlDeviceGetPowerUsage": "power_mw",
            "nvmlDeviceGetEnforcedPowerLimit": "power_limit_mw",
            "nvmlDeviceGetPowerManagementDefaultLimit": "power_default_mw",
            "nvmlDeviceGetTemperature": "temperature",
            "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
            "nvmlDeviceGetClockInfo": "clock",
            "nvmlDeviceGetMaxClockInfo": "clock_max",
            "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons": "reasons",
            "nvmlDeviceGetCurrPcieLinkGeneration": "gen",
            "nvmlDeviceGetMaxPcieLinkGeneration": "gen_max",
            "nvmlDeviceGetCurrPcieLinkWidth": "width",
            "nvmlDeviceGetMaxPcieLinkWidth": "width_max",
            "nvmlDeviceGetTotalEccErrors": "ecc",
            "nvmlDeviceGetPersistenceMode": "persistence",
        }
        if name not in fields or name in self.without:
            raise AttributeError(name)
        return lambda card, *_: self._value(card, fields[name])

    def nvmlDeviceGetC2cModeInfoV1(self, card: Card) -> Any:
        """Whether the GPU shares a module with a CPU."""
        return SimpleNamespace(isC2cEnabled=int(self._value(card, "c2c") is not None))

    def nvmlDeviceGetFieldValues(self, card: Card, fields: list[int]) -> list[Any]:
        """Of the fields 170 (links) and 172 (MB/s of each)."""
        links = self._value(card, "c2c")
        known = {170: links[0], 172: links[1]}
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(sllVal=known[one])) for one in fields]

    def _value(self, card: Card, name: str) -> Any:
        assert self.open > 0, "asked while NVML was not initialised"
        if card.failing is not None:
            raise NVMLError(card.failing, "GPU is lost")
        value = getattr(card, name)
        if value is None:
            raise NVMLError(NOT_SUPPORTED)
        return value

    def nvmlInit(self) -> None:
        if self.init_fails:
            raise NVMLError(self.init_fails, "Driver/library version mismatch")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        if self.cards[index].refused:
            raise NVMLError(NO_PERMISSION)
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in self.cards:
            for one in (card, *card.slices):
                if one.uuid == uuid:
                    if card.refused:
                        raise NVMLError(NO_PERMISSION)
                    return one
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetPciInfo(self, card: Card) -> Any:
        return SimpleNamespace(busId=card.bus.encode())

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        return SimpleNamespace(total=self._value(card, "memory"), used=card.used)

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        gpu, memory = self._value(card, "util")
        return SimpleNamespace(gpu=gpu, memory=memory)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self._value(card, "processes")]

    def nvmlDeviceGetProcessUtilization(self, card: Card, since: int) -> Any:
        samples = [one for one in self._value(card, "busy_for") if one[0] > since]
        if not samples:
            raise NVMLError(NOT_FOUND)
        return [SimpleNamespace(timeStamp=at, pid=pid, smUtil=util) for at, pid, util in samples]

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        return [int(bool(card.slices))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return len(card.slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:
        return card.slices[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Card) -> Card:
        if handle.parent is None:
            raise NVMLError(2)
        return handle.parent

    def nvmlDeviceGetGpuInstanceId(self, handle: Card) -> int:
        assert handle.parent is not None
        return handle.parent.slices.index(handle)

    def nvmlGpmQueryDeviceSupport(self, card: Card) -> Any:
        return SimpleNamespace(isSupportedDevice=int(card.gpm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        return SimpleNamespace(card=None)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, card: Card, sample: Any) -> None:
        self._value(card, "name")
        sample.card = card

    def nvmlGpmMigSampleGet(self, card: Card, instance: int, sample: Any) -> None:
        sample.card = card.slices[instance]

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[_Metric() for _ in range(333)])

    def nvmlGpmMetricsGet(self, get: Any) -> None:
        assert get.sample1 is not get.sample2 and get.sample1.card is get.sample2.card
        for metric in get.metrics[: get.numMetrics]:
            known = get.sample2.card.gpm
            metric.nvmlReturn = 0 if metric.metricId in known else NOT_SUPPORTED
            metric.value = known.get(metric.metricId, 0.0)
