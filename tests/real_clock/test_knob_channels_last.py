"""A trial with channels last leaves the model and its optimizer as they were, bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch

import gpu_doctor
from tests.support.knob_channels_last_parts import Net, adam, train

LOOP = """
for x in data:
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_trial_leaves_everything_bit_for_bit(steps_before: int) -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, steps_before)
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    case = gpu_doctor.case(LOOP, {"net": net, "opt": opt, "data": list(torch.randn(40, 4, 3, 8, 8))})
    effect = case.trial({"channels_last": True}, steps=10, seconds=3)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name]) and value.stride() == weights[name].stride()
    now = opt.state_dict()
    assert now["param_groups"] == state["param_groups"] and now["state"].keys() == state["state"].keys()
    for key, entry in now["state"].items():
        for name, value in entry.items():
            kept = state["state"][key][name]
            assert torch.equal(value, kept) and value.stride() == kept.stride()
