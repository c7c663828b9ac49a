"""What the tests of knob channels last share."""

from __future__ import annotations

import torch
from torch import nn

LAST = torch.channels_last


class Net(nn.Module):
    def __init__(self, flatten: str = "flatten") -> None:
        super().__init__()
        # no bias before the norm: its gradient is rounding alone, which Adam would blow up
        self.a, self.b = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 4, 3)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(4 * 4 * 4, 2)
        self.flatten, self.last = flatten, []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last.append(x.is_contiguous(memory_format=LAST))
        x = self.b(torch.relu(self.norm(self.a(x))))
        flat = x.view(len(x), -1) if self.flatten == "view" else x.flatten(1)
        return self.head(flat)  # type: ignore[no-any-return]


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)
    for x in torch.randn(steps, 4, 3, 8, 8):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01)
