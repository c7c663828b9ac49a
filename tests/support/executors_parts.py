"""What the tests of executors share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def namespace(**more: Any) -> dict[str, Any]:
    model = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(torch.randn(400, 4), torch.zeros(400, dtype=torch.long)), 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"__name__": "__main__", "nn": nn, "model": model, "optimizer": optimizer, "loader": loader, **more}
