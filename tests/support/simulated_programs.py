"""Programs on a GPU that is not here: loops in virtual time on the simulated device, where the cured loop's time is
known.

GPU: not yet run on one. The simulation launches kernels into a queue that runs while the host goes on; our own step
clock and device marks record it as they would a real run. What the simulation does not know of (the loader, NVML's
utilisation, a copy's bytes and the memory it starts from) is filled in from the loop's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_doctor.recording import DeviceSetup, Fetch, LoaderSetup, Metric, Recording, Series, Setup
from gpu_doctor.recording.setup import Traffic
from tests.support.recordings import KEY
from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.simulated_loops import Loop
from tools.evaluate.program import Recorded

BATCH = 8
CARD_BYTES = int(141e9)
CARD = DeviceSetup(0, "NVIDIA H200", "GPU-1", CARD_BYTES, (9, 0))


def on_device(
    loop: Loop, workers: int = 4, fetch_ms: float | None = None, fetch_cpu_ms: float = 0.2, tensor: float = 40.0
) -> Callable[[], Recording]:
    """Returns what plays a simulated loop and adds what the simulation does not know.

    Args:
        loop: The loop.
        workers: The number of its loader's workers.
        fetch_ms: The duration of a batch's fetch; None = what the loop waits, times the workers.
        fetch_cpu_ms: The CPU time of a batch's fetch.
        tensor: The activity of the tensor cores in per cent.
    """

    def play() -> Recording:
        device, recording = loop.play()
        wall = loop.wait * max(workers, 1) if fetch_ms is None else fetch_ms
        n, times = loop.steps, np.linspace(0.0, device.now * 1e-9, 20)
        util = min(100.0 * device.busy / max(device.now, 1), 100.0)
        setup = Setup(
            device="cuda:0",
            devices=(CARD,),
            dtype="float32",
            usable_cores=8.0,
            layers={"Linear": 4},
            models=("Net",),
            optimizers=("Adam",),
            autocast="bfloat16",
            loaders=(
                LoaderSetup(
                    key=KEY,
                    role="training",
                    num_workers=workers,
                    batch_size=BATCH,
                    dataset="Images",
                    dataset_len=BATCH * 1000,
                    batches=1000,
                    collate="default_collate",
                    pin_memory=not (loop.copy and loop.copy_blocks),
                    prefetch_factor=2 if workers else None,
                ),
            ),
        )
        sums = (n * wall * 1e-3, n * min(fetch_cpu_ms, wall) * 1e-3, n * 0.05e-3)
        pageable = recording.steps.transfers if loop.copy and loop.copy_blocks else recording.steps.transfers * 0.0
        return replace(
            recording,
            steps=replace(recording.steps, pageable=pageable),
            setup=setup,
            fetches=(Fetch(KEY, workers, n, *sums, 1000.0, np.full(n, wall * 1e-3)),),
            series=(_percent("gpu_util_pct", times, util), _percent("tensor_active_pct", times, tensor)),
            peak_bytes=0.7 * CARD_BYTES,
        )

    return play


def _percent(name: str, times: np.ndarray, value: float) -> Series:
    return Series(Metric(name, "%", name, "utilization", 0), times, times * 0 + value)


class PythonAfterItem(Loop):
    """Loop that reads the loss first and only then does its Python, such as formatting and logging what it read."""

    def _after(self, device: SimulatedDevice, loop: Noted, step: int) -> None:
        """Does the Python while the queue is empty."""
        loop.awaits(device)
        device.host(self.python)


GPU_5MS = Loop(wait=0.1, kernels=10, kernel=0.5, steps=80, most_queued_ms=20.0)
"""5 ms of kernels a step, launched in 0.1 ms: the queue is full, and holds the host back as in a long run."""


def but(**changes: object) -> Loop:
    """Returns the healthy loop with changes."""
    return replace(GPU_5MS, **changes)  # type: ignore[arg-type]


STEPS = GPU_5MS.steps
FULL: dict[str, Any] = {"wait": 0.1, "steps": STEPS, "most_queued_ms": 5.0}
LINK_BYTES_PER_MS = 25e6
"""The rate of copies from pinned memory over 16 lanes of PCIe 4."""
LINK = {"pcie_gen": 4.0, "pcie_width": 16.0}


def _read(name: str, value: float, recording: Recording) -> Series:
    times = recording.series[0].times_s
    return Series(Metric(name, "count", name, "detail", 0), times, times * 0 + value)


@dataclass
class InTurn(Loop):
    """Loop that copies its inputs, works out a mask on the host, and copies that: all of it for one step."""

    mask: float = 2.0
    """The host's time for the mask, in ms."""

    def _copy(self, device: SimulatedDevice, loop: Noted) -> None:
        for last in (False, True):
            loop.copying()
            device.copy(self.copy / 2.0, self.copy_blocks)
            loop.copied(round(self.copy / 2.0 * LINK_BYTES_PER_MS), False)
            device.host(0.0 if last else self.mask)


@dataclass
class InPieces(Loop):
    """Loop that copies its batch in many small pieces, each with a call of its own."""

    pieces: int = 40
    call: float = 0.05
    """The host's time for the call of one copy, in ms."""

    def _copy(self, device: SimulatedDevice, loop: Noted) -> None:
        for _ in range(self.pieces):
            loop.copying()
            device.copy(0.002, False, self.call)
            loop.copied(1000, False)


