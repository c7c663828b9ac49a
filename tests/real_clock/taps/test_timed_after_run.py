"""What a change of settings would cost on this machine is timed once, after the run, and moves nothing of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture.taps import both_ways, fused_cost, python_cost

LOOP = """
opt = torch.optim.{optimizer}
for x, y in loader:
    opt.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    opt.step()
"""


@pytest.fixture(autouse=True)
def _first_time() -> Iterator[None]:
    fused_cost.longer_s.cache_clear()
    yield
    fused_cost.longer_s.cache_clear()


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


def test_a_step_of_a_fused_optimizer_is_timed_below_the_users_hooks() -> None:
    stepped: list[Any] = []
    hook = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: stepped.append(optimizer))
    try:
        (facts,) = run("Adam(net.parameters())").setup.optimizer_facts or ()
    finally:
        hook.remove()
    assert len(stepped) == 20, "the loop's own steps"
    assert facts.can_fuse and facts.longer_s is not None
    least, usual, most = facts.longer_s
    assert 0 <= least <= usual <= most and 0 < usual < 0.1


def test_sgd_is_timed_with_its_momentum_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[tuple[str, bool]] = []

    def longer_s(kind: tuple[str, bool], tensors: int, elements: int) -> tuple[float, ...]:
        stepped.append(kind)
        return (1e-3, 2e-3, 3e-3)

    monkeypatch.setattr(fused_cost, "longer_s", longer_s)
    for more in ("", ", momentum=0.9"):
        (facts,) = run(f"SGD(net.parameters(), lr=0.01{more})").setup.optimizer_facts or ()
        assert facts.longer_s == (1e-3, 2e-3, 3e-3) and facts.momentum is bool(more)
    assert stepped == [("SGD", False), ("SGD", True)]


@pytest.mark.parametrize("optimizer", ["Adam(net.parameters(), fused=True)", "RMSprop(net.parameters())"])
def test_what_runs_fused_or_cannot_be_is_not_timed(optimizer: str) -> None:
    (facts,) = run(optimizer).setup.optimizer_facts or ()
    assert facts.longer_s is None


def test_what_a_model_has_more_than_is_tried_is_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def longer_s(slow: Any, fast: Any, clocks: Any, times: float) -> tuple[float, ...]:
        tried.append(times)
        return (0.0, 0.0, 0.0)

    monkeypatch.setattr(both_ways, "longer_s", longer_s)
    for tensors, elements in ((10, 1000), (640, 640), (3, 3 << 21), (4, 2)):
        fused_cost.longer_s(("Adam", False), tensors, elements)
    assert tried == [1.0, 10.0, 3.0, 1.0]
