"""Vitals of the process and its surroundings: ranks, GPUs, shared memory, the length of an epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_doctor.recording import Recording, Steps

BUSY_PCT = 10.0
"""Mean NVML utilisation, in per cent, from which on a GPU is in use, by this loop or by something else."""

PREFETCH = 2
"""torch's default prefetch_factor."""


@dataclass(frozen=True)
class WorldVitals:
    """Fields of Vitals on ranks, GPUs and shared memory."""

    world_size: int | None = None
    """Processes that train together, 1 without a process group."""
    idle_gpus: int | None = None
    """GPUs that this process may use, that hold no trained parameter, and that NVML did not show in use."""
    used_gpus: int | None = None
    """GPUs that hold trained parameters of this process (all visible ones under DataParallel)."""
    shm_free_bytes: float | None = None
    """Free shared memory (/dev/shm) when the run began."""
    oom_kills: int | None = None
    """Processes that the kernel killed for want of memory while the run lasted."""
    epoch_samples: float | None = None
    """Samples of the longest epoch but the last, which the run may have left early."""


def world(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """Computes the fields of WorldVitals; a field missing from the result was not measured.

    Args:
        recording: recording of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up, in seconds of the run.
    """
    found: dict[str, Any] = {"epoch_samples": _epoch_samples(steps)}
    facts = recording.setup.world
    if facts is None:
        return found
    found |= {
        "world_size": facts.world_size,
        "shm_free_bytes": _known(facts.shm_free_bytes),
        "oom_kills": int(facts.oom_kills) if math.isfinite(facts.oom_kills) else None,
    }
    if recording.setup.on_gpu and facts.visible_gpus:
        used = _used(recording)
        found["used_gpus"] = len(used)
        found["idle_gpus"] = sum(
            index not in used and not _busy(recording, index, begin_s) for index in range(facts.visible_gpus)
        )
    return found


def workers_in_shm(free_bytes: float | None, batch_bytes: float | None, ahead: int | None) -> float:
    """Returns how many workers find room in shared memory for the batches they fetch ahead; inf if that is not known.

    Args:
        free_bytes: free bytes of /dev/shm, or None if not known.
        batch_bytes: bytes of one batch's tensors, or None if not known.
        ahead: prefetch_factor, or None for torch's default.
    """
    if not batch_bytes or free_bytes is None:
        return math.inf
    return free_bytes // (batch_bytes * (ahead or PREFETCH))


def _known(value: float) -> float | None:
    """Returns None for a value that is not finite, which stands for one that was not measured."""
    return value if math.isfinite(value) else None


def _used(recording: Recording) -> set[int]:
    """Returns the indices of the GPUs that hold trained parameters."""
    setup = recording.setup
    if setup.model is not None and setup.model.wrapper == "DataParallel" and setup.world is not None:
        return set(range(setup.world.visible_gpus))
    names = {setup.device, *(setup.model.device_bytes if setup.model is not None else ())}
    cards = [name.partition(":") for name in names if name.startswith("cuda")]
    return {int(index) if index.isdigit() else 0 for _, _, index in cards}


def _busy(recording: Recording, index: int, begin_s: float) -> bool:
    """True if NVML showed the GPU in use after warm-up; False also if it was not read."""
    series = recording.one_series("gpu_util_pct", index)
    values = series.values[series.times_s >= begin_s] if series is not None else np.empty(0)
    values = values[np.isfinite(values)]
    return bool(len(values)) and float(values.mean()) >= BUSY_PCT


def _epoch_samples(steps: Steps) -> float | None:
    """Returns the samples of the longest epoch; None if there is only one, or if rows hold several steps.

    The last epoch is left out: the run may have ended in the middle of it.
    """
    known = np.isfinite(steps.epoch) & np.isfinite(steps.samples)
    epoch, samples = steps.epoch[known], steps.samples[known]
    if not len(epoch) or epoch.min() == epoch.max() or steps.count.max() > 1:
        return None  # thinned rows of a long run may reach over an epoch's end
    _, nth = np.unique(epoch, return_inverse=True)  # a file may give its epochs any numbers
    sums = np.bincount(nth, weights=samples)
    return float(sums[:-1].max())