@dataclass
class ThereAndBack(Loop):
    """Loop that takes its features to the host within each step, works on them with NumPy, and takes them back."""

    numpy: float = 2.5
    """The host's time for NumPy, in ms."""
    back: float = 0.05
    """The device's time for the copy back, in ms."""

    def _between(self, device: SimulatedDevice, loop: Noted) -> None:
        """Takes them there and back while nothing is queued."""
        loop.awaits(device)
        device.host(self.numpy)
        loop.copying()
        device.copy(self.back, True)
        loop.copied(100_000, True)


def carrying(loop: Loop, **traffic: Any) -> Callable[[], Recording]:
    """Returns what plays the loop with a pinning loader, and adds what a real run records of its copies."""

    def play() -> Recording:
        recording = on_device(loop)()
        setup, steps = recording.setup, recording.steps
        loaders = tuple(replace(loader, pin_memory=True) for loader in setup.loaders)
        count, nbytes = int(steps.transfers.sum()), float(steps.transfer_bytes.sum())
        return replace(
            recording,
            setup=replace(setup, loaders=loaders),
            steps=replace(steps, pageable=steps.transfers * 0.0),
            series=(*recording.series, *(_read(name, value, recording) for name, value in LINK.items())),
            traffic=Traffic(to_device=count, to_device_bytes=nbytes, **traffic),
        )

    return play


SIMULATED: tuple[Recorded, ...] = (
    Recorded(
        name="gpu-starved-by-its-loader",
        classes=("input",),
        causes=("loader-without-workers", "slow-storage"),
        play=on_device(but(wait=12.0), workers=0),
        cured=on_device(but(wait=0.7)),
    ),
    Recorded(
        name="gpu-starved-by-two-workers",
        classes=("input",),
        causes=("too-few-workers", "slow-storage"),
        play=on_device(but(wait=10.0), workers=2, fetch_ms=30.0),
        cured=on_device(but(wait=0.7)),
    ),
    Recorded(
        name="gpu-hides-the-wait",
        classes=("compute",),
        never=("loader-without-workers", "too-few-workers", "slow-getitem"),
        play=on_device(but(wait=3.0, kernel=1.0), workers=0),
    ),
    Recorded(
        name="gpu-pageable-copies",
        classes=("transfer",),
        causes=("pageable-transfer",),
        play=on_device(but(copy=4.0)),
        cured=on_device(but(copy=1.5, copy_blocks=False)),
    ),
    Recorded(
        name="gpu-copies-hidden",
        classes=("compute",),
        never=("pageable-transfer", "blocking-transfer"),
        play=on_device(but(copy=0.3, copy_blocks=False, kernel=1.0)),
    ),
    Recorded(
        name="gpu-item-each-step",
        holdout=True,
        classes=("host",),
        causes=("host-sync",),
        play=on_device(PythonAfterItem(wait=0.1, kernels=10, kernel=0.5, steps=80, python=3.5)),
        cured=on_device(but(python=3.5)),
    ),
    Recorded(
        name="gpu-item-that-costs-nothing",
        classes=("compute",),
        never=("host-sync", "launch-bound"),
        play=on_device(but(item_every=1, kernel=2.0)),
    ),
    Recorded(
        name="gpu-item-every-fifty-steps",
        classes=("compute",),
        never=("host-sync",),
        play=on_device(but(item_every=50, steps=120)),
    ),
    Recorded(
        name="gpu-many-tiny-kernels",
        holdout=True,
        classes=("host",),
        causes=("launch-bound",),
        play=on_device(but(kernels=400, kernel=0.003, python=0.1)),
        cured=on_device(but(kernels=400, kernel=0.006, python=0.1)),  # 1.5 us of work, 3 us of a kernel's latency
        samples=4.0,
    ),
    Recorded(
        name="gpu-waits-for-python",
        classes=("host",),
        causes=("slow-python",),
        never=("host-sync", "loader-without-workers"),
        play=on_device(but(python=15.0)),
        cured=on_device(GPU_5MS),
    ),
    Recorded(name="gpu-kept-busy", classes=("compute",), play=on_device(GPU_5MS)),
    Recorded(
        name="gpu-pinned-copies-waited-for",
        classes=("transfer",),
        causes=("blocking-transfer",),
        play=carrying(InTurn(**FULL, copy=0.8), blocking_pinned=2 * STEPS),
        cured=carrying(InTurn(**FULL, copy=0.8, copy_blocks=False)),
    ),
    Recorded(
        name="gpu-waits-for-a-copy-and-nothing-else",
        classes=("compute",),
        never=("blocking-transfer", "pageable-transfer", "slow-python"),
        play=carrying(InTurn(**FULL, copy=0.3, mask=0.05), blocking_pinned=2 * STEPS),
    ),
    Recorded(
        name="gpu-forty-copies-a-step",
        classes=("transfer",),
        causes=("many-small-transfers",),
        play=carrying(InPieces(**FULL, kernel=0.1), small=40 * STEPS),
        cured=carrying(InPieces(**FULL, kernel=0.1, pieces=1), small=STEPS),
    ),
    Recorded(
        name="gpu-numpy-inside-the-step",
        holdout=True,
        classes=("transfer",),
        causes=("device-round-trips",),
        play=carrying(
            ThereAndBack(**FULL),
            to_host=STEPS,
            to_host_bytes=1e5 * STEPS,
            round_trips=STEPS,
            round_trip_s=2.55e-3 * STEPS,
        ),
        cured=on_device(GPU_5MS),
    ),
)
