"""Knob `batch_size`: how many samples make one step of the training loader."""

from __future__ import annotations

from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.count import CountKnob
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice, Refused
from gpu_doctor.trials.knobs.loader import LoaderKnob, batch_sizes

FACTORS = (0.25, 0.5, 1, 2, 4, 8)
"""Offered times the size as written."""


class BatchSize(LoaderKnob, CountKnob):
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

    def counts(self, setup: Setup) -> set[int]:
        """See `CountKnob`; empty where no size is written."""
        loader = trained_from(setup)
        written = None if loader is None else loader.batch_size
        if loader is None or written is None:
            return set()
        most = loader.dataset_len or written * max(FACTORS)
        return {int(written * factor) for factor in FACTORS if 1 <= int(written * factor) <= most} | {written}

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        return super().choices(setup) or (Choice(0, "as written", self.reason(0, setup)),)

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        loader, said = trained_from(setup), super().reason(value, setup)
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


KNOB = BatchSize()
