"""Refuses a trial in a job of several processes: the others would wait at their next exchange.

Such a job shows in torch's process group, in Horovod's, or in variables that a launcher sets in each process: torchrun,
Open MPI, MPICH, Intel MPI, and Slurm's `srun` (variables of a *step*: a notebook on a node of a job has the job's). A
launcher counts only if both the number of processes and this one's rank are set.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import torch

from gpu_doctor.trials.said_before import Beforehand

LAUNCHERS: Final = (
    ("WORLD_SIZE", "RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_STEPID"),
)
"""Variables with the number of processes and with this one's rank: pytorch.org/docs/stable/elastic/run.html,
docs.open-mpi.org (OMPI_COMM_WORLD_SIZE), slurm.schedmd.com/srun.html."""


def ranks(case: object) -> Beforehand:
    """Refuses a trial if this process is one of several that train together."""
    several = max(_of_torch(), _of_horovod(), *(_of_launcher(*names) for names in LAUNCHERS))
    if several < 2:
        return Beforehand()
    return Beforehand(
        (
            f"This loop trains in {several} processes (ranks), and a trial in one of them would leave the others "
            "waiting: run it in one process to try settings.",
        )
    )


def _of_torch() -> int:
    there: Any = torch.distributed  # a build without distributed has no `is_initialized`
    return int(there.get_world_size()) if there.is_available() and there.is_initialized() else 1


def _of_horovod() -> int:
    """Returns the number of Horovod's processes; 1 if it is not loaded or not initialised."""
    ask = getattr(sys.modules.get("horovod.torch"), "size", None)
    try:
        return int(ask()) if callable(ask) else 1
    except Exception:
        return 1


def _of_launcher(number: str, place: str) -> int:
    said = os.environ.get(number, "")
    return int(said) if place in os.environ and said.isdecimal() else 1
