"""Knob `pin_memory`: batches arrive in page-locked memory, from which a copy to the GPU is faster and can overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.loader import LoaderKnob
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PinMemory(LoaderKnob, OnOffKnob):
    """See `Knob`."""

    name = label = "pin_memory"

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        said = super().reason(value, setup)
        if said or setup.on_gpu or setup == Setup():
            return said
        if setup.devices:
            return "The loop trains on the CPU: pinned memory speeds up copies to a GPU only."
        return "No GPU: pinned memory has nothing to speed up."

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`; where no run has told yet whether the loop uses a GPU, a pinning that did nothing is noted."""
        import torch

        with super().turned(value, scope):
            yield
        if value and scope.setup == Setup() and not torch.cuda.is_initialized():
            scope.notes.append(
                "pin_memory=True changed nothing: the loop used no GPU, and pinning speeds up copies to one."
            )


KNOB = PinMemory()
