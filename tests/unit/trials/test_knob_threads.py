"""The knob threads: turned for torch in this process, and put back."""

from __future__ import annotations

import torch

from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.threads import KNOB


def test_turned_and_put_back() -> None:
    before = torch.get_num_threads()
    with knobs.turned({"threads": before + 1}, TrialScope({})):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_choices_hold_what_was_found() -> None:
    setup = Setup(torch_threads=3, usable_cores=4.0)
    assert KNOB.found(setup) == 3
    assert [choice.value for choice in KNOB.choices(setup)] == [1, 2, 3, 4]
    assert KNOB.code(2, setup) == "torch.set_num_threads(2)"


def test_a_number_set_past_the_knob_is_told() -> None:
    before, scope = torch.get_num_threads(), TrialScope({})
    with knobs.turned({"threads": before + 1}, scope):
        torch.set_num_threads(before + 2)
    assert torch.get_num_threads() == before
    assert any("replaced the trial's" in note for note in scope.notes)
