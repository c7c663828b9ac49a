"""Knob `fused_optimizer`: the whole update of all parameters in one kernel per device, instead of many small ones.

Groups, flags and step counters are afterwards as they were. Proved on the CPU. GPU: not yet run on one (there the step
counters also move to the device and back).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits, NotPlaced
from gpu_doctor.cell.arguments import HIDDEN, REPLACE, Slot, set_arguments, slot
from gpu_doctor.cell.constructors import FUSABLE, optimizer_makers
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob


class FusedOptimizer(OnOffKnob):
    """See `Knob`."""

    name = "fused_optimizer"
    label = "fused optimizer"
    changes = "Updates are computed in another order, so the last digits of the losses differ."

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        facts = setup.optimizer_facts
        return all(fact.fused is True for fact in facts) if facts else None

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            return ""
        if not setup.optimizers:
            return "No torch optimizer stepped, so there is no update to fuse."
        if not value:
            return ""
        if setup.optimizer_facts is not None:
            fits = any(fact.can_fuse or fact.fused for fact in setup.optimizer_facts)
        else:
            fits = any(name in FUSABLE for name in setup.optimizers)
        if fits:
            return ""
        names = ", ".join(dict.fromkeys(setup.optimizers))
        return f"torch has no fused update for {names} on {setup.device} in this version."

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """See `Knob`."""
        from gpu_doctor.trials.knobs.fusing import fused

        return fused(bool(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        name = next((class_name for class_name in setup.optimizers if class_name in FUSABLE), "AdamW")
        return f"optimizer = torch.optim.{name}(model.parameters(), ..., fused={bool(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        return _written(draft, bool(settings[self.name]))


KNOB = FusedOptimizer()


def _written(draft: Draft, value: bool) -> Edits:
    """`fused=` in the calls that make the optimizers."""
    found: dict[Slot, str] = {}
    for made in optimizer_makers(draft.cells, draft.setup.optimizers):
        found_slot = slot(made, "fused")
        if found_slot.kind == HIDDEN:
            raise NotPlaced(f"The optimizer of {found_slot.site.place} does not take fused=... as a keyword.")
        found[found_slot] = repr(value)
        each = slot(made, "foreach")
        if value and each.kind == REPLACE:
            found[each] = "None"  # torch takes one of the two
    if not found:
        raise NotPlaced("The call that creates the optimizer was not found in the cells.")
    return list(set_arguments(found))
