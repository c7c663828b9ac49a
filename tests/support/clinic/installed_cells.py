"""Patients that end early or may not end well: builds and drivers, too little memory, workers that cannot start.

A torch without CUDA, an old driver, a full /dev/shm and a machine short of memory are not here: recordings with what
such a machine would say. Nothing is timed; what is under test is the judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_doctor.diagnosis.rules.prescriptions import CANNOT
from gpu_doctor.recording import Metric, Recording, Series
from gpu_doctor.recording.setup import World
from tests.support.clinic.card_cells import BUSY, CLOCKS, read
from tests.support.clinic.cell import Patient, Recorded
from tests.support.recordings import Loop, on_gpu

GIB = float(1 << 30)
CPU_BUILD: dict[str, Any] = {"torch_version": "2.13.0+cpu", "cuda_version": ""}
NEW_BUILD: dict[str, Any] = {
    "torch_version": "2.13.0+cu130",
    "cuda_version": "13.0",
    "driver_version": "470.82.01",
}
TRAINED_ON_CPU = Loop(forward=10.0, backward=20.0, optimizer=2.0)
NO_IMAGE = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
TOO_MUCH = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.00 GiB of "
    "which 3.00 GiB is free. Including non-PyTorch memory, this process has 75.50 GiB memory in use. Of the allocated "
    "memory 74.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
PICKLED = f"{CANNOT}spawn, which needs pickling, but dataset is defined in the notebook: move it to a module."
SPAWN: dict[str, Any] = {"start_method": "spawn", "refusals": {"num_workers": PICKLED}, "batches": 1000}
FED = Loop(workers=8, fetch=4.0, cores=8.0)
"""Eight workers that keep up with ease."""


def ended(loop: Loop, outcome: str, reason: str) -> Callable[[], Recording]:
    """The loop's recording, had it ended so."""
    return lambda: replace(loop.recording(), outcome=outcome, reason=reason)


def on_host(loop: Loop, **readings: float) -> Callable[[], Recording]:
    """The loop's recording with readings of the host, each constant while it ran."""

    def play() -> Recording:
        recording = loop.recording()
        times = np.linspace(0.0, float(recording.steps.start_s[-1]), 40)
        more = (Series(Metric(name, "", name, "detail"), times, np.full(40, one)) for name, one in readings.items())
        return replace(recording, series=(*recording.series, *more))

    return play


def in_pieces(play: Callable[[], Recording], batches: int) -> Callable[[], Recording]:
    """The same recording, each of its steps made of so many micro-batches."""

    def accumulated() -> Recording:
        recording = play()
        steps = recording.steps
        return replace(recording, steps=replace(steps, batches=np.full(len(steps), float(batches))))

    return accumulated


CELLS: tuple[Patient, ...] = (
    Recorded(
        "torch-without-cuda",
        "compute",
        ("cpu-only-torch",),
        play=read(TRAINED_ON_CPU.but(setup=CPU_BUILD), gpu_util_pct=0.0, driver_cuda=12040.0),
    ),
    Recorded(
        "driver-of-last-decade",
        "compute",
        ("driver-too-old",),
        play=read(TRAINED_ON_CPU.but(setup=NEW_BUILD), gpu_util_pct=0.0, driver_cuda=11040.0),
    ),
    Recorded(
        "card-that-torch-has-no-code-for",
        "unknown",
        ("unsupported-architecture",),
        play=ended(on_gpu(steps=1, capability=(6, 1)), "failed", NO_IMAGE),
    ),
    Recorded(
        "batch-that-does-not-fit",
        "unknown",
        ("out-of-memory",),
        play=ended(on_gpu(steps=1, batch=64, setup={"parameter_bytes": 1 << 30}), "out-of-memory", TOO_MUCH),
    ),
    Recorded(
        "card-whose-memory-is-in-pieces",
        "compute",
        ("fragmented-memory",),
        play=read(BUSY, **CLOCKS, torch_reserved_bytes=76e9, torch_alloc_retries=3.0),
    ),
    Recorded(
        "card-with-a-cache-in-use",
        "compute",
        healthy=True,
        never=("fragmented-memory", "near-out-of-memory"),
        play=read(BUSY, **CLOCKS, torch_reserved_bytes=60e9, torch_alloc_retries=0.0),
    ),
    Recorded(
        "host-that-is-nearly-full",
        "compute",
        ("host-memory-pressure",),
        play=on_host(
            FED,
            host_memory_available_bytes=0.5 * GIB,
            host_memory_total_bytes=32 * GIB,
            process_rss_bytes=4 * GIB,
            workers_rss_bytes=20 * GIB,
        ),
    ),
    Recorded(
        "container-with-64-mb-of-shm",
        "compute",
        ("small-shared-memory",),
        play=FED.but(batch_bytes=10e6, setup={"world": World(shm_free_bytes=64e6)}).recording,
    ),
    Recorded(
        "workers-that-cannot-be-spawned",
        "input",
        ("workers-cannot-start",),
        play=Loop(wait=20.0, fetch_cpu=1.0, loader=SPAWN).recording,
    ),
    Recorded(
        "micro-batches-on-an-empty-card",
        "host",
        ("needless-accumulation",),
        play=in_pieces(
            read(BUSY.but(gpu_util=45.0, caught_up=1.0, gpu_work=6.0, gpu_gap=4.0, peak_share=0.2), **CLOCKS), 4
        ),
    ),
)
