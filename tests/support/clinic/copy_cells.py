"""Patients whose copies hold the GPU up, on the simulated device, where the cured loop's time is known exactly.

GPU: not yet run on one. The simulation knows when a copy runs and for whom it is waited; what of a copy a real run
would also note (its bytes, from what memory it starts) is filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpu_doctor.recording import Metric, Recording, Series
from gpu_doctor.recording.setup import Traffic
from tests.support.clinic.cell import Patient, Recorded
from tests.support.clinic.device_cells import GPU_5MS, on_device
from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.simulated_loops import Loop

STEPS = GPU_5MS.steps
FULL: dict[str, Any] = {"wait": 0.1, "steps": STEPS, "most_queued_ms": 5.0}
LINK_BYTES_PER_MS = 25e6
"""Of pinned memory over 16 lanes of PCIe 4."""


LINK = {"pcie_gen": 4.0, "pcie_width": 16.0}


def _read(name: str, value: float, recording: Recording) -> Series:
    times = recording.series[0].times_s
    return Series(Metric(name, "count", name, "detail", 0), times, times * 0 + value)


@dataclass
class InTurn(Loop):
    """Copies its inputs, works out a mask on the host, and copies that: all of it for one step."""

    mask: float = 2.0
    """Host: to work out the mask."""

    def _copy(self, device: SimulatedDevice, loop: Noted) -> None:
        for last in (False, True):
            loop.copying()
            device.copy(self.copy / 2.0, self.copy_blocks)
            loop.copied(round(self.copy / 2.0 * LINK_BYTES_PER_MS), False)
            device.host(0.0 if last else self.mask)


@dataclass
class InPieces(Loop):
    """Copies its batch in many small pieces, each with a call of its own."""

    pieces: int = 40
    call: float = 0.05
    """Host: one copy's call."""

    def _copy(self, device: SimulatedDevice, loop: Noted) -> None:
        for _ in range(self.pieces):
            loop.copying()
            device.copy(0.002, False, self.call)
            loop.copied(1000, False)


@dataclass
class ThereAndBack(Loop):
    """Takes its features to the host in the middle of each step, works on them with NumPy, and takes them back."""

    numpy: float = 2.5
    """Host: NumPy's part."""
    back: float = 0.05
    """Device: the copy back."""

    def _between(self, device: SimulatedDevice, loop: Noted) -> None:
        """Meanwhile nothing is queued."""
        loop.awaits(device)
        device.host(self.numpy)
        loop.copying()
        device.copy(self.back, True)
        loop.copied(100_000, True)


def carrying(loop: Loop, **traffic: Any) -> Callable[[], Recording]:
    """Plays the loop with a pinning loader, and adds what was seen of its copies."""

    def play() -> Recording:
        recording = on_device(loop)()
        setup, steps = recording.setup, recording.steps
        loaders = tuple(replace(one, pin_memory=True) for one in setup.loaders)
        count, nbytes = int(steps.transfers.sum()), float(steps.transfer_bytes.sum())
        return replace(
            recording,
            setup=replace(setup, loaders=loaders),
            steps=replace(steps, pageable=steps.transfers * 0.0),
            series=(*recording.series, *(_read(name, value, recording) for name, value in LINK.items())),
            traffic=Traffic(to_device=count, to_device_bytes=nbytes, **traffic),
        )

    return play


CELLS: tuple[Patient, ...] = (
    Recorded(
        "gpu-pinned-copies-waited-for",
        "transfer",
        ("blocking-transfer",),
        play=carrying(InTurn(**FULL, copy=0.8), blocking_pinned=2 * STEPS),
        cured=carrying(InTurn(**FULL, copy=0.8, copy_blocks=False)),
    ),
    Recorded(
        "gpu-waits-for-a-copy-and-nothing-else",
        "compute",
        healthy=True,
        never=("blocking-transfer", "pageable-transfer", "slow-python"),
        play=carrying(InTurn(**FULL, copy=0.3, mask=0.05), blocking_pinned=2 * STEPS),
    ),
    Recorded(
        "gpu-forty-copies-a-step",
        "transfer",
        ("many-small-transfers",),
        play=carrying(InPieces(**FULL, kernel=0.1), small=40 * STEPS),
        cured=carrying(InPieces(**FULL, kernel=0.1, pieces=1), small=STEPS),
    ),
    Recorded(
        "gpu-numpy-inside-the-step",
        "transfer",
        ("device-round-trips",),
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
