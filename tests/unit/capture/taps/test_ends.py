"""What a tap raises at the end of a run is noted: the cell keeps its result, and the other taps come off."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.taps.tap import TapScope

CELL = """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
result = "kept"
"""


def fails() -> None:
    raise RuntimeError("the end is gone")


def test_a_tap_whose_end_fails_leaves_the_cells_result_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def tap(scope: TapScope) -> None:
        scope.at_end(fails)
        scope.add_fact("padding", lambda: None, fails)

    monkeypatch.setattr(taps, "TAPS", (("failing", tap), *taps.TAPS))
    namespace: dict[str, Any] = {"torch": torch}
    recording = gpu_doctor.case(CELL, namespace).run()
    assert namespace["result"] == "kept" and recording.outcome == "completed" and len(recording.steps) == 3
    gone = [one for one in recording.notes if one.endswith(": the end is gone")]
    assert any("data of a tap" in one for one in gone) and any("padding" in one for one in gone)
    assert recording.setup.optimizers == ("SGD",) and patching.active() == ()


def test_an_error_of_the_cells_own_is_what_the_user_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "TAPS", (*taps.TAPS, ("failing", lambda scope: scope.at_end(fails))))
    with pytest.raises(ZeroDivisionError):
        gpu_doctor.case(CELL + "1 / 0", {"torch": torch}).run()
    assert patching.active() == ()
