"""What our own code takes in a loop is measured where it runs, and is in no phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening


def test_the_taps_measure_themselves_in_every_step() -> None:
    now = [0]

    def clock() -> int:
        now[0] += 1000  # each look at the clock takes a microsecond
        return now[0]

    recorder = Recorder(clock=clock)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=2)
    with listening(recorder, {"model": model}, accelerated=False):
        for (rows,) in loader:
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()
    steps = recorder.close().steps
    unfolded = steps.ours_s[steps.ours_s < np.median(steps.ours_s) + 2e-6]
    assert len(steps.ours_s) == 20 and (unfolded >= 7e-6).all(), "a begin each, a batch, and the end of the step"
    assert (steps.ours_s < steps.wall_s).all()
