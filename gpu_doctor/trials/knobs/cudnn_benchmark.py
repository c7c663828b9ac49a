"""Knob `cudnn_benchmark`: cuDNN times its algorithms for each convolution shape once and keeps the fastest.

A cell that sets the switch itself, as seed helpers do, would turn the knob back: while it is turned, it is held.
GPU: not yet run on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class CudnnBenchmark(OnOffKnob):
    """See `Knob`."""

    name = "cudnn_benchmark"
    label = "cuDNN benchmark"
    safety = Safety.SAFE
    changes = "Sums are added up in another order, so the last digits of the losses differ, from run to run too."

    def found(self, setup: Setup) -> bool | None:
        written = setup.flags.get("cudnn_benchmark")
        return None if written is None else bool(written)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        if not setup.on_gpu:
            return "The loop does not train on a CUDA device: cuDNN computes convolutions there only."
        if setup.layers and not any("Conv" in kind for kind in setup.layers):
            return "The model has no convolutions, so cuDNN has nothing to choose."
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope, value == self.found(scope.setup))

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.backends.cudnn.benchmark = {bool(value)}  # once, before training"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return switched(draft.cells, self.name, settings[self.name])


KNOB = CudnnBenchmark()


@contextmanager
def _turned(value: bool, scope: TrialScope, as_written: bool) -> Iterator[None]:
    if as_written:
        yield
        return
    import torch

    from gpu_doctor.trials.knobs.held_switch import held

    if scope.setup == Setup() and not torch.cuda.is_available():
        raise Refused("No GPU: cuDNN computes convolutions on CUDA devices only.")
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = value
    try:
        with held("cudnn_benchmark", scope, {"_set_cudnn_benchmark": value}, properties=("benchmark",)):
            yield
    finally:
        if torch.backends.cudnn.benchmark != value:
            scope.notes.append("cudnn_benchmark: the code replaced the trial's setting with its own.")
        torch.backends.cudnn.benchmark = before
