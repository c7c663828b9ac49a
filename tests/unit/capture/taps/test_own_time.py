"""What our own code takes in a loop is in no phase: a column of its own, in every step."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening


def test_every_step_has_the_price_of_its_events() -> None:
    recorder = Recorder()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.ones(400, 4)), batch_size=2)
    with listening(recorder, {"model": model}, accelerated=False):
        for (rows,) in loader:
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()
    steps = recorder.close().steps
    assert len(steps.ours_s) == 200 and (steps.ours_s[20:] > 0).all()
    assert (steps.ours_s < steps.wall_s).all()
