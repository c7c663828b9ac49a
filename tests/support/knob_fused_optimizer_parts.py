"""What the tests of knob fused optimizer share."""

from __future__ import annotations

import torch
from torch import nn


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)
    for x in torch.randn(steps, 8, 6):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
