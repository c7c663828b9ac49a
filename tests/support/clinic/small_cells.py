"""Patients whose operations are so small that a CPU mostly gets from one to the next, and a healthy one beside them."""

from __future__ import annotations

from tests.support.clinic.cell import Cell, Patient

ABOVE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)

LENGTH = 2400
rows = TensorDataset(torch.randn(LENGTH, 32), torch.randint(0, 4, (LENGTH,)))

class Tabular(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Linear(32, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

lossf = nn.CrossEntropyLoss()
"""
TRAIN = """
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
"""

UNROLLED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)

LENGTH = 800
songs = TensorDataset(torch.randint(0, 40, (LENGTH, 25)))
embed, cell, head = nn.Embedding(40, 16), nn.GRUCell(16, 24), nn.Linear(24, 40)
parameters = [*embed.parameters(), *cell.parameters(), *head.parameters()]
opt = torch.optim.SGD(parameters, lr=0.1)
lossf = nn.CrossEntropyLoss()
"""
SONGS = """
for (batch,) in DataLoader(songs, batch_size=4, shuffle=True):
    h, loss = torch.zeros(len(batch), 24), 0.0
    for t in range(batch.shape[1] - 1):
        h = cell(embed(batch[:, t]), h)
        loss = loss + lossf(head(h), batch[:, t + 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

FROZEN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)

LENGTH = 1200
texts = TensorDataset(torch.randint(0, 500, (LENGTH, 64)), torch.randint(0, 4, (LENGTH,)))

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 128)
        self.encoder = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(128, 4)

    def forward(self, x):
        with torch.no_grad():
            features = self.encoder(self.embed(x)).mean(1)
        return self.head(features)

model = Classifier()
opt = torch.optim.SGD(model.head.parameters(), lr=0.01)
lossf = nn.CrossEntropyLoss()
"""

CELLS: tuple[Patient, ...] = (
    Cell(
        "rows-four-at-a-time",
        "host",
        ("launch-bound",),
        before=ABOVE + "model = Tabular(32, 4)\nopt = torch.optim.SGD(model.parameters(), lr=0.01)",
        sick="loader = DataLoader(rows, batch_size=4, shuffle=True)" + TRAIN,
        cure={"batch_size": 16},
    ),
    Cell(
        "a-cell-unrolled-over-few-songs",
        "host",
        ("launch-bound",),
        before=UNROLLED,
        sick=SONGS,
        cure={"batch_size": 16},
    ),
    Cell(
        "a-head-on-a-frozen-encoder",
        "compute",
        healthy=True,
        never=("launch-bound",),
        before=FROZEN,
        sick="loader = DataLoader(texts, batch_size=8, shuffle=True)" + TRAIN,
    ),
    Cell(
        "rows-enough-for-a-wide-model",
        "compute",
        healthy=True,
        never=("launch-bound",),
        before=ABOVE + "model = Tabular(512, 4)\nopt = torch.optim.SGD(model.parameters(), lr=0.01)",
        sick="loader = DataLoader(rows, batch_size=16, shuffle=True)" + TRAIN,
    ),
)
