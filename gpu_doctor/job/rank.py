"""One rank of a job: what is read off its recording, which is then let go of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from gpu_doctor.diagnosis import FEWEST_STEPS, Vitals, measure
from gpu_doctor.recording import Column, LoaderSetup, Losses, Recording, Setup, Steps, load
from gpu_doctor.recording.steps import TRAINING

DISTRIBUTED: Final = "DistributedDataParallel"
FULLY_SHARDED: Final = "FullyShardedDataParallel"
PHASES: Final = ("data_wait", "transfer", "forward", "backward", "optimizer", "sync", "evaluation", "other")
"""Those of a rank's row; `other` is the loop's own Python. With our own time they add up to the step."""


@dataclass(frozen=True)
class Work:
    """What a rank did up to the end of each row of its steps, added up. Our own time is no part of it."""

    ends: Column
    """Number of the row's last step, from 1."""
    alone_s: Column
    """Seconds in which it waits for no other rank: in neither forward nor backward."""
    forward_s: Column


@dataclass(frozen=True)
class Rank:
    """One rank's figures; times are seconds of a step after warm-up, None = not measured."""

    number: int
    world_size: int
    path: Path
    """Of its recording."""
    setup: Setup
    outcome: str
    """How its run ended, one of the outcomes of a recording."""
    reason: str
    started_at: float
    """Unix time, by the clock of its host."""
    duration_s: float
    first_step_s: float | None
    """Seconds from its begin to its first step."""
    steps: int
    """All that it took, warm-up included."""
    warmup_steps: int
    samples: float | None
    samples_per_s: float | None
    step_s: float | None
    phases_s: dict[str, float | None]
    """Of a step, by phase, in the host's time: on a GPU a phase may only launch what the device does later."""
    device_own_s: float | None
    """On a GPU, the device's time of a step outside of its backward."""
    gpu_busy_share: float | None
    notes: tuple[str, ...] = ()
    work: Work | None = field(default=None, repr=False)
    """None on a GPU, whose host runs ahead of it."""
    losses: Losses = field(default_factory=Losses, repr=False)

    def recording(self) -> Recording:
        """Loads the whole recording again, such as for `gpu_doctor.diagnose`.

        Raises:
            RecordingError: if the file has gone or was damaged meanwhile.
        """
        return load(self.path)

    @property
    def host(self) -> str:
        """The machine's name."""
        return self.setup.host

    @property
    def loader(self) -> LoaderSetup | None:
        """That it trains from."""
        return self.setup.training_loader

    @property
    def wrapper(self) -> str:
        """The parallel wrapper around its model; empty where none was seen."""
        return self.setup.model.wrapper if self.setup.model is not None else ""

    @property
    def waits_in_forward(self) -> bool:
        """Whether it may wait for other ranks in its forward, too.

        There, FullyShardedDataParallel gathers parameters, and DistributedDataParallel sends the buffers of
        normalization layers from rank 0 to the others.
        """
        return self.wrapper == FULLY_SHARDED or any("BatchNorm" in name for name in self.setup.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("number", "outcome", "reason", "started_at", "duration_s", "steps", "warmup_steps", "samples")
        more = ("samples_per_s", "step_s", "device_own_s", "gpu_busy_share")
        return {
            **{name: getattr(self, name) for name in (*names, *more)},
            "phases_s": dict(self.phases_s),
            "path": str(self.path),
            "host": self.host,
            "device": self.setup.device,
        }


def rank_of(recording: Recording, path: Path, number: int) -> Rank:
    """Reads the figures of one rank off its recording."""
    vitals, steps, world = measure(recording), _training(recording.steps), recording.setup.world
    on_gpu = recording.setup.on_gpu
    return Rank(
        number=number,
        world_size=world.world_size if world is not None else 1,
        path=path,
        setup=recording.setup,
        outcome=recording.outcome,
        reason=recording.reason,
        started_at=recording.started_at,
        duration_s=recording.duration_s,
        first_step_s=float(steps.start_s[0]) if len(steps) else None,
        steps=vitals.steps,
        warmup_steps=vitals.warmup_steps,
        samples=vitals.samples,
        samples_per_s=vitals.samples_per_s,
        step_s=vitals.step_wall_s,
        phases_s=_phases(vitals),
        device_own_s=_device_own_s(steps) if on_gpu else None,
        gpu_busy_share=vitals.gpu_busy_share,
        notes=recording.notes,
        work=None if on_gpu or not len(steps) else _work(steps),
        losses=recording.losses,
    )


def _training(steps: Steps) -> Steps:
    return steps.where((steps.kind == TRAINING) & np.isfinite(steps.wall_s))


def _phases(vitals: Vitals) -> dict[str, float | None]:
    step_s = vitals.host_step_s
    shares = {phase: getattr(vitals, f"{phase}_share") for phase in PHASES}
    return {name: None if share is None or step_s is None else share * step_s for name, share in shares.items()}


def _work(steps: Steps) -> Work:
    passes = np.nan_to_num(steps.forward_s) + np.nan_to_num(steps.backward_s)
    alone = steps.wall_s - passes - np.nan_to_num(steps.ours_s)
    return Work(np.cumsum(steps.count), np.cumsum(alone), np.cumsum(np.nan_to_num(steps.forward_s)))


def _device_own_s(steps: Steps) -> float | None:
    """By the device's clock; the transfers of gradients between the devices end within the backward."""
    read = steps.where((steps.device_steps > 0) & (steps.gpu_since_steps > 0) & np.isfinite(steps.gpu_backward_s))
    if read.device_steps.sum() < FEWEST_STEPS:
        return None
    whole_s = float(read.gpu_since_s.sum() / read.gpu_since_steps.sum())
    return whole_s - float(read.gpu_backward_s.sum() / read.device_steps.sum())
