"""A cell whose memory grows with its batch, for the search for the largest batch; what it needs is measured beside."""

from __future__ import annotations

from typing import Any

import torch

SETUP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Rows(Dataset):
    def __init__(self):
        self.row = torch.randn(WIDTH)
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        return self.row
net = nn.Sequential(*[layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).to("DEVICE")
opt = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9)
loader = DataLoader(Rows(), batch_size=BATCH)
def train(most):
    for step, x in enumerate(loader):
        tokens = x.to("DEVICE").unsqueeze(1).expand(-1, TOKENS, -1)
        net(tokens).square().mean().backward()
        opt.step()
        opt.zero_grad()
        if step + 1 >= most:
            break
"""
CELL = "train(12)"


def space(device: str, batch: int, width: int = 4096, depth: int = 4, tokens: int = 64) -> dict[str, Any]:
    """The names of the cell, its model made and nothing trained."""
    found: dict[str, Any] = {"__name__": "__main__"}
    source = SETUP
    for name, value in (("WIDTH", width), ("DEPTH", depth), ("TOKENS", tokens), ("BATCH", batch), ("DEVICE", device)):
        source = source.replace(name, str(value))
    exec(compile(source, "<earlier>", "exec"), found)
    return found


def peak_bytes(names: dict[str, Any], batch: int) -> int:
    """What the cell's steps need at most with a batch, on a GPU; what it has trained so far goes on."""
    written = names["loader"]
    names["loader"] = torch.utils.data.DataLoader(written.dataset, batch_size=batch)
    try:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        names["train"](3)
        return torch.cuda.max_memory_allocated()
    finally:
        names["loader"] = written
