"""The notebook cells that the patients share: a net that keeps the device busy for a known time, whatever the batch."""

from __future__ import annotations

from typing import Final

HEAD: Final = """
import time
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "DEVICE"
steps = STEPS
pinned = device == "cuda"
half = torch.bfloat16 if device == "cuda" else torch.float32

def size(full, small):
    return full if device == "cuda" else small

def burn(ms):
    until = time.perf_counter() + size(ms, 0.2 * ms) * 1e-3
    while time.perf_counter() < until:
        pass

class Rows(Dataset):
    def __init__(self, count, shape=(64,), ms=0.0, sleeps=False, dtype=torch.float32):
        self.count, self.ms, self.sleeps = count, ms, sleeps
        self.row = torch.zeros(shape, dtype=dtype) if dtype == torch.uint8 else torch.randn(shape, dtype=dtype)
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if self.sleeps:
            time.sleep(self.ms * 1e-3)
        elif self.ms:
            burn(self.ms)
        return self.row
"""
"""What each cell needs: sizes for a card, or small ones where the CPU stands in for it."""

BUSY: Final = """
class Net(nn.Module):
    def __init__(self, rows=ROWS, width=size(4096, 64)):
        super().__init__()
        self.rows = rows
        self.inner = nn.Sequential(nn.Linear(64, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    def forward(self, x):
        x = x.flatten(1)[:, :64].to(half)
        return self.inner(x.repeat(-(-self.rows // len(x)), 1)[: self.rows])

net = Net().to(device, half)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
"""
"""A net that works as long as `ROWS` rows take, however few samples there are."""

LOOP: Final = """
for x in loader:
    x = x.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = net(x).float().square().mean()
    loss.backward()
    optimizer.step()
"""
"""A loop as people write it."""

LOADER: Final = "DataLoader(Rows(32 * steps), batch_size=32, pin_memory=pinned)"
PLAIN: Final = HEAD + BUSY + f"loader = {LOADER}\n"
"""A loop that waits for nothing."""


def then(*lines: str) -> str:
    """The loop with more lines after its optimizer step."""
    return LOOP + "".join(f"    {one}\n" for one in lines)
