"""Loss curves of two sides of real trials are judged: equal, within rounding, different, or per sample seen."""

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
        ({"pin_memory": False}, {"equal"}),
        ({"num_workers": 1}, {"equal"}),
        ({"amp": "bf16"}, {"within-rounding"}),
        ({"batch_size": 32}, {"per-sample"}),
    ],
)
def test_real_trials(settings: dict[str, Any], verdicts: set[str]) -> None:
    effect = gpu_doctor.case(CELL, space()).trial(settings, steps=20, seconds=6.0)
    assert effect.loss_verdict in verdicts, effect


AUGMENTED = """
class Noisy(torch.utils.data.Dataset):
    def __len__(self): return 640
    def __getitem__(self, i): return x_all[i] + 0.5 * torch.randn(8), y_all[i]
loader = torch.utils.data.DataLoader(Noisy(), 16)
"""


@pytest.mark.parametrize(("rate", "changed"), [("0.01", False), ("0.01 if workers() else 1.0", True)])
def test_a_real_trial_that_draws_other_numbers_is_judged_by_runs_that_do_so(rate: str, changed: bool) -> None:
    """Augmentation in a worker draws its own numbers: that alone is no change, but it hides none either."""
    given = {**space(0.0), "torch": torch, "x_all": torch.randn(640, 8), "y_all": torch.randint(0, 3, (640,))}
    exec(AUGMENTED, given)
    given["workers"] = lambda: given["loader"].num_workers > 0
    cell = f"optimizer = torch.optim.SGD(model.parameters(), {rate})\n" + CELL
    before = [one.detach().clone() for one in given["model"].parameters()]
    case = gpu_doctor.case(cell, given)
    effect = case.trial({"num_workers": 0}, against={"num_workers": 1}, steps=30, seconds=8.0)
    assert effect.loss_verdict == "different" and effect.loss_changed is changed, effect
    assert effect.loss_alone is not None and effect.loss_alone > 1e-3, effect
    assert all(map(torch.equal, before, given["model"].parameters())), "the nudge is put back"
