"""What the tests of makes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Setup


def run(loop: Callable[..., None], **namespace: Any) -> Setup:
    """What all taps together find in a loop, which gets the names of its namespace as arguments."""
    recorder = Recorder()
    with listening(recorder, namespace, accelerated=False):
        loop(**namespace)
    recording = recorder.close()
    told = [one for one in recording.notes if not one.startswith("Recording takes")]  # of a machine that is busy
    assert not told, told
    return recording.setup


def sgd(*nets: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for net in nets for p in net.parameters()], lr=0.01)
