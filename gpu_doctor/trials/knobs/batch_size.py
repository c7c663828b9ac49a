"""Knob `batch_size`: how many samples make one step of the training loader."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice, Refused, TrialScope
from gpu_doctor.trials.knobs.loader import batch_sizes, loader_refusal, loaders_turned, whole_number

FACTORS = (0.25, 0.5, 1, 2, 4, 8)
"""Offered times the size as written."""


class BatchSize:
    """See `Knob`."""

    name = "batch_size"
    label = "batch size"
    safety = Safety.CHANGES_TRAINING
    changes = (
        "Another batch size changes the steps per epoch and the gradient noise: scale the learning rate with it "
        "(linear scaling rule, Goyal et al. 2017: batch times k, learning rate times k, after a warm-up) and compare "
        "the loss per sample."
    )
    front = True
    written_with = "loader"

    def found(self, setup: Setup) -> int | None:
        loader = trained_from(setup)
        return None if loader is None else loader.batch_size

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        loader, written = trained_from(setup), self.found(setup)
        if loader is None or written is None:
            said = self.refusal(0, setup)
            return (Choice(written or 0, "as written", said),)
        most = loader.dataset_len or written * max(FACTORS)
        sizes = {int(written * factor) for factor in FACTORS if 1 <= int(written * factor) <= most} | {written}
        return tuple(Choice(size, str(size), self.refusal(size, setup)) for size in sorted(sizes))

    def parsed(self, text: str) -> int:
        return whole_number(text, self.name, 1)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        loader = trained_from(setup)
        if loader is not None and value == loader.batch_size:
            return ""
        said = loader_refusal(self.name, setup)
        if said or loader is None:
            return said
        if loader.batch_size is None:
            return "The dataset yields whole batches: set their size in the dataset."
        try:
            batch_sizes(int(value), setup)
        except Refused as odd:
            return str(odd)
        length = loader.dataset_len
        if loader.drop_last and loader.dataset_kind == "map" and length is not None and int(value) > length:
            return f"With drop_last=True and {length} samples, a batch size of {value} leaves no batch."
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return loaders_turned(self.name, int(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        return f"DataLoader(..., batch_size={int(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        return draft.loaders.edits(settings)


KNOB = BatchSize()
