"""What the tests of knob amp share."""

from __future__ import annotations

import pytest
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)
        self.dtypes: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        self.dtypes.append(out.dtype)
        return torch.sigmoid(out)


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    return x, (x[:, :1] > 0).float()
