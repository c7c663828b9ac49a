"""Loss curves of two sides of real trials are judged: the same, or different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor

pytestmark = pytest.mark.slow

CELL = """
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def space(dropout: float = 0.2) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 3))
    data = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randint(0, 3, (640,)))
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True)
    return {"nn": nn, "model": model, "loader": loader, "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}


@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        ({"pin_memory": False}, {"same"}),
        ({"num_workers": 1}, {"same"}),
        ({"amp": "bf16"}, {"same"}),
        ({"batch_size": 32}, {None}),
    ],
)
def test_real_trials(settings: dict[str, Any], verdicts: set[str | None]) -> None:
    effect = gpu_doctor.case(CELL, space()).trial(settings, steps=20, seconds=6.0)
    assert effect.loss_verdict in verdicts, effect


def test_a_change_of_the_training_is_told() -> None:
    """Another learning rate under workers alone is no rounding."""
    given = {**space(0.0), "torch": torch}
    given["workers"] = lambda: given["loader"].num_workers > 0
    cell = "optimizer = torch.optim.SGD(model.parameters(), 0.01 if workers() else 1.0)\n" + CELL
    effect = gpu_doctor.case(cell, given).trial({"num_workers": 0}, against={"num_workers": 1}, steps=30, seconds=8.0)
    assert effect.loss_changed and effect.loss_alone == 0.0, effect
