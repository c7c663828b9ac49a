"""What a trial says of its pairs of runs while it takes turns."""

from __future__ import annotations

import pytest

import gpu_doctor

LOOP = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in torch.utils.data.DataLoader(torch.rand(640, 8), batch_size=16):
    optimizer.zero_grad()
    model(inputs).mean().backward()
    optimizer.step()
"""


def test_from_the_second_pair_on_the_figure_so_far_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    case, told = gpu_doctor.case(LOOP), list[str]()
    monkeypatch.setattr("gpu_doctor.trials.rounds.goes_on", lambda effect, made: True)
    monkeypatch.setattr(case, "say", told.append)
    case.trial({"batch_size": 32}, steps=20, pairs=2)
    rounds = [one.split(": ")[0] for one in told if one]
    assert ["x (" in one for one in rounds] == [False, False, True, True]
    assert [one[:7] for one in rounds] == ["round 1", "round 1", "round 2", "round 2"]
