"""Reads the GPUs that this process sees through NVIDIA's management library (nvidia-ml-py).

Any single reading may be missing: one that a card, a driver or an old pynvml does not support is tried once and left
out from then on. GPU: not yet run on one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.machine.nvml.activity import Gpm, supported
from gpu_doctor.machine.nvml.gauges import FACT, GAUGES, OFTEN, unsupported
from gpu_doctor.machine.nvml.neighbours import neighbours
from gpu_doctor.machine.nvml.visible import Gpu, ask, device_setup, look, text
from gpu_doctor.machine.probe import ProbeScope, Reader, Reading
from gpu_doctor.machine.torch_memory import cuda_in_use, device_uuids
from gpu_doctor.recording import DeviceSetup

VENDOR: Any = None
"""The module pynvml; None if it cannot be imported."""
try:  # at import, on the caller's thread: the poller's thread imports nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old package named pynvml warns that it is deprecated
        import pynvml

        VENDOR = pynvml
except Exception:
    pass

RARELY_S: Final = 5.0
"""Time between two readings of values that hardly change, in s: facts, limits, maxima, other processes."""
_NO_DRIVER: Final = {9, 12}
"""NVML's codes for: driver not loaded, library not found (nvml.h)."""


@dataclass(frozen=True)
class Access:
    """The initialised NVML, or the reason why it is not available."""

    vendor: Any | None
    """The module pynvml; None if NVML is not available."""
    problem: str = ""
    """`no-library` (nvidia-ml-py missing), `no-driver`, or NVML's own message; empty if it works."""


@contextmanager
def initialised() -> Iterator[Access]:
    """Initialises NVML for the duration of the context; yields the reason, and never raises, if it is not available."""
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
        if os.getpid() == process:  # a forked child must not shut down its parent's NVML
            ask(vendor, "nvmlShutdown")


def devices() -> tuple[DeviceSetup, ...]:
    """Returns the GPUs that this process sees, in torch's order as far as it is known; empty without GPU or driver."""
    with initialised() as access:
        vendor = access.vendor
        return () if vendor is None else tuple(device_setup(vendor, gpu) for gpu in look(vendor, device_uuids()).gpus)


def driver_version() -> str:
    """Returns the NVIDIA driver's version, such as `580.65.06`; empty if there is none."""
    with initialised() as access:
        return text(ask(access.vendor, "nvmlSystemGetDriverVersion")) if access.vendor is not None else ""


class _Device:
    """Reader of one GPU."""

    def __init__(self, vendor: Any, gpu: Gpu, clock: Callable[[], float], sure: bool) -> None:
        """Chooses the gauges: only facts if the GPU's index is not `sure`."""
        self.gpu, self._vendor = gpu, vendor
        self._gauges = {gauge: gauge.metric(gpu.index) for gauge in GAUGES if sure or gauge.when == FACT}
        self._gpm: Gpm | None = None
        if sure and supported(vendor, gpu):
            try:
                self._gpm = Gpm(vendor, gpu, clock)
            except Exception:  # a virtual machine may show the feature without permission to use it
                self._gpm = None
        self._answered = False

    def read(self, rarely: bool) -> list[Reading]:
        """Returns all readings that work; raises the last error if none does although some did before.

        Args:
            rarely: True if gauges that hardly change are read as well.
        """
        found: list[Reading] = []
        errors: list[Exception] = []
        for gauge, metric in tuple(self._gauges.items()):
            if gauge.when != OFTEN and not rarely:
                continue
            try:
                value = gauge.read(self._vendor, self.gpu)
            except Exception as error:
                if unsupported(error):
                    del self._gauges[gauge]
                else:
                    errors.append(error)
                continue
            found += [] if value is None else [(metric, float(value))]
        if self._answered and errors and not found:
            raise errors[-1]
        self._answered = self._answered or bool(found)
        return found + self._inside()

    def _inside(self) -> list[Reading]:
        """Returns GPM's readings, and gives GPM up after an error."""
        try:
            return self._gpm.read() if self._gpm is not None else []
        except Exception:
            self.close()
            return []

    def close(self) -> None:
        """Frees GPM's samples."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None


class _Cards:
    """Reader of the GPUs that this process sees. They are listed at first, and again when torch has initialised CUDA.

    Until then their order is a guess, and the cell may still choose others (CUDA_VISIBLE_DEVICES). So if there are
    several, no value is read until then that could be assigned to the wrong GPU.
    """

    def __init__(self, vendor: Any, scope: ProbeScope) -> None:
        self._vendor, self._scope = vendor, scope
        self._devices: list[_Device] = []
        self._list()

    def _list(self) -> None:
        """Lists the GPUs and makes a reader for each."""
        self._in_use = cuda_in_use()  # read first: if CUDA starts meanwhile, the next reading lists the GPUs again
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
        """Returns all readings of all GPUs. One that stops answering is dropped; the last one's error is raised."""
        if not self._in_use and cuda_in_use():
            self._list()
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
            found += neighbours(self._vendor, [device.gpu for device in self._devices], self._in_use, self._newest_us)
        return found

    def close(self) -> None:
        """Frees the resources of all readers."""
        for device in self._devices:
            device.close()


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader of the GPUs that this process sees; None, without a note, if NVML has none."""
    with initialised() as access:
        cards = _Cards(access.vendor, scope) if access.vendor is not None else None
        if cards is None or not cards.counted:
            yield None
            return
        try:
            yield cards.read
        finally:
            cards.close()
