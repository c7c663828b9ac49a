"""Cells that are changed by a fix, and how the changed ones are run."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from gpu_doctor.cell.fix import Fix
from gpu_doctor.recording import Recording, Setup
from gpu_doctor.trials.knobs import KNOBS
from tests.support.leftovers import workers_ended

assert KNOBS  # the knobs are imported here, before a test's time is counted

PRELUDE = """import functools
import torch
import torch.utils.data as data
from torch import nn, optim
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset
from functools import partial
torch.set_num_threads(1)

class Rows(Dataset):
    def __init__(self, n=64): self.x = torch.randn(n, 4)
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i]

class Others(Rows): pass

ds, val_ds = Rows(), Others(32)
net = nn.Linear(4, 1)
opt = optim.SGD(net.parameters(), lr=0.1)
"""


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
"""An earlier cell for loops that train on images."""

TRAIN = """%s
for epoch in range(2):
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()

        # the forward
        output = model(
            images  # all of them
        )
        note = '''a text
over lines'''
        loss = criterion(output, targets)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # once
"""
"""A loop of them."""

LOOP = "for x in loader:\n    opt.zero_grad()\n    loss = net(x).sum()\n    loss.backward()\n    opt.step()\n"


WANTED = {"num_workers": 1, "batch_size": 8}


def ran(cells: list[str], entered: bool = False, earlier: str = PRELUDE) -> tuple[gpu_doctor.Case, Recording]:
    """Runs cells one after another in a namespace of their own; the last one is recorded.

    `entered`: the namespace remembers them as IPython's does.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if entered:
        namespace["In"] = ["", earlier, *cells]
    for cell in [earlier, *cells[:-1]]:
        exec(compile(cell, "<cell>", "exec"), namespace)
    case = gpu_doctor.case(cells[-1], namespace)
    with workers_ended():
        return case, case.run()


def fixed(cells: list[str], settings: dict[str, Any], earlier: str = PRELUDE) -> tuple[Fix, list[str]]:
    """The fix of some cells, and the cells with it."""
    case, _ = ran(cells, earlier=earlier)
    fix = case.fix(settings, [earlier, *cells[:-1]])
    after = {one.before: one.after for one in fix.cells}
    assert earlier not in after
    return fix, [after.get(cell, cell) for cell in cells]


def fixed_loop(cell: str, settings: dict[str, Any], earlier: str = IMAGES) -> tuple[Fix, str, Setup]:
    """The fix of a loop that trains on images, its cell with it, and the setup that a run of that found."""
    fix, cells = fixed([earlier, cell], settings, earlier="")
    return fix, cells[-1], ran(cells, earlier="")[1].setup
