"""Knob `prefetch_factor`: how many batches each worker prepares ahead; evens out batches that are slow now and then."""

from __future__ import annotations

from typing import Final

from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.count import CountKnob
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.loader import LoaderKnob

OFFERED = (1, 2, 4, 8, 16)

NO_WORKERS: Final = "There are no workers that could prefetch: set num_workers above 0 first."


class PrefetchFactor(LoaderKnob, CountKnob):
    """See `Knob`."""

    name = "prefetch_factor"
    label = "prefetch"

    def counts(self, setup: Setup) -> tuple[int, ...]:
        """See `CountKnob`."""
        loader = trained_from(setup)
        return OFFERED if loader is None else (*OFFERED, loader.prefetch_factor or OFFERED[0])

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        loader = trained_from(setup)
        none = "" if loader is None or loader.num_workers else NO_WORKERS
        return super().reason(value, setup) or none


KNOB = PrefetchFactor()
