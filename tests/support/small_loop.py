"""The small training loop of most trials: its cell, and the namespace that it runs in.

Loops that count their own steps and seconds stand in `timed_loops.py`.
"""

from __future__ import annotations

import time
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOOP: Final = """
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


class Rows(Dataset[Any]):
    """Noise with a class each; a row takes `sleep_s` to fetch, as from a disk or over a network."""

    def __init__(self, n: int = 400, features: int = 4, classes: int = 2, sleep_s: float = 0.0) -> None:
        self.x, self.y, self.sleep_s = torch.randn(n, features), torch.randint(0, classes, (n,)), sleep_s

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.x[index], self.y[index]


def namespace(data: Rows | None = None, /, batch: int = 4, workers: int = 0, **more: Any) -> dict[str, Any]:
    """The names of the loop: a linear model of the rows, SGD, a loader, and `more`."""
    torch.manual_seed(0)
    rows = data or Rows()
    model = nn.Linear(rows.x.shape[1], 4)
    found: dict[str, Any] = {
        "__name__": "__main__",
        "nn": nn,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": DataLoader(rows, batch_size=batch, num_workers=workers),
    }
    return {**found, **more}
