"""Knob `fused_optimizer`: the whole update of all parameters in one kernel per device, instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from gpu_doctor.capture.patching import Patches
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.fusing import Fusing
from gpu_doctor.trials.knobs.knob import Choice, TrialScope
from gpu_doctor.trials.knobs.loader import on_or_off
from gpu_doctor.trials.knobs.trained_modules import meet_optimizers

FUSABLE: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""torch.optim's classes that take `fused=True` on some device (torch 2.13)."""


class FusedOptimizer:
    """See `Knob`."""

    name = "fused_optimizer"
    label = "fused optimizer"
    safety = Safety.SAFE
    changes = "Updates are computed in another order, so the last digits of the losses differ."
    front = False

    def found(self, setup: Setup) -> bool | None:
        facts = setup.optimizer_facts
        return all(one.fused is True for one in facts) if facts else None

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        return tuple(Choice(value, "on" if value else "off", self.refusal(value, setup)) for value in (False, True))

    def parsed(self, text: str) -> bool:
        return on_or_off(text, self.name)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        if not setup.optimizers:
            return "No optimizer of torch stepped, so there is none whose update could be fused."
        if not value:
            return ""
        if setup.optimizer_facts is not None:
            fits = any(one.can_fuse or one.fused for one in setup.optimizer_facts)
        else:
            fits = any(name in FUSABLE for name in setup.optimizers)
        if fits:
            return ""
        names = ", ".join(dict.fromkeys(setup.optimizers))
        return f"torch has no fused update for {names} on {setup.device} in this version."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope, value == self.found(scope.setup))

    def code(self, value: SettingValue, setup: Setup) -> str:
        name = next((one for one in setup.optimizers if one in FUSABLE), "AdamW")
        return f"optimizer = torch.optim.{name}(model.parameters(), ..., fused={bool(value)})"


KNOB = FusedOptimizer()


@contextmanager
def _turned(value: bool, scope: TrialScope, as_written: bool) -> Iterator[None]:
    if as_written:
        yield
        return
    patches, fusing = Patches(), Fusing(value, scope.notes)
    try:
        meet_optimizers(scope, patches, "fused_optimizer", fusing.meet, fusing.meet)
        yield
    finally:
        patches.restore()
        fusing.restore()
        scope.notes.extend(patches.notes)
