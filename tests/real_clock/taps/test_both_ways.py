"""What takes longer than it could is timed both ways after the run: by the calling thread's clock, and to an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.taps import both_ways, logits_cost, pairs_cost
from gpu_doctor.capture.taps.both_ways import FEWEST, PATIENCE_S, ROUNDS, Clocks
from gpu_doctor.recording.setup import PairsByBroadcast, UnusedLogits

LOGITS = UnusedLogits("ignore_index", 2, 80, 20, 50, 8)
PAIRS = PairsByBroadcast("product", 3, 2, 6, 5, 4)
CELL = """
body, head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 300)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
for _ in range(12):
    hidden = body(x)
    alike = (hidden[:, None] * hidden[None]).sum(-1)
    loss = torch.nn.functional.cross_entropy(head(hidden), y) + 1e-3 * alike.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
after = torch.rand(3)
"""


class Machine:
    """One on whose clocks the two ways take so many CPU seconds, and the wall so many times as many."""

    def __init__(self, slow: float, fast: float, stretched: float = 1.0) -> None:
        self.now, self.calls, self.takes, self.stretched = 0.0, 0, (slow, fast), stretched

    @property
    def clocks(self) -> Clocks:
        return lambda: self.now * self.stretched, lambda: self.now

    def way(self, which: int) -> Callable[[], float]:
        def once() -> float:
            self.calls += 1
            self.now += self.takes[which]
            return self.takes[which]

        return once

    def longer_s(self) -> tuple[float, float, float]:
        return both_ways.longer_s(self.way(0), self.way(1), self.clocks)


def test_it_is_the_difference_of_rounds_by_turns() -> None:
    machine = Machine(3e-3, 1e-3)
    assert machine.longer_s() == pytest.approx((2e-3,) * 3) and machine.calls == 2 * (1 + ROUNDS)
    assert Machine(1e-3, 3e-3).longer_s() == (0.0, 0.0, 0.0)


def test_where_others_use_the_cores_it_is_stretched_as_the_steps_are() -> None:
    assert Machine(3e-3, 1e-3, stretched=2.5).longer_s() == pytest.approx((5e-3,) * 3)


def test_ways_that_take_long_get_fewer_rounds() -> None:
    machine = Machine(PATIENCE_S, 0.0)
    machine.longer_s()
    assert machine.calls == 2 * (1 + FEWEST)


def scaled(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> list[Callable[[], Any]]:
    """Both ways of what is timed next take what the machine says; the forwards that would have been timed."""
    forwards: list[Callable[[], Any]] = []

    def passes(forward: Callable[[], Any], learned: Any, clocks: Clocks) -> Callable[[], float]:
        forwards.append(forward)
        return machine.way(len(forwards) - 1)

    monkeypatch.setattr(both_ways, "passes", passes)
    return forwards


@pytest.mark.parametrize("told_by", ["ignore_index", "picked logits"])
@pytest.mark.parametrize(("bias", "behind"), [(False, 1), (True, 20)])
def test_logits_are_timed_for_all_positions_and_for_those_that_are_used(
    monkeypatch: pytest.MonkeyPatch, told_by: str, bias: bool, behind: int
) -> None:
    machine = Machine(3e-3, 1e-3)
    forwards = scaled(monkeypatch, machine)
    assert logits_cost.longer_s(
        replace(LOGITS, told_by=told_by, bias=bias, behind=behind), machine.clocks
    ) == pytest.approx((2e-3,) * 3)
    whole, picked = forwards
    assert torch.allclose(whole(), picked()), "the same loss"


def test_of_many_logits_some_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(3e-3, 1e-3)
    scaled(monkeypatch, machine)
    monkeypatch.setattr(logits_cost, "LOGITS", 500)  # ten positions of the forty of a backward
    assert logits_cost.longer_s(LOGITS, machine.clocks) == pytest.approx((8e-3,) * 3)
    scaled(monkeypatch, machine)
    monkeypatch.setattr(logits_cost, "PRODUCTS", 80)  # four positions with ten classes: a product of 1 x 10 x 8 each
    assert logits_cost.longer_s(LOGITS, machine.clocks) == pytest.approx((2e-3 * 40 * 50 / 10,) * 3)


@pytest.mark.parametrize("kind", ["product", "cosine", "squares", "norm"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_pairs_are_timed_in_one_tensor_and_by_a_product(monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str) -> None:
    machine = Machine(3e-3, 1e-3)
    forwards = scaled(monkeypatch, machine)
    longer = pairs_cost.longer_s(replace(PAIRS, kind=kind, dtype=dtype), machine.clocks)
    assert longer == pytest.approx((3 * 2e-3,) * 3), "of three calls"
    large, product = (forward() for forward in forwards)
    assert large.shape == product.shape == (2, 6, 5) and large.dtype == product.dtype
    assert torch.allclose(large.double(), product.double(), atol=0.05 if dtype == "bfloat16" else 1e-3)


def test_of_many_pairs_some_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(3e-3, 1e-3)
    scaled(monkeypatch, machine)
    monkeypatch.setattr(pairs_cost, "NUMBERS", 60)  # three rows of the six, of one of two samples
    assert pairs_cost.longer_s(PAIRS, machine.clocks) == pytest.approx((3 * 4 * 2e-3,) * 3)


def test_a_run_leaves_both_behind_and_nothing_else() -> None:
    y = torch.full((64,), -100).index_fill(0, torch.arange(8), 1)
    namespace: dict[str, Any] = {"torch": torch, "x": torch.rand(64, 64), "y": y}
    torch.manual_seed(3)
    setup = gpu_doctor.case(CELL, namespace).run().setup
    for found in (setup.unused_logits, setup.pairs_by_broadcast):
        assert found is not None and found.longer_s is not None
        assert 0.0 <= found.longer_s[0] <= found.longer_s[1] <= found.longer_s[2] < 1.0
    drawn, bare = torch.rand(3), dict(namespace)
    torch.manual_seed(3)
    exec(CELL, bare)
    assert torch.equal(bare["after"], namespace["after"]) and torch.equal(torch.rand(3), drawn)
