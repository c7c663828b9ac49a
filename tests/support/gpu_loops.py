"""Training loops on a simulated CUDA stream: what host, loader and device do in a step.

The stream behaves as CUDA's: a launch takes the host its time and returns, work runs in its order, the host is held
back when a thousand launches are queued, and a wait lasts until all of it is done. How fast a loop is says the device
alone (`pace_us`); `recorded` plays the same loop with our taps' events noted. GPU: not yet run on one.
"""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import DeviceSetup, Fetch, LoaderSetup, Metric, Recording, Series, Setup
from gpu_doctor.recording.setup import Traffic
from tests.support.iterators import iterator
from tests.support.recordings import KEY
from tests.support.simulated_device import MS, Noted, SimulatedDevice

STEPS: Final = 40
SETTLED: Final = 20
"""Number of steps after which a queue is as full as it becomes."""
LEAST_US: Final = 4.0
"""Duration of the shortest kernel, however little it computes."""
READ_US: Final = 10.0
"""Duration of a copy of one number to the host, once it is computed."""
PINNED: Final = 25e3
PAGEABLE: Final = 6e3
PINNING: Final = 8e3
"""Rates in bytes a microsecond: copies from pinned memory, copies from pageable memory, pinning by the loop itself."""
COPY_US: Final = 10.0
"""Host time of the call of a copy."""
CARD_BYTES: Final = int(141e9)


