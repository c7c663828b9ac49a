"""A model that the loop itself compiles goes on being heard, and stays compiled."""

from __future__ import annotations

import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.forward import SEAM
from tests.support.one_tap import batches, model


def test_a_model_that_the_loop_compiles_itself_goes_on_being_heard_and_stays_compiled() -> None:
    recorder, net = Recorder(), model()
    with listening(recorder, {"net": net}, accelerated=False):
        net.compile(backend="eager")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, _ in batches(40):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    recording = recorder.close()
    assert (recording.steps.forward_s > 0).all() and not recording.notes
    assert vars(net)[SEAM].__module__.startswith("torch")
