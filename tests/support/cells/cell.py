"""The form of a catalogued cell, the parts that many are made of, and the notebook that one runs in."""

from __future__ import annotations

import io
import linecache
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

START: Final = """
import collections, copy, dataclasses, itertools, random, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, RandomSampler, WeightedRandomSampler
torch.manual_seed(0); np.random.seed(0); random.seed(0)
xs, ys = torch.randn(ROWS, 6), torch.randint(0, 3, (ROWS,))
calls, losses = collections.Counter(), []
def called(name):
    calls[name] += 1
    if (name, calls[name]) == TROUBLE: raise ERROR
"""
NET: Final = """
class Items(TensorDataset):
    def __getitem__(self, i):
        called("item")
        return super().__getitem__(i)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3), nn.Linear(12, 3)
        self.calls = 0
    def forward(self, x):
        called("forward"); self.calls += 1
        out = self.b(self.drop(F.relu(self.norm(self.a(x)))))
        if out.requires_grad: out.register_hook(lambda grad: called("backward hook"))
        return out
net = Net()
loader = DataLoader(Items(xs, ys), batch_size=4, shuffle=True)
"""
SGD: Final = "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
LOOP: Final = """
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
"""


@dataclass(frozen=True)
class Cell:
    """A training cell as people write it, with the earlier cells that it needs, and what it is catalogued for."""

    earlier: str
    """What an earlier cell makes, behind `START`."""
    code: str
    before: int = 1
    """Runs of the code before it is tried."""
    net: bool = True
    """The earlier cells make the model and the loader of `NET`."""
    restored: bool = True
    """It is tried, and everything that it reaches must be as before."""
    knobs: bool = False
    """Every knob is turned on it."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Knob, or setting such as `amp=fp16` -> a part of the reason why it cannot be turned here."""
    faults: bool = False
    """Every function of ours is made to raise while it runs."""
    workers: bool = False
    """Worker processes fetch in it."""
    loader_alone: bool = False
    """Of its faults only those in the workers and in the loader's tap are of interest."""
    on_gpu: bool = False
    """It trains on a simulated GPU."""
    trouble: tuple[str, int] | None = None
    """The user's function that raises `error`, and the number of the call in which it does."""
    error: BaseException | None = None

    @property
    def setup(self) -> str:
        """The earlier cells."""
        return START + NET * self.net + self.earlier


def names(cell: Cell | None = None, rows: int = 96) -> dict[str, Any]:
    """The names that every cell takes for granted: how many rows of data there are, and what raises where."""
    trouble, error = (None, None) if cell is None else (cell.trouble, cell.error)
    return {"__name__": "__main__", "ROWS": rows, "TROUBLE": trouble, "ERROR": error}


def notebook(cell: Cell, folder: Path, rows: int = 96) -> dict[str, Any]:
    """A namespace in which the earlier cells have run, in a folder that is the working folder until `ended`."""
    space = {**names(cell, rows), "LOG": str(folder / "log.txt"), "STARTED_IN": os.getcwd()}  # noqa: PTH109
    os.chdir(folder)
    space["In"] = space["_ih"] = ["", cell.setup, *[cell.code] * cell.before]  # as IPython stores them
    linecache.cache["<earlier>"] = len(cell.setup), None, cell.setup.splitlines(keepends=True), "<earlier>"
    exec(compile(cell.setup, "<earlier>", "exec"), space)
    for _ in range(cell.before):
        exec(compile(cell.code, "<cell>", "exec"), space)
    return space


def ended(space: dict[str, Any]) -> None:
    """Ends the workers of the notebook's loaders, closes what it has open, and leaves its folder."""
    os.chdir(space["STARTED_IN"])
    shut_down(space)
    for value in space.values():
        if isinstance(value, (io.IOBase, sqlite3.Connection)):
            value.close()


def shut_down(space: dict[str, Any]) -> None:
    """Ends the workers of a namespace's loaders."""
    for value in space.values():
        if isinstance(value, torch.utils.data.DataLoader) and value._iterator is not None:
            value._iterator._shutdown_workers()  # type: ignore[attr-defined]
        elif isinstance(value, _MultiProcessingDataLoaderIter):
            value._shutdown_workers()
