"""Knob `persistent_workers`: keep the worker processes from one epoch to the next instead of starting them anew."""

from __future__ import annotations

from gpu_doctor.trials.knobs.loader import LoaderKnob
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class PersistentWorkers(LoaderKnob, OnOffKnob):
    """See `Knob`."""

    name = label = "persistent_workers"
    changes = "From the second epoch on, shuffling and random augmentation draw other numbers."
    moves_draws = True
    needs_workers = "There are no workers to keep: set num_workers above 0 first."


KNOB = PersistentWorkers()
