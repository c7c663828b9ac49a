"""Knob `threads`: how many threads torch computes with in the training process (not in workers: those have one)."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpu_doctor.cell import Edits
from gpu_doctor.cell.switches import switched
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.count import MOST_AT_ONCE, CountKnob, powers_up_to
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.switch import switched_to


class Threads(CountKnob):
    """See `Knob`."""

    name = "threads"
    label = "torch threads"
    changes = "Sums are added up in another order, so the last digits of the losses differ."
    most = MOST_AT_ONCE
    is_switch = True

    def found(self, setup: Setup) -> int | None:
        """See `Knob`."""
        return setup.torch_threads

    def counts(self, setup: Setup) -> set[int]:
        """See `CountKnob`."""
        most = max(1, round(setup.usable_cores))
        return {most, setup.torch_threads or most} | powers_up_to(most)

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`: the cell may set another number on its way."""
        return False

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        """See `Knob`."""
        import torch

        return switched_to(int(value), torch.get_num_threads, torch.set_num_threads, self.name, scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return f"torch.set_num_threads({int(value)})"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        return switched(draft.cells, self.name, settings[self.name])


KNOB = Threads()
