"""What a change of settings would cost on this machine is timed once, after the run, and moves nothing of theirs."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture.taps import python_cost

LOOP = """
opt = torch.optim.{optimizer}
for x, y in loader:
    opt.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    opt.step()
"""


def run(optimizer: str = "SGD(net.parameters(), lr=0.01)", rows: int = 320) -> gpu_doctor.Recording:
    loader = DataLoader(TensorDataset(torch.rand(rows, 4), torch.rand(rows, 1)), batch_size=max(rows // 20, 1))
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)), torch.nn.Linear(4, 1))
    return gpu_doctor.case(LOOP.format(optimizer=optimizer), {"torch": torch, "loader": loader, "net": net}).run()


def test_a_round_of_python_is_cpu_time_of_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = run().setup.speeds
    assert speeds.python_round_s is not None and 5e-9 < speeds.python_round_s < 2e-6
    took = [90, 60, 70]  # cold at first
    ticks = iter([at for one in took for at in (5_000, 5_000 + one * python_cost.ROUNDS)])
    assert python_cost.round_s(lambda: next(ticks)) == pytest.approx(60e-9)
    monkeypatch.setattr(python_cost, "round_s", lambda: 0.0)
    assert python_cost.timed({}) == {}, "a clock that does not move is no reading"
