"""Knob `prefetch_factor`: how many batches each worker prepares ahead; evens out batches that are slow now and then."""

from __future__ import annotations

from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.count import CountKnob
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.loader import LoaderKnob

OFFERED = (1, 2, 4, 8, 16)


class PrefetchFactor(LoaderKnob, CountKnob):
    """See `Knob`."""

    name = "prefetch_factor"
    label = "prefetch"
    needs_workers = "There are no workers that could prefetch: set num_workers above 0 first."

    def counts(self, setup: Setup) -> tuple[int, ...]:
        """See `CountKnob`."""
        loader = trained_from(setup)
        return OFFERED if loader is None else (*OFFERED, loader.prefetch_factor or OFFERED[0])


KNOB = PrefetchFactor()
