"""Knob `persistent_workers`: keep the worker processes from one epoch to the next instead of starting them anew."""

from __future__ import annotations

from gpu_doctor.recording import LoaderSetup, SettingValue, Setup
from gpu_doctor.trials.knobs.loader import LoaderKnob
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PersistentWorkers(LoaderKnob, OnOffKnob):
    """See `Knob`."""

    name = label = "persistent_workers"
    changes = "From the second epoch on, shuffling and random augmentation draw other numbers."
    moves_draws = True

    def unfit(self, value: SettingValue, loader: LoaderSetup, setup: Setup) -> str:
        """See `LoaderKnob`."""
        return "" if loader.num_workers else "There are no workers to keep: set num_workers above 0 first."


KNOB = PersistentWorkers()
