"""One rank of a job: the figures read from its recording, which is not held in memory."""

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
"""Phases of a rank's row; `other` is the loop's own Python. With gpu_doctor's own time they add up to the step."""


@dataclass(frozen=True)
class Work:
    """The cumulative work of a rank at the end of each row of its steps, without gpu_doctor's own time."""

    ends: Column
    """Number of each row's last step, from 1."""
    alone_s: Column
    """Time outside forward and backward, in which it waits for no other rank, in seconds."""
    forward_s: Column
    """Time in the forward, in seconds."""


@dataclass(frozen=True)
class Rank:
    """The figures of one rank; times are seconds per step after warm-up, None if not measured."""

    number: int
    world_size: int
    path: Path
    """Path of its recording."""
    setup: Setup
    outcome: str
    """Outcome of its recording."""
    reason: str
    started_at: float
    """Start as Unix time in seconds, by the clock of its host."""
    duration_s: float
    first_step_s: float | None
    """Time from its start to its first step, in seconds."""
    steps: int
    """Number of its steps, including warm-up."""
    warmup_steps: int
    samples: float | None
    samples_per_s: float | None
    step_s: float | None
    phases_s: dict[str, float | None]
    """Host time of a step by phase; on a GPU a phase may only launch work that the device does later."""
    device_own_s: float | None
    """Device time of a step outside its backward; None on a CPU."""
    gpu_busy_share: float | None
    notes: tuple[str, ...] = ()
    work: Work | None = field(default=None, repr=False)
    """Cumulative work on the host; None on a GPU, because the host runs ahead of it."""
    losses: Losses = field(default_factory=Losses, repr=False)

    def recording(self) -> Recording:
        """Loads the whole recording again, such as for `gpu_doctor.diagnose`.

        Raises:
            RecordingError: The file is gone or damaged.
        """
        return load(self.path)

    @property
    def host(self) -> str:
        """Name of its machine."""
        return self.setup.host

    @property
    def loader(self) -> LoaderSetup | None:
        """Loader that it trains from, or None if none was seen."""
        return self.setup.training_loader

    @property
    def wrapper(self) -> str:
        """Name of the parallel wrapper around its model; empty if none was seen."""
        return self.setup.model.wrapper if self.setup.model is not None else ""

    @property
    def waits_in_forward(self) -> bool:
        """True if it may wait for other ranks in its forward, too.

        In the forward FullyShardedDataParallel gathers parameters, and DistributedDataParallel sends the buffers of
        normalization layers from rank 0 to the others.
        """
        return self.wrapper == FULLY_SHARDED or any("BatchNorm" in name for name in self.setup.layers)

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as plain data, ready for JSON."""
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
    """Computes the figures of one rank from its recording."""
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
    """Returns the device's time of a step outside its backward, in which the devices exchange gradients.

    None if fewer than FEWEST_STEPS steps have device times.
    """
    read = steps.where((steps.device_steps > 0) & (steps.gpu_since_steps > 0) & np.isfinite(steps.gpu_backward_s))
    if read.device_steps.sum() < FEWEST_STEPS:
        return None
    whole_s = float(read.gpu_since_s.sum() / read.gpu_since_steps.sum())
    return whole_s - float(read.gpu_backward_s.sum() / read.device_steps.sum())
