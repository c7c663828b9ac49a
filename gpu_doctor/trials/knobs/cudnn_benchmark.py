"""Knob `cudnn_benchmark`: cuDNN times its algorithms for each convolution shape once and keeps the fastest.

GPU: not yet run on one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.machine import cuda_available
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.switch import switched_to


class CudnnBenchmark(OnOffKnob):
    """See `Knob`."""

    name = "cudnn_benchmark"
    label = "cuDNN benchmark"
    changes = "Sums are added up in another order, so the last digits of the losses differ, from run to run too."
    is_switch = True

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        written = setup.flags.get("cudnn_benchmark")
        return None if written is None else bool(written)

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            no_gpu = "No GPU: cuDNN computes convolutions on CUDA devices only."
            return no_gpu if cuda_available() is False else ""
        if not setup.on_gpu:
            return "The loop does not train on a CUDA device: cuDNN computes convolutions there only."
        if setup.layers and not any("Conv" in kind for kind in setup.layers):
            return "The model has no convolutions, so cuDNN has nothing to choose."
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """See `Knob`."""
        import torch

        cudnn: Any = torch.backends.cudnn
        read, write = (lambda: cudnn.benchmark), (lambda on: setattr(cudnn, "benchmark", on))
        return switched_to(bool(value), read, write, self.name, scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return f"torch.backends.cudnn.benchmark = {bool(value)}  # once, before training"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        return switched(draft.cells, self.name, settings[self.name])


KNOB = CudnnBenchmark()
