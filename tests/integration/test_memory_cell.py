"""The cell with which tests on a GPU fill it trains, and its loader's batch can be turned."""

from __future__ import annotations

import torch

import gpu_doctor
from tests.support.memory_cell import CELL, space


def test_the_cell_trains_with_any_batch() -> None:
    names = space("cpu", batch=4, width=16, depth=2, tokens=3)
    case = gpu_doctor.case(CELL, names)
    recording = case.run()
    assert recording.steps.count.sum() == 12 and (recording.steps.samples == 4).all()
    assert all(p.grad is None for p in names["net"].parameters())
    weights = names["net"][0].weight.detach().clone()
    effect = case.trial({"batch_size": 8}, steps=3, seconds=10.0, pairs=1)
    assert effect.outcome in ("completed", "budget-reached") and (case.trials[-1][1].steps.samples == 8).all()
    assert torch.equal(weights, names["net"][0].weight)
