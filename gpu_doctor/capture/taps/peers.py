"""Exchanges step times between the ranks of a process group, without ever waiting for long.

It goes through the group's key-value store, not through a collective: a rank that is gone, or that runs other code,
is no partner for a collective and would leave this one hanging.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch.distributed as dist

from gpu_doctor.recording import Steps
from gpu_doctor.recording.steps import TRAINING

PATIENCE_S: Final = 0.5
"""So long a rank waits for the others' figures at its run's end; they come through the same loop, so they are near."""
FEWEST_ROWS: Final = 5
_runs: Final = itertools.count(1)


def run_number() -> int:
    """A number that is the same on all ranks where all of them record the same runs in the same order."""
    return next(_runs)


def own_step_s(steps: Steps, communication_s: float) -> float | None:
    """Mean host seconds of a step that this rank works by itself.

    What a rank waits for the others is in its backward (gradients are reduced there), in its waits for the device (the
    reducing kernels wait there) and in the collectives that it calls: all of these are left out.

    Args:
        steps: all rows so far.
        communication_s: host seconds of all collectives that were heard after the first step.

    Returns:
        None where too few steps were seen. The first one is left out: workers start there, buckets are laid out.
    """
    rows = steps.where((steps.kind == TRAINING) & np.isfinite(steps.wall_s)).rows(1)
    if len(rows) < FEWEST_ROWS:
        return None
    own = rows.wall_s - np.nan_to_num(rows.backward_s) - np.nan_to_num(rows.sync_s)
    return max(float(own.sum()) - communication_s, 0.0) / float(rows.count.sum())


def exchanged(run: int, own_s: float) -> tuple[float, ...]:
    """Every rank's seconds in the order of ranks, or nothing where one of them has not told within PATIENCE_S.

    Args:
        run: from `run_number`.
        own_s: of this rank.
    """
    store: Any = dist.distributed_c10d._get_default_store()
    size, rank = dist.get_world_size(), dist.get_rank()
    keys = [f"gpu_doctor/{run}/step_s/{one}" for one in range(size)]
    store.set(keys[rank], repr(own_s))
    store.wait(keys, timedelta(seconds=PATIENCE_S))
    return tuple(float(store.get(key)) for key in keys)
