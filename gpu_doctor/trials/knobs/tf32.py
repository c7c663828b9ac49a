"""Knob `tf32`: float32 products on tensor cores, rounded to TF32 on the way in. GPU: not yet run on one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.diagnosis import Safety
from gpu_doctor.machine import cuda_available, cuda_devices
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.this_machine import torch_of

CAPABILITY: Final = 8
"""TF32 came with compute capability 8.0 (Ampere; NVIDIA's Ampere tuning guide)."""
NO_CARD: Final = "TF32 needs an NVIDIA card with compute capability 8.0 or more, and the loop trains on {0}."
TOO_OLD: Final = "{0} (compute capability {1}.{2}) has no TF32, which needs 8.0 or more."
NEWER: Final = "The precision was set by torch's newer names (fp32_precision = ...): set it to 'tf32' there."


class TF32(OnOffKnob):
    """See `Knob`."""

    name = "tf32"
    label = "TF32"
    safety, only_rounds = Safety.CHANGES_TRAINING, True
    changes = (
        "Float32 products round their factors to 10 of 23 mantissa bits and add up in float32. The losses differ "
        "slightly: compare them over the same samples before you keep it."
    )
    is_switch = True

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        written = setup.flags.get("matmul_precision")
        return None if written is None else written != "highest"

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            return _no_card()
        if not setup.on_gpu:
            return NO_CARD.format("the CPU" if setup.device == "cpu" else setup.device)
        torch = torch_of(setup)
        if torch is not None and torch.version.hip is not None:
            return NO_CARD.format("an AMD card")
        device = setup.card
        if device is not None and device.capability is not None and device.capability[0] < CAPABILITY:
            return TOO_OLD.format(device.name, *device.capability)
        if value and setup.dtype not in ("float32", ""):
            return f"The parameters are {setup.dtype}: TF32 is for products in float32."
        return ""

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`."""
        import torch

        from gpu_doctor.trials.matmul_precision import precisions, put_back

        kept = precisions()
        if kept["matmul"] is None or kept["convolutions"] is None:  # its newer and its older names for it are mixed
            raise Refused(NEWER)
        set_to = {**kept, "matmul": "high" if value else "highest", "convolutions": bool(value)}
        try:
            torch.set_float32_matmul_precision(set_to["matmul"])
            torch.backends.cudnn.allow_tf32 = set_to["convolutions"]
            yield
        finally:
            now = precisions()
            if any(now[name] != set_to[name] for name in ("matmul", "convolutions")):
                scope.notes.append(f"{self.name}: the code replaced the trial's setting with its own.")
            put_back(kept)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        precision = "high" if value else "highest"
        return (
            f'torch.set_float32_matmul_precision("{precision}")  # once, before training\n'
            f"torch.backends.cudnn.allow_tf32 = {bool(value)}"
        )

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        return switched(draft.cells, self.name, settings[self.name])


KNOB = TF32()


def _no_card() -> str:
    """Returns why no card of this machine has TF32; empty if one may."""
    torch = sys.modules.get("torch")
    if cuda_available() is False or (torch is not None and torch.version.hip is not None):
        return "No GPU: TF32 needs an NVIDIA card with compute capability 8.0 or more."
    known = [(device.name, *device.capability) for device in cuda_devices() if device.capability is not None]
    return TOO_OLD.format(*known[0]) if known and max(major for _, major, _ in known) < CAPABILITY else ""
