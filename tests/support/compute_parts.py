"""What the tests of compute share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from tests.support.one_tap import batches


def train_with_copies(net: nn.Module, take: Any) -> Any:
    """Trains two steps with all taps on; `take` is called with the model in the middle."""
    recorder = Recorder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with listening(recorder, {"net": net}, accelerated=False):
        taken = None
        for x, _ in batches(16):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
            taken = taken or take(net)
            assert torch.isfinite(net(x)).all()
    assert not recorder.close().notes
    return taken
