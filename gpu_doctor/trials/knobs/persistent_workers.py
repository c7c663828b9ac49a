"""Knob `persistent_workers`: keep the worker processes from one epoch to the next instead of starting them anew."""

from __future__ import annotations

from typing import Final

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.loader import LoaderKnob
from gpu_doctor.trials.knobs.on_off import OnOffKnob

NO_WORKERS: Final = "There are no workers to keep: set num_workers above 0 first."


class PersistentWorkers(LoaderKnob, OnOffKnob):
    """See `Knob`."""

    name = label = "persistent_workers"
    changes = "From the second epoch on, shuffling and random augmentation draw other numbers."
    moves_draws = True

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        loader = trained_from(setup)
        none = "" if loader is None or loader.num_workers else NO_WORKERS
        return super().reason(value, setup) or none


KNOB = PersistentWorkers()
