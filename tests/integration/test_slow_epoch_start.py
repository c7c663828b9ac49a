"""The seconds that a sampler draws an epoch in, told by slow-epoch-start in a real loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor

RULE = "slow-epoch-start"


@pytest.mark.alone
def test_a_permutation_of_millions_for_a_few_batches() -> None:
    """The time of `randperm(n).tolist()` is the truth: taken here, without our tool."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(1_000_000, 4), torch.zeros(1_000_000))
    net = nn.Linear(4, 1)
    world = {"loader": DataLoader(data, batch_size=8, shuffle=True), "net": net}
    cell = """
import torch
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(4):
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        (net(x)[:, 0] - y).square().mean().backward()
        opt.step()
        if i == 30:
            break
"""
    diagnosis = gpu_doctor.diagnose(gpu_doctor.case(cell, world).run())
    found = next(one for one in diagnosis.findings if one.rule == RULE)
    assert diagnosis.findings[0] is found and (found.cost_share or 0.0) > 0.3
