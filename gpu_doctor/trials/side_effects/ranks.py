"""A job of several processes: a trial in one of them would leave the others waiting at their next exchange.

Known by torch's process group, by Horovod's, and by what the launchers write into the environment of each process
that they start: torchrun, Open MPI, MPICH and Intel MPI, and Slurm's `srun` (the variables of a *step*: those of the
job stand in a notebook on one of its nodes too). Of each, only where the number and this process' place are there.
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
"""Variables with the number of processes and with this one's place: pytorch.org/docs/stable/elastic/run.html,
docs.open-mpi.org (OMPI_COMM_WORLD_SIZE), slurm.schedmd.com/srun.html."""


def ranks(case: object) -> Beforehand:
    """Refuses where this process is one of several that train together."""
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
    there: Any = torch.distributed  # a build without it has no `is_initialized`
    return int(there.get_world_size()) if there.is_available() and there.is_initialized() else 1


def _of_horovod() -> int:
    """Horovod as it is loaded: it raises where it was not begun."""
    ask = getattr(sys.modules.get("horovod.torch"), "size", None)
    try:
        return int(ask()) if callable(ask) else 1
    except Exception:
        return 1


def _of_launcher(number: str, place: str) -> int:
    said = os.environ.get(number, "")
    return int(said) if place in os.environ and said.isdecimal() else 1
