"""Knob `prefetch_factor`: how many batches each worker prepares ahead; evens out batches that are slow now and then."""

from __future__ import annotations

from gpu_doctor.recording import LoaderSetup, SettingValue, Setup
from gpu_doctor.trials.knobs.count import CountKnob
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.loader import LoaderKnob

OFFERED = (1, 2, 4, 8, 16)


class PrefetchFactor(LoaderKnob, CountKnob):
    """See `Knob`."""

    name = "prefetch_factor"
    label = "prefetch"

    def counts(self, setup: Setup) -> tuple[int, ...]:
        """See `CountKnob`."""
        loader = trained_from(setup)
        return OFFERED if loader is None else (*OFFERED, loader.prefetch_factor or OFFERED[0])

    def unfit(self, value: SettingValue, loader: LoaderSetup, setup: Setup) -> str:
        """See `LoaderKnob`."""
        return "" if loader.num_workers else "There are no workers that could prefetch: set num_workers above 0 first."


KNOB = PrefetchFactor()
