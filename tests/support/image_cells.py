"""Cells that train on images."""

from __future__ import annotations

IMAGES = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # the usual
loader = DataLoader(TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(0, 3, (32,))), batch_size=8)
device = "cpu"
"""
