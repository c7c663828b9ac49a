"""Models and steps that are compiled are told as compiled."""

from __future__ import annotations

import torch
from torch import nn

from gpu_doctor.capture.describe.model_facts import model_facts


def test_compiled_models_and_steps_are_told() -> None:
    net = nn.Linear(8, 8)
    assert model_facts([torch.compile(net, backend="eager")]).compiled  # type: ignore[list-item]
    step = torch.compile(lambda x: net(x), backend="eager")
    assert model_facts([net], {"step": step}).compiled and not model_facts([net], {"net": net}).compiled
    net.compile(backend="eager")
    assert model_facts([net]).compiled
