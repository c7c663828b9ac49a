"""Knob `deterministic`: operations that give the same result each time, where torch has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from gpu_doctor.trials.knobs.held_switch import held

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class Deterministic(OnOffKnob):
    """See `Knob`."""

    name = "deterministic"
    label = "deterministic"
    changes = "Sums are added up in another order, so the last digits of the losses differ."

    def found(self, setup: Setup) -> bool | None:
        written = setup.flags.get("deterministic")
        return None if written is None else bool(written)

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(bool(value), warn_only=True)
        try:
            with held(self.name, scope, {"_set_deterministic_algorithms": bool(value)}, properties=()):
                yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"torch.use_deterministic_algorithms({bool(value)})  # once, before training"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return switched(draft.cells, self.name, settings[self.name])


KNOB = Deterministic()
