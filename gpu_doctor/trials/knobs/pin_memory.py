"""Knob `pin_memory`: batches arrive in page-locked memory, from which a copy to the GPU is faster and can overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu_doctor.recording import LoaderSetup, SettingValue, Setup
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.loader import LoaderKnob
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PinMemory(LoaderKnob, OnOffKnob):
    """See `Knob`."""

    name = label = "pin_memory"

    def unfit(self, value: SettingValue, loader: LoaderSetup, setup: Setup) -> str:
        """See `LoaderKnob`."""
        if setup.on_gpu:
            return ""
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
