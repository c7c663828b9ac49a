"""What holds for the unit tests of capture: how busy the machine is shows in no recording."""

from __future__ import annotations

import math

import pytest

from gpu_doctor.capture import own_cost


@pytest.fixture(autouse=True)
def no_note_of_our_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes on what recording costs are left out: beside busy neighbours a loop of milliseconds takes seconds."""
    monkeypatch.setattr(own_cost, "WORTH_SAYING_S", math.inf)
