"""A notebook whose cells reach far, and whether what they reach comes back."""

from __future__ import annotations

from typing import Any

from gpu_doctor.trials.snapshot.snapshot import Snapshot

START = """
import collections, contextlib, functools, multiprocessing, queue, threading, weakref
import torch
from torch import nn
ones = nn.init.ones_
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, x, seen=[]):
        return self.layer(x)
"""


def notebook(setup: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(START + setup, "<earlier>", "exec"), space)
    return space


def said(space: dict[str, Any], look: str) -> str:
    return repr(eval(look, space))


def comes_back(space: dict[str, Any], cell: str, look: str, lost: tuple[str, ...] = ()) -> None:
    """What `look` says is, after the cell and a restore, what it was before; twice. Named as lost is `lost`."""
    before = said(space, look)
    snapshot = Snapshot.take(space)
    assert snapshot.unrestorable == lost
    assert said(space, look) == before
    for _ in range(2):
        exec(compile(cell, "<cell>", "exec"), space)
        assert said(space, look) != before, "the cell changes nothing"
        assert snapshot.restore() == ()
        assert said(space, look) == before


PARTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4, shuffle=True, generator=torch.Generator())
def train():
    for (x,) in loader:
        opt.zero_grad(); model(x).square().mean().backward(); opt.step()
"""
