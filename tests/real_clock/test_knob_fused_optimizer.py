"""A trial with a fused optimizer leaves the model and its optimizer as they were, bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import gpu_doctor
from tests.support.knob_fused_optimizer_parts import train

LOOP = """
for x in data:
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_trial_leaves_everything_bit_for_bit(steps_before: int) -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    opt = torch.optim.Adam(net.parameters())
    train(net, opt, steps_before)
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    case = gpu_doctor.case(LOOP, {"net": net, "opt": opt, "data": list(torch.randn(40, 8, 6))})
    effect = case.trial({"fused_optimizer": True}, steps=10, seconds=3)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    now = opt.state_dict()
    assert now["param_groups"] == state["param_groups"] and now["state"].keys() == state["state"].keys()
    for key, entry in now["state"].items():
        assert all(torch.equal(value, state["state"][key][name]) for name, value in entry.items())
