"""Looks at lines of a forward that make the same in every step: told by the texts passed through and by the model."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.lines.places import Place
from gpu_doctor.capture.lines.sampler import LineSampler, _Seen
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import FORWARD, OTHER

MODEL, LOOP = "<the model>", "<the loop>"
NET = """class Net(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.side, self.body = side, nn.Linear(4, 4)
    def grid(self):
        rows = [[y, x] for y in range(self.side) for x in range(self.side)]
        return torch.tensor(rows)
    def forward(self, x):
        ones = torch.ones(self.side, 4)
        return self.body(x).sum() + self.grid().sum() + ones.sum()
"""
STEP = """for x in data:
    loss = net(x)
    loss.backward()
"""


@pytest.fixture
def sampler() -> Iterator[LineSampler]:
    """Of a run whose loop has a model of such a class."""
    for file, text in ((MODEL, NET), (LOOP, STEP)):
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"nn": nn, "torch": torch, "__name__": "__main__"}
    exec(compile(NET, MODEL, "exec"), names)
    net, recorder = names["Net"](3), Recorder()
    recorder.meet(net)
    yield LineSampler(recorder)
    for file in (MODEL, LOOP):
        del linecache.cache[file]
    del net


def looked(sampler: LineSampler, line: int, *through: int, phase: int = FORWARD) -> LineCost:
    """What is told of a look at a line of the model, reached through others of it."""
    way = ((MODEL, line), *((MODEL, one) for one in through), (LOOP, 2))
    sampler.placed(phase, (_Seen(Place(MODEL, line, "grid", False), way), 1.0))
    text = NET.splitlines()[line - 1].strip()
    return next(one for one in sampler.costs() if one.text == text)


def test_what_the_forward_makes_anew(sampler: LineSampler) -> None:
    assert looked(sampler, 6, 10).beside == "constant"
    assert looked(sampler, 7, 10).beside == "constant" and not looked(sampler, 7, 10).computes
    assert looked(sampler, 9).beside == "constant" and looked(sampler, 9).computes, "torch makes it"
    assert looked(sampler, 10).beside == ""


def test_outside_of_a_forward_nothing_is_told_of_it(sampler: LineSampler) -> None:
    assert looked(sampler, 6, phase=OTHER).beside == ""


def test_a_model_that_holds_something_else(sampler: LineSampler) -> None:
    assert looked(sampler, 9).beside == "constant"
    net = sampler._recorder.met[0]()
    assert net is not None
    net.side = torch.tensor(3)
    assert looked(sampler, 9).beside == ""
