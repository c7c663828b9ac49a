"""A trial can leave out the autocast that the cell itself writes."""

from __future__ import annotations

import torch

import gpu_doctor
from tests.support.knob_amp_parts import Net
from tests.support.knob_amp_parts import data as data


def test_a_trial_without_the_users_own_autocast() -> None:
    code = """
net, scaler = Net(), torch.amp.GradScaler("cpu", enabled=True)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in data:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""
    case = gpu_doctor.case(code, {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8))})
    assert case.run().setup.autocast == "bfloat16"
    effect = case.trial({"amp": "off"}, steps=10, seconds=5)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.autocast, candidate.setup.autocast) == ("bfloat16", "")
