"""Knob `deterministic`: operations that give the same result each time, where torch has them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.switch import switched_to


class Deterministic(OnOffKnob):
    """See `Knob`."""

    name = "deterministic"
    label = "deterministic"
    changes = "Sums are added up in another order, so the last digits of the losses differ."

    def found(self, setup: Setup) -> bool | None:
        written = setup.flags.get("deterministic")
        return None if written is None else bool(written)

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        def write(on: bool) -> None:
            torch.use_deterministic_algorithms(on, warn_only=True)

        return switched_to(bool(value), torch.are_deterministic_algorithms_enabled, write, self.name, scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.use_deterministic_algorithms({bool(value)})  # once, before training"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return switched(draft.cells, self.name, settings[self.name])


KNOB = Deterministic()
