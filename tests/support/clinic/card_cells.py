"""Patients on cards and machines that are not here: recordings with the readings that such a machine would give.

GPU: not yet run on one. There is no cured run to time; what is under test is the judgement alone: the class, the first
finding, and that a card's ordinary habits (its power limit, links that rest, a desktop's memory) are left be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_doctor.machine.cards import HELD_BIT, POWER_CAP_BIT, THROTTLE_BITS
from gpu_doctor.recording import Metric, Recording, Series
from gpu_doctor.recording.setup import Chore, ModelFacts, World
from tests.support.clinic.cell import Patient, Recorded
from tests.support.recordings import Loop, on_gpu

BUSY = on_gpu(loader={"pin_memory": True, "num_workers": 4, "prefetch_factor": 2}, workers=4, fetch=2.0, peak_share=0.7)
HEAT_BIT = next(bit for bit, words in THROTTLE_BITS.items() if "heat" in words or "thermal" in words or "hot" in words)
CLOCKS = {"sm_clock_mhz": 1755.0, "sm_clock_max_mhz": 1980.0, "clock_limit_bits": 0.0, "gpu_temperature_c": 66.0}

RISER = {"pcie_gen": 3.0, "pcie_width": 4.0, "pcie_gen_max": 5.0, "pcie_width_max": 16.0}

COPIED = ModelFacts({"cuda:0": 4 << 20}, wrapper="DataParallel")


def read(loop: Loop, chores: tuple[Chore, ...] = (), /, **readings: float) -> Callable[[], Recording]:
    """The loop's recording with further readings of its card, each constant while it ran."""

    def play() -> Recording:
        recording = loop.recording()
        end_s = float(recording.steps.start_s[-1])
        times = np.linspace(0.0, end_s, 40)
        names = {"gpu_util_pct": loop.gpu_util or 98.0, "gpu_memory_total_bytes": 80e9, **readings}
        kept = tuple(one for one in recording.series if one.metric.name not in names)
        more = tuple(
            Series(Metric(name, "", name, "card", 0), times, np.full(len(times), value))
            for name, value in names.items()
        )
        return replace(recording, series=(*kept, *more), chores=chores)

    return play


def alone(gpus: int) -> dict[str, object]:
    """The setup of one process that trains on the first of several GPUs."""
    return {"world": World(visible_gpus=gpus), "model": ModelFacts({"cuda:0": 4 << 20})}


CELLS: tuple[Patient, ...] = (
    Recorded("card-kept-busy", "compute", healthy=True, play=read(BUSY, **CLOCKS)),
    Recorded(
        "card-full-precision",
        "compute",
        ("full-precision", "tf32-off"),
        play=read(BUSY.but(tensor_active=0.0), **CLOCKS),
    ),
    Recorded(
        "card-throttled-by-heat",
        "compute",
        ("throttled",),
        play=read(BUSY, **{**CLOCKS, "sm_clock_mhz": 990.0, "clock_limit_bits": float(HEAT_BIT)}),
    ),
    Recorded(
        "card-at-its-power-limit",
        "compute",
        healthy=True,
        never=("throttled", "capped-clocks"),
        play=read(
            BUSY,
            **{**CLOCKS, "sm_clock_mhz": 1500.0, "clock_limit_bits": float(POWER_CAP_BIT), "gpu_temperature_c": 84.0},
            gpu_power_limit_w=700.0,
            gpu_power_w=698.0,
            gpu_power_default_w=700.0,
        ),
    ),
    Recorded(
        "card-with-locked-clocks",
        "compute",
        ("capped-clocks",),
        play=read(BUSY, **{**CLOCKS, "sm_clock_mhz": 900.0, "clock_limit_bits": float(HELD_BIT)}),
    ),
    Recorded(
        "card-shared-with-another",
        "compute",
        ("shared-gpu",),
        play=read(
            BUSY,
            **CLOCKS,
            gpu_memory_used_bytes=70e9,
            other_processes=1.0,
            other_processes_bytes=9e9,
            other_processes_util_pct=45.0,
        ),
    ),
    Recorded(
        "card-with-a-desktop-on-it",
        "compute",
        healthy=True,
        never=("shared-gpu",),
        play=read(
            BUSY,
            **CLOCKS,
            gpu_memory_used_bytes=57e9,
            other_processes=1.0,
            other_processes_bytes=3e8,
            other_processes_util_pct=1.0,
        ),
    ),
    Recorded(
        "card-on-a-riser",
        "transfer",
        ("slow-link", "pageable-transfer", "heavy-transfer"),
        play=read(
            BUSY.but(transfer=6.0, gpu_gap=6.2, batch_bytes=2.4e7),
            **CLOCKS,
            **RISER,
        ),
    ),
    Recorded(
        "card-whose-link-does-not-matter",
        "compute",
        healthy=True,
        never=("slow-link",),
        play=read(BUSY, **CLOCKS, pcie_gen=3.0, pcie_width=4.0, pcie_gen_max=5.0, pcie_width_max=16.0),
    ),
    Recorded(
        "card-beside-three-idle-ones",
        "compute",
        ("idle-gpus",),
        play=read(BUSY.but(setup=alone(4)), **CLOCKS),
    ),
    Recorded(
        "card-nearly-full",
        "compute",
        ("near-out-of-memory",),
        play=read(BUSY.but(peak_share=0.96), **CLOCKS, gpu_memory_used_bytes=79e9, torch_reserved_bytes=78e9),
    ),
    Recorded(
        "python-behind-a-full-queue",
        "compute",
        healthy=True,
        never=("slow-python",),
        play=read(BUSY.but(other=3.0, forward=1.0, backward=2.0, optimizer=1.0), **CLOCKS),
    ),
    Recorded(
        name="card-whose-cache-is-emptied-each-step",
        klass="host",
        top=("cache-emptied-each-step",),
        play=read(
            BUSY.but(other=3.0, forward=3.0, backward=3.0, optimizer=1.0, gpu_work=7.0, gpu_gap=3.0),
            (Chore("empty-cache", 100, 0.3, line=9, function="<module>", text="torch.cuda.empty_cache()"),),
            **CLOCKS,
        ),
    ),
    Recorded(
        name="card-whose-cache-is-emptied-each-epoch",
        klass="compute",
        healthy=True,
        never=("cache-emptied-each-step", "slow-python"),
        play=read(BUSY, (Chore("empty-cache", 2, 0.006, text="torch.cuda.empty_cache()"),), **CLOCKS),
    ),
    Recorded(
        name="cards-under-data-parallel",
        klass="compute",
        top=("data-parallel",),
        play=read(
            BUSY.but(setup={"world": World(visible_gpus=4), "model": COPIED}),
            **CLOCKS,
        ),
    ),
    Recorded(
        name="card-with-a-tiny-batch",
        klass="host",
        top=("launch-bound", "small-batch"),
        play=read(BUSY.but(gpu_util=30.0, caught_up=1.0, gpu_work=6.0, gpu_gap=4.0, peak_share=0.1), **CLOCKS),
    ),
)
