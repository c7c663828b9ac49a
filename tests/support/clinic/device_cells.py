"""Patients on a GPU: loops in virtual time on the simulated device, where the cured loop's time is known exactly.

GPU: not yet run on one. The simulation launches kernels into a queue that runs while the host goes on; our own step
clock and device marks record it as they would a real run. What the simulation does not know of (the loader, NVML's
utilisation) is filled in from the loop's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_doctor.recording import DeviceSetup, Fetch, LoaderSetup, Metric, Recording, Series, Setup
from tests.support.clinic.cell import Patient, Recorded
from tests.support.recordings import KEY
from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.simulated_loops import Loop

BATCH = 8
CARD_BYTES = int(141e9)
CARD = DeviceSetup(0, "NVIDIA H200", "GPU-1", CARD_BYTES, (9, 0))


def on_device(
    loop: Loop, workers: int = 4, fetch_ms: float | None = None, fetch_cpu_ms: float = 0.2, tensor: float = 40.0
) -> Callable[[], Recording]:
    """Plays a simulated loop and adds what the simulation does not know.

    Args:
        workers: of its loader. fetch_ms: wall of a batch's fetch; None = what the loop waits, times the workers.
        fetch_cpu_ms: of it on a core. tensor: activity of the tensor cores in per cent.
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
    """Reads the loss first and only then does its Python, such as formatting and logging what it read."""

    def _after(self, device: SimulatedDevice, loop: Noted, step: int) -> None:
        """The queue is empty meanwhile."""
        loop.awaits(device)
        device.host(self.python)


GPU_5MS = Loop(wait=0.1, kernels=10, kernel=0.5, steps=80, most_queued_ms=20.0)
"""5 ms of kernels a step, launched in 0.1 ms: the queue is full, and holds the host back as in a long run."""


def but(**changes: object) -> Loop:
    """The healthy loop with changes."""
    return replace(GPU_5MS, **changes)  # type: ignore[arg-type]


CELLS: tuple[Patient, ...] = (
    Recorded(
        "gpu-starved-by-its-loader",
        "input",
        ("loader-without-workers", "slow-storage"),
        play=on_device(but(wait=12.0), workers=0),
        cured=on_device(but(wait=0.7)),
    ),
    Recorded(
        "gpu-starved-by-two-workers",
        "input",
        ("too-few-workers", "slow-storage"),
        play=on_device(but(wait=10.0), workers=2, fetch_ms=30.0),
        cured=on_device(but(wait=0.7)),
    ),
    Recorded(
        "gpu-hides-the-wait",
        "compute",
        healthy=True,
        never=("loader-without-workers", "too-few-workers", "slow-getitem"),
        play=on_device(but(wait=3.0, kernel=1.0), workers=0),
    ),
    Recorded(
        "gpu-pageable-copies",
        "transfer",
        ("pageable-transfer",),
        play=on_device(but(copy=4.0)),
        cured=on_device(but(copy=1.5, copy_blocks=False)),
    ),
    Recorded(
        "gpu-copies-hidden",
        "compute",
        healthy=True,
        never=("pageable-transfer", "blocking-transfer"),
        play=on_device(but(copy=0.3, copy_blocks=False, kernel=1.0)),
    ),
    Recorded(
        "gpu-item-each-step",
        "host",
        ("host-sync",),
        play=on_device(PythonAfterItem(wait=0.1, kernels=10, kernel=0.5, steps=80, python=3.5)),
        cured=on_device(but(python=3.5)),
    ),
    Recorded(
        "gpu-item-that-costs-nothing",
        "compute",
        healthy=True,
        never=("host-sync", "launch-bound"),
        play=on_device(but(item_every=1, kernel=2.0)),
    ),
    Recorded(
        "gpu-item-every-fifty-steps",
        "compute",
        healthy=True,
        never=("host-sync",),
        play=on_device(but(item_every=50, steps=120)),
    ),
    Recorded(
        "gpu-many-tiny-kernels",
        "host",
        ("launch-bound",),
        play=on_device(but(kernels=400, kernel=0.003, python=0.1)),
        cured=on_device(but(kernels=400, kernel=0.006, python=0.1)),  # 1.5 us of work, 3 us of a kernel's latency
        samples=4.0,
    ),
    Recorded(
        "gpu-waits-for-python",
        "host",
        ("slow-python",),
        never=("host-sync", "loader-without-workers"),
        play=on_device(but(python=15.0)),
        cured=on_device(GPU_5MS),
    ),
    Recorded("gpu-kept-busy", "compute", healthy=True, play=on_device(GPU_5MS)),
)