@dataclass(frozen=True)
class Work:
    """Work that a step launches."""

    launches: int = 60
    """Number of kernels of forward (a third) and backward of one micro-batch."""
    kernel_us: float = 150.0
    """Device time of each of these kernels."""
    launch_us: float = 20.0
    """Host time of each of these launches, with the Python around it."""
    losses: int = 0
    """Number of such kernels between forward and backward."""
    updates: int = 12
    """Number of kernels of the optimizer."""
    update_us: float = 20.0
    """Device time of each kernel of the optimizer; its launch takes half as long as another."""
    copies: int = 1
    nbytes: float = 2e5
    """Bytes of one copy."""
    pinned: bool = True
    blocking: bool = False
    micro: int = 1
    batch: int = 32

    def larger(self, times: int) -> Work:
        """Returns the work for a batch so many times as large, with every kernel in proportion."""
        kernel_us, nbytes = max(self.kernel_us * times, LEAST_US), self.nbytes * times
        return replace(self, kernel_us=kernel_us, nbytes=nbytes, batch=self.batch * times)

    def faster(self, times: float, part: float = 1.0) -> Work:
        """Returns the work with kernels of which a part is so many times as fast."""
        return replace(self, kernel_us=max(self.kernel_us * (1.0 - part + part / times), LEAST_US))

    def fewer(self, times: int) -> Work:
        """Returns the same work of forward and backward in so many times fewer launches."""
        return replace(self, launches=self.launches // times, kernel_us=self.kernel_us * times)


@dataclass(frozen=True)
class Way:
    """What a loop does beside its launches, and where it waits for the device."""

    fetch_us: float = 2000.0
    """Time that a batch of 32 takes to make, in a worker or in the loop."""
    workers: int = 4
    python_us: float = 30.0
    waits: str = ""
    """Place of the wait: `item` reads the loss after the step, `scaler` and `clip` read the gradients before it; empty
    for no wait."""
    blocks: bool = True
    """True if the host waits; False if it gets the same numbers later, without a wait."""


class Stream(SimulatedDevice):
    """Device that notes the pace of a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.paces: list[int] = []
        """Times at which a step's work was done and its host had requested the next batch."""


class Unrecorded:
    """Log of a loop that nobody records."""

    def awaits(self, device: SimulatedDevice, copy_ms: float = 0.0) -> None:
        """Waits for the device, as a recorded loop does."""
        device.synchronize()
        device.host(copy_ms)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Loader:
    """Loader whose workers make batches ahead, as many as fit into their queue; or one without workers."""

    def __init__(self, work: Work, way: Way) -> None:
        self.fetch_ns = round(way.fetch_us * work.batch / 32 * 1e3)
        self._workers = way.workers
        if not way.workers and work.pinned:
            self.fetch_ns += round(work.copies * work.nbytes / PINNING * 1e3)
        self._ready = 0
        self._taken: deque[int] = deque()

    def wait_ns(self, now: int) -> int:
        """Returns the wait for the batch that is requested now."""
        if not self._workers:
            return self.fetch_ns
        room = self._taken.popleft() if len(self._taken) >= 2 * self._workers else 0
        self._ready = max(self._ready, room) + self.fetch_ns // self._workers
        waited = max(self._ready - now, 0)
        self._taken.append(now + waited)
        return waited


def play(device: Stream, work: Work, way: Way, log: Any) -> None:
    """Runs the loop on the device, and notes its events in the log."""
    loader, source = Loader(work, way), iterator()
    for _ in range(STEPS):
        for _ in range(work.micro):
            log.ask(source)
            device.fetch(loader.wait_ns(device.now) / MS)
            log.batch(float(work.batch))
            for _ in range(work.copies):
                _copy(device, work, log)
            log.forward()
            _launch(device, work.launches // 3, work.kernel_us, work.launch_us, "forward")
            log.called()
            _launch(device, work.losses, work.kernel_us, work.launch_us, "loss")
            log.backward()
            _launch(device, work.launches - work.launches // 3, work.kernel_us, work.launch_us, "backward")
            log.backed()
        for name, kernels in (("scaler", 1), ("clip", 3)):
            if name == way.waits:
                _launch(device, kernels, LEAST_US, work.launch_us)
                _wait(device, way, log)
        log.step()
        _launch(device, work.updates, work.update_us, work.launch_us / 2, "optimizer")
        log.stepped()
        if way.waits == "item":
            _wait(device, way, log)
        log.zero()
        device.host(way.python_us * 1e-3)
        device.paces.append(max(device.now, device.idle_from))
    log.exhaust(source)
    device.synchronize()


def _wait(device: Stream, way: Way, log: Any) -> None:
    if way.blocks:
        log.awaits(device, READ_US * 1e-3)


def _launch(device: Stream, kernels: int, kernel_us: float, launch_us: float, phase: str = "") -> None:
    for _ in range(kernels):
        device.launch(kernel_us * 1e-3, launch_us * 1e-3, phase)


def _copy(device: Stream, work: Work, log: Any) -> None:
    log.copying()
    device.copy(work.nbytes / (PINNED if work.pinned else PAGEABLE) * 1e-3, work.blocking, COPY_US * 1e-3)
    log.copied(work.nbytes, not work.pinned)


@functools.cache
def pace_us(work: Work, way: Way) -> float:
    """Returns the microseconds a sample of the loop alone, without our recorder."""
    device = Stream()
    play(device, work, way, Unrecorded())
    steps, samples = STEPS - SETTLED, work.batch * work.micro
    return (device.paces[-1] - device.paces[SETTLED - 1]) * 1e-3 / steps / samples


@functools.cache
def recorded(work: Work, way: Way) -> Recording:
    """Returns the loop's recording; loader and utilisation, which the simulation does not know, are filled in."""
    device = Stream()
    recorder = device.recorder()
    loop = Noted(recorder, device)
    play(device, work, way, loop)
    loop.end()
    recording = recorder.close()
    computing = device.busy - device.of_phase.get("copy", 0)
    count, fetch_s = STEPS * work.micro, Loader(work, way).fetch_ns * 1e-9
    sums = (count * fetch_s, count * fetch_s, count * 5e-5)
    times = np.linspace(0.0, device.now * 1e-9, 20)
    copies = count * work.copies
    return replace(
        recording,
        setup=_setup(work, way),
        fetches=(Fetch(KEY, way.workers, count, *sums, work.copies * work.nbytes, np.full(count, fetch_s)),),
        series=(
            reading("gpu_util_pct", times, 100.0 * computing / device.now),
            reading("pcie_gen", times, 4.0),
            reading("pcie_width", times, 16.0),
        ),
        peak_bytes=0.1 * CARD_BYTES,
        traffic=Traffic(
            to_device=copies,
            to_device_bytes=copies * work.nbytes,
            small=copies if work.nbytes < 64e3 else 0,
            blocking_pinned=copies if work.pinned and work.blocking else 0,
            wide_bytes=copies * work.nbytes if work.nbytes >= 1e6 else 0.0,
        ),
    )


def reading(name: str, times: Any, value: float) -> Series:
    """Returns a constant reading of the GPU."""
    return Series(Metric(name, "%", name, "utilization", 0), times, np.full(len(times), value))


def _setup(work: Work, way: Way) -> Setup:
    loader = LoaderSetup(
        key=KEY,
        num_workers=way.workers,
        batch_size=work.batch,
        dataset="Images",
        dataset_len=work.batch * 1000,
        batches=1000,
        collate="default_collate",
        pin_memory=work.pinned,
        prefetch_factor=2 if way.workers else None,
    )
    return Setup(
        device="cuda:0",
        devices=(DeviceSetup(0, "NVIDIA H200", "GPU-1", CARD_BYTES, (9, 0)),),
        dtype="float32",
        autocast="bfloat16",
        usable_cores=8.0,
        layers={"Linear": 4},
        models=("Net",),
        optimizers=("Adam",),
        loaders=(loader,),
    )
