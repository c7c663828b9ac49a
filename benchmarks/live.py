"""Whole trials of cells against themselves: what `case.trial` says where both sides are the same code."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

import gpu_doctor

SETUP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Parsed(Dataset):
    def __init__(self):
        self.rows = [" ".join(str(i % (k + 7)) for i in range(64)) for k in range(4096)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return torch.tensor([float(one) for one in self.rows[index].split()]), index % 8

images = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 8, (2048,)))
rows = TensorDataset(torch.randn(16384, 64), torch.randint(0, 8, (16384,)))
mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 28 * 28, 8))
criterion = nn.CrossEntropyLoss()
"""
LOOP = """
model = {model}
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for x, y in {loader}:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
"""
CELLS = {
    "MLP, rows in memory": ("mlp", "DataLoader(rows, 64, shuffle=True)"),
    "convolutions": ("net", "DataLoader(images, 16, shuffle=True)"),
    "texts parsed by two workers": ("mlp", "DataLoader(Parsed(), 32, shuffle=True, num_workers=2)"),
    "texts parsed in the loop": ("mlp", "DataLoader(Parsed(), 16, shuffle=True)"),
}


def live(number: int, steps: int = 50, seconds: float = 30.0) -> None:
    """Makes so many trials in all, one line each, and prints how they ended."""
    verdicts: Counter[str] = Counter()
    inside = 0
    for at in range(number):
        name, (model, loader) = list(CELLS.items())[at % len(CELLS)]
        space: dict[str, Any] = {"__name__": "__main__"}
        torch.manual_seed(at)
        exec(SETUP, space)
        effect = gpu_doctor.case(LOOP.format(model=model, loader=loader), space).trial({}, steps=steps, seconds=seconds)
        verdicts[effect.verdict] += 1
        inside += effect.low is not None and effect.high is not None and effect.low <= 1.0 <= effect.high
        print(f"{name:<32}{effect.pairs:3} pairs  {effect}", flush=True)
    print(f"{number} trials of equal sides: {dict(verdicts)}; 1 inside the interval in {inside}")
