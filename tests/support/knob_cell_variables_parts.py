"""What the tests of knob cell variables share."""

from __future__ import annotations

BY_HAND = """import torch
from torch import nn
lr = 1e-3  # the learning rate
batch_size = 16
name: str = "plain"
shuffle = True
down = -2
x, y = torch.randn(320, 8), torch.randint(0, 2, (320,))
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
seen.append((lr, batch_size))
for i in range(0, len(x), batch_size):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + batch_size]), y[i:i + batch_size]).backward()
    optimizer.step()
"""
