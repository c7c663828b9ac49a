"""Steps and phases of a run as NVTX ranges; torch's own functions are acted by a list."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture import nvtx

CELL = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in torch.utils.data.DataLoader(torch.rand(24, 8), batch_size=8):
    optimizer.zero_grad()
    model(inputs).mean().backward()
    if stumble: raise RuntimeError
    optimizer.step()
"""


class Noted:
    """What was asked of NVTX, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.depth = 0
        self.open: set[int] = set()

    def range_push(self, name: str) -> None:
        self.said.append(name.removeprefix(nvtx.PREFIX))
        self.depth += 1

    def range_pop(self) -> None:
        self.depth -= 1

    def range_start(self, name: str) -> int:
        self.said.append(name.removeprefix(nvtx.PREFIX))
        self.open.add(len(self.said))
        return len(self.said)

    def range_end(self, number: int) -> None:
        self.open.remove(number)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    noted = Noted()
    monkeypatch.setattr(torch.cuda, "nvtx", noted)
    return noted


def run(stumble: bool, **how: Any) -> gpu_doctor.Case:
    case = gpu_doctor.case(CELL, {"stumble": stumble})
    case.nvtx = True
    case.run(**how)
    return case


def test_phases_are_ranges_and_steps_lie_side_by_side(noted: Noted) -> None:
    run(False)
    assert [one for one in noted.said if one.startswith("step")] == ["step 1", "step 2", "step 3", "step 4"]
    assert noted.said.count("forward") == noted.said.count("backward") == 3
    assert noted.said.count("data wait") >= 3 and "optimizer" in noted.said
    assert noted.depth == 0 and not noted.open


def test_nothing_stays_open_where_the_loop_raises_or_its_budget_ends(noted: Noted) -> None:
    with pytest.raises(RuntimeError):
        run(True)
    assert noted.depth == 0 and not noted.open
    run(False, steps=2)
    assert noted.depth == 0 and not noted.open


def test_trials_write_no_ranges(noted: Noted) -> None:
    case = run(False)
    before = len(noted.said)
    case.measured(steps=2)
    assert len(noted.said) == before


def test_a_torch_without_cuda_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert nvtx.no_nvtx() == nvtx.NO_NVTX
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert not nvtx.no_nvtx()
