"""Knob `pin_memory`: batches arrive in page-locked memory, from which a copy to the GPU is faster and can overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.loader import loader_refusal, loaders_turned
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PinMemory(OnOffKnob):
    """See `Knob`."""

    name = "pin_memory"
    label = "pin_memory"
    safety = Safety.SAFE
    changes = ""
    written_with = "loader"

    def found(self, setup: Setup) -> bool | None:
        loader = trained_from(setup)
        return None if loader is None else loader.pin_memory

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        said = loader_refusal(self.name, setup)
        if said:
            return said
        if setup.on_gpu:
            return ""
        if setup.devices:
            return "The loop trains on the CPU: pinned memory speeds up copies to a GPU only."
        return "No GPU: pinned memory has nothing to speed up."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _pinned(bool(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"DataLoader(..., pin_memory={bool(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return draft.loaders.edits(settings)


@contextmanager
def _pinned(value: bool, scope: TrialScope) -> Iterator[None]:
    """Where no run has told yet whether the loop uses a GPU, a pinning that did nothing is noted at its end."""
    import torch

    with loaders_turned("pin_memory", value, scope):
        yield
    if value and scope.setup == Setup() and not torch.cuda.is_initialized():
        scope.notes.append(
            "pin_memory=True changed nothing: the loop used no GPU, and pinning speeds up copies to one."
        )


KNOB = PinMemory()
