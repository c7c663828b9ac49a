"""Knob `prefetch_factor`: how many batches each worker prepares ahead; evens out batches that are slow now and then."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice, TrialScope
from gpu_doctor.trials.knobs.loader import loader_refusal, loaders_turned, whole_number

OFFERED = (1, 2, 4, 8, 16)


class PrefetchFactor:
    """See `Knob`."""

    name = "prefetch_factor"
    label = "prefetch"
    safety = Safety.SAFE
    changes = ""
    front = False
    written_with = "loader"

    def found(self, setup: Setup) -> int | None:
        loader = trained_from(setup)
        return None if loader is None else loader.prefetch_factor

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        written = self.found(setup)
        counts = {*OFFERED} if written is None else {*OFFERED, written}
        return tuple(Choice(count, str(count), self.refusal(count, setup)) for count in sorted(counts))

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, 1)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        loader = trained_from(setup)
        if loader is not None and value == loader.prefetch_factor:
            return ""
        said = loader_refusal(self.name, setup)
        if said or loader is None:
            return said
        return "" if loader.num_workers else "There are no workers that could prefetch: set num_workers above 0 first."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return loaders_turned(self.name, int(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"DataLoader(..., prefetch_factor={int(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return draft.loaders.edits(settings)


KNOB = PrefetchFactor()
