"""Training loops on a simulated CUDA stream, each with what its host, its loader and its device do of a step.

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
"""Steps after which a queue is as full as it becomes."""
LEAST_US: Final = 4.0
"""No kernel is shorter, however little it computes."""
READ_US: Final = 10.0
"""To copy a number to the host, once it is there."""
PINNED: Final = 25e3
PAGEABLE: Final = 6e3
PINNING: Final = 8e3
"""Bytes a microsecond: of a copy from pinned memory, of one from pageable memory, and of pinning by the loop itself."""
COPY_US: Final = 10.0
"""Of the host, for the call of a copy."""
CARD_BYTES: Final = int(141e9)


@dataclass(frozen=True)
class Work:
    """What a step launches."""

    launches: int = 60
    """Kernels of forward (a third) and backward of one micro-batch,"""
    kernel_us: float = 150.0
    """each so long on the device,"""
    launch_us: float = 20.0
    """and so long on the host, with the Python around it."""
    losses: int = 0
    """Such kernels between forward and backward."""
    updates: int = 12
    """Kernels of the optimizer,"""
    update_us: float = 20.0
    """each so long on the device and half as long on the host as another launch."""
    copies: int = 1
    nbytes: float = 2e5
    """Of one copy."""
    pinned: bool = True
    blocking: bool = False
    micro: int = 1
    batch: int = 32

    def larger(self, times: int) -> Work:
        """The same for a batch so many times as large: every kernel in proportion."""
        kernel_us, nbytes = max(self.kernel_us * times, LEAST_US), self.nbytes * times
        return replace(self, kernel_us=kernel_us, nbytes=nbytes, batch=self.batch * times)

    def faster(self, times: float, part: float = 1.0) -> Work:
        """The same with kernels of which this part is so many times as fast."""
        return replace(self, kernel_us=max(self.kernel_us * (1.0 - part + part / times), LEAST_US))

    def fewer(self, times: int) -> Work:
        """The same work of forward and backward in so many times fewer launches."""
        return replace(self, launches=self.launches // times, kernel_us=self.kernel_us * times)


@dataclass(frozen=True)
class Way:
    """What else a loop does, and where it waits for the device."""

    fetch_us: float = 2000.0
    """To make a batch of 32, in a worker or in the loop."""
    workers: int = 4
    python_us: float = 30.0
    waits: str = ""
    """`item` = the loss is read after the step, `scaler` = a GradScaler reads whether gradients are finite before it,
    `clip` = clipping does; empty = nothing is waited for."""
    blocks: bool = True
    """Else what is waited for comes to the host when it is done: the same work, and no wait."""


class Stream(SimulatedDevice):
    """A device that knows how fast a loop is."""

    def __init__(self) -> None:
        super().__init__()
        self.paces: list[int] = []
        """When each step's work was over and its host had asked for the next batch."""


class Unheard:
    """Nobody listens to the loop."""

    def awaits(self, device: SimulatedDevice, copy_ms: float = 0.0) -> None:
        """The loop waits all the same."""
        device.synchronize()
        device.host(copy_ms)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Loader:
    """Workers that make batches ahead, as many as fit into their queue; or none."""

    def __init__(self, work: Work, way: Way) -> None:
        self.fetch_ns = round(way.fetch_us * work.batch / 32 * 1e3)
        self._workers = way.workers
        if not way.workers and work.pinned:
            self.fetch_ns += round(work.copies * work.nbytes / PINNING * 1e3)
        self._ready = 0
        self._taken: deque[int] = deque()

    def wait_ns(self, now: int) -> int:
        """How long the loop that asks now waits for its batch."""
        if not self._workers:
            return self.fetch_ns
        room = self._taken.popleft() if len(self._taken) >= 2 * self._workers else 0
        self._ready = max(self._ready, room) + self.fetch_ns // self._workers
        waited = max(self._ready - now, 0)
        self._taken.append(now + waited)
        return waited


def play(device: Stream, work: Work, way: Way, told: Any) -> None:
    """Runs the loop on the device; `told` hears of it as a recorder's log would."""
    loader, source = Loader(work, way), iterator()
    for _ in range(STEPS):
        for _ in range(work.micro):
            told.ask(source)
            device.fetch(loader.wait_ns(device.now) / MS)
            told.batch(float(work.batch))
            for _ in range(work.copies):
                _copy(device, work, told)
            told.forward()
            _launch(device, work.launches // 3, work.kernel_us, work.launch_us, "forward")
            told.called()
            _launch(device, work.losses, work.kernel_us, work.launch_us, "loss")
            told.backward()
            _launch(device, work.launches - work.launches // 3, work.kernel_us, work.launch_us, "backward")
            told.backed()
        for name, kernels in (("scaler", 1), ("clip", 3)):
            if name == way.waits:
                _launch(device, kernels, LEAST_US, work.launch_us)
                _wait(device, way, told)
        told.step()
        _launch(device, work.updates, work.update_us, work.launch_us / 2, "optimizer")
        told.stepped()
        if way.waits == "item":
            _wait(device, way, told)
        told.zero()
        device.host(way.python_us * 1e-3)
        device.paces.append(max(device.now, device.idle_from))
    told.exhaust(source)
    device.synchronize()


def _wait(device: Stream, way: Way, told: Any) -> None:
    if way.blocks:
        told.awaits(device, READ_US * 1e-3)


def _launch(device: Stream, kernels: int, kernel_us: float, launch_us: float, phase: str = "") -> None:
    for _ in range(kernels):
        device.launch(kernel_us * 1e-3, launch_us * 1e-3, phase)


def _copy(device: Stream, work: Work, told: Any) -> None:
    told.copying()
    device.copy(work.nbytes / (PINNED if work.pinned else PAGEABLE) * 1e-3, work.blocking, COPY_US * 1e-3)
    told.copied(work.nbytes, not work.pinned)


@functools.cache
def pace_us(work: Work, way: Way) -> float:
    """Microseconds a sample, of the loop alone: nobody listens."""
    device = Stream()
    play(device, work, way, Unheard())
    steps, samples = STEPS - SETTLED, work.batch * work.micro
    return (device.paces[-1] - device.paces[SETTLED - 1]) * 1e-3 / steps / samples


@functools.cache
def recorded(work: Work, way: Way) -> Recording:
    """What we record of it, with what the simulation does not know filled in: the loader, the card's utilisation."""
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
    """A constant reading of the GPU."""
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
