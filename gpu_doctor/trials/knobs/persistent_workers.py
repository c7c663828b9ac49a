"""Knob `persistent_workers`: keep the worker processes from one epoch to the next instead of starting them anew."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.loader import loader_refusal, loaders_turned
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PersistentWorkers(OnOffKnob):
    """See `Knob`."""

    name = "persistent_workers"
    label = "persistent_workers"
    safety = Safety.SAFE
    changes = "From the second epoch on, shuffling and random augmentation draw other numbers."
    written_with = "loader"

    def found(self, setup: Setup) -> bool | None:
        loader = trained_from(setup)
        return None if loader is None else loader.persistent_workers

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        loader = trained_from(setup)
        if loader is not None and value == loader.persistent_workers:
            return ""
        said = loader_refusal(self.name, setup)
        if said or loader is None:
            return said
        return "" if loader.num_workers else "There are no workers to keep: set num_workers above 0 first."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return loaders_turned(self.name, bool(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"DataLoader(..., persistent_workers={bool(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return draft.loaders.edits(settings)


KNOB = PersistentWorkers()
