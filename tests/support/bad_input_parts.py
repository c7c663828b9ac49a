"""What the tests of bad input share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def namespace() -> dict[str, Any]:
    data = TensorDataset(torch.randn(320, 8), torch.randint(0, 2, (320,)))
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"nn": nn, "loader": DataLoader(data, batch_size=32), "model": model, "optimizer": optimizer}
