"""Writes steps and phases of a run as NVTX ranges, which Nsight Systems shows next to the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from gpu_doctor.capture.ranges import follow
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.labels import PHASE_LABELS

PREFIX: Final = "gpu_doctor: "
NO_NVTX: Final = "NVTX ranges need a torch that is built with CUDA, and this one is not: leave --nvtx out."


def no_nvtx() -> str:
    """Returns one sentence that says why no ranges can be written, or an empty string; does not initialise CUDA."""
    return "" if torch.version.cuda else NO_NVTX


class NvtxRanges:
    """Writes the ranges of one run: phases nest on the training thread, steps follow each other."""

    def __init__(self, nvtx: Any = None) -> None:
        """`nvtx`: object with the functions of `torch.cuda.nvtx`; None = that module."""
        self._nvtx = torch.cuda.nvtx if nvtx is None else nvtx
        self._end_phases: Callable[[], None] = lambda: None
        self._step: Any = None

    def follow(self, recorder: Recorder) -> None:
        """Writes the ranges of a run that is about to begin; each step is folded at once, so its range ends in time."""
        self._end_phases = follow(recorder.log, self)
        recorder.listeners.on_steps(lambda now: self._next_step(recorder.step_count))
        recorder.plan.fold_each_step()
        self._next_step(0)

    def begin(self, name: str) -> None:
        """Begins the range of a phase."""
        self._nvtx.range_push(f"{PREFIX}{PHASE_LABELS.get(name, name)}")

    def end(self) -> None:
        """Ends the innermost open range of a phase."""
        self._nvtx.range_pop()

    def close(self) -> None:
        """Ends all open ranges, at the run's end."""
        self._end_phases()
        if self._step is not None:
            self._nvtx.range_end(self._step)
            self._step = None

    def _next_step(self, ended: int) -> None:
        """Ends the open step's range and begins the next one's; `ended`: number of steps that have ended."""
        if self._step is not None:
            self._nvtx.range_end(self._step)
        self._step = self._nvtx.range_start(f"{PREFIX}step {ended + 1}")
