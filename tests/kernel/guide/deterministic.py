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
    is_switch = True

    def found(self, setup: Setup) -> bool | None:
        written = setup.flags.get("deterministic")
        return None if written is None else bool(written)

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        def read() -> tuple[bool, bool]:
            return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

        def write(wanted: tuple[bool, bool]) -> None:
            torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])

        return switched_to((bool(value), False), read, write, self.name, scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.use_deterministic_algorithms({bool(value)})  # once, before training"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return switched(draft.cells, self.name, settings[self.name])


KNOB = Deterministic()
