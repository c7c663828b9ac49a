"""Trials that come to one of five ends, and what must be there bit for bit after them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import gpu_doctor
from gpu_doctor.recording import Settings
from gpu_doctor.trials.case import Case
from tests.support.cells import Cell
from tests.support.everything import Everything

ENDINGS = ("normal", "raised", "out of memory", "stopped", "interrupted")


HURT_AT = 3
"""The step of the candidate at which it comes to its end."""


class Hurt:
    """Ends the candidate's side in one of five ways, out of an optimizer's step; knows nothing of the snapshot."""

    def __init__(self, case: Case, ending: str) -> None:
        self.case, self.ending, self.steps = case, ending, 0
        self.candidate = False
        case.on_begin = self._began

    def _began(self, recorder: Any, role: str) -> None:
        self.candidate, self.steps = role == "candidate", 0

    def stepped(self, *of_the_optimizer: Any) -> None:
        """After every optimizer's step."""
        self.steps += 1
        if not self.candidate or self.steps != HURT_AT:
            return
        if self.ending == "raised":
            raise ValueError("the loss is no number")
        if self.ending == "out of memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
        if self.ending == "stopped":
            stopper = threading.Thread(target=self.case.stop)
            stopper.start()
            stopper.join()
        if self.ending == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)


OUTCOMES = {"raised": "failed", "out of memory": "out-of-memory", "stopped": "stopped"}


def tried(
    cell: Cell, ending: str, space: dict[str, Any], settings: Settings | None = None
) -> tuple[Everything, Everything, str]:
    """Everything before and after a trial with such an ending, and what became of the trial."""
    case = gpu_doctor.case(cell.code, space)
    hurt = Hurt(case, ending)
    folder = Path(space["LOG"]).parent
    before = Everything(space, folder=folder)
    handle = register_optimizer_step_post_hook(hurt.stepped)
    outcome = ""
    try:
        outcome = case.trial(settings or {"threads": 1}, steps=6, seconds=3.0, pairs=2).outcome
    except KeyboardInterrupt:
        outcome = "interrupted"
    finally:
        handle.remove()
    return before, Everything(space, folder=folder), outcome


def as_before(variables: dict[str, str], folder: Path, places: list[str]) -> None:
    """What a seed helper leaves on is off again, in the process and in torch."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path[:] = places
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    torch.autograd.set_detect_anomaly(False)
    torch.set_float32_matmul_precision("highest")
