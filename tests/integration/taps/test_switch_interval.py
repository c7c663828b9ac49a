"""The looks see the line that runs, and the interpreter's switch interval is put back."""

from __future__ import annotations

import os
import sys
import warnings

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.lines.switch_interval import TURN_S, ShortInterval

CELL = """
import torch
net = torch.nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
X = torch.rand(64, 64)
for step in range(600):
    x = X[:32]
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    total = 0
    for k in range(100_000): total += k * k
"""


@pytest.mark.parametrize("before", [0.005, 0.0001, 0.00002])
def test_the_interval_is_put_back(before: float) -> None:
    kept, interval = sys.getswitchinterval(), ShortInterval()
    try:
        sys.setswitchinterval(before)
        interval.shorten("one")
        interval.shorten("another")
        assert sys.getswitchinterval() == pytest.approx(min(before, TURN_S))
        interval.put_back("one")
        interval.put_back("one")
        assert sys.getswitchinterval() == pytest.approx(min(before, TURN_S)), "one of them still looks"
        interval.put_back("another")
        assert sys.getswitchinterval() == pytest.approx(before)
        interval.shorten("one")
        sys.setswitchinterval(0.003)  # the code's own
        interval.put_back("one")
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(kept)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_the_usual_interval() -> None:
    before = sys.getswitchinterval()
    with gpu_doctor.watch():
        assert sys.getswitchinterval() < before
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: other threads run here, ours
            child = os.fork()
        if not child:
            os._exit(0 if sys.getswitchinterval() == before else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert sys.getswitchinterval() == before


LEAST = 0.7
"""Its line took 0.86 to 0.95 of the time, and 0.33 to 0.52 with the interpreter's usual interval, where a look that is
let in late sees the next call into torch. The middle."""


@pytest.mark.alone
def test_plain_python_is_billed_to_its_own_line() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        recording = gpu_doctor.case(CELL, {}).run()
    finally:
        torch.set_num_threads(threads)
    shares = {one.line: 0.0 for one in recording.lines}
    for one in recording.lines:
        shares[one.line] += one.share
    assert shares.get(13, 0.0) > LEAST, shares
