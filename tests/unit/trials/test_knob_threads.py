"""The knob threads: turned for torch in this process, and put back."""

from __future__ import annotations

import pytest
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
    assert "at least 1" in KNOB.reason(0, setup)
    assert KNOB.code(2, setup) == "torch.set_num_threads(2)"


def test_code_that_sets_its_own_number_does_not_turn_the_knob_back() -> None:
    before = torch.get_num_threads()
    scope = TrialScope({})
    with knobs.turned({"threads": before + 1}, scope):
        theirs = torch.set_num_threads
        theirs(before + 3)
        torch.set_num_threads(before + 4)
        assert torch.get_num_threads() == before + 1
        with pytest.raises((RuntimeError, TypeError)):
            torch.set_num_threads(0)
    assert torch.get_num_threads() == before
    assert torch.set_num_threads is not theirs
    (note,) = (one for one in scope.notes if "the trial kept" in one)
    assert note.startswith(f"threads: the code sets {before + 3};")
    theirs(before + 1)  # a name kept from within works on
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)


def test_a_number_set_past_the_knob_is_told() -> None:
    before, original, scope = torch.get_num_threads(), torch.set_num_threads, TrialScope({})
    with knobs.turned({"threads": before + 1}, scope):
        original(before + 2)  # `from torch import set_num_threads` in a cell above
    assert torch.get_num_threads() == before
    assert any("replaced the trial's" in note for note in scope.notes)
