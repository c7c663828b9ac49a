"""A GradScaler without an autocast is shown as the cell's own, and a trial can switch it off."""

from __future__ import annotations

import pytest
import torch

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.amp.knob import KNOB
from tests.support.knob_amp_parts import Net
from tests.support.knob_amp_parts import data as data

SCALED = """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=ENABLED)
for x in data:
    opt.zero_grad()
    loss = net(x).mean()  # no autocast: it was forgotten
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler_without_an_autocast_is_shown_as_yours_and_can_be_switched_off(enabled: bool) -> None:
    names = {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8)), "ENABLED": enabled}
    case = gpu_doctor.case(SCALED, names)
    found = case.run().setup
    assert found.grad_scaler is enabled and found.autocast == "" and KNOB.found(found) == "off"
    assert KNOB.choices(found)[0].label == ("off (your GradScaler)" if enabled else "off")
    if not enabled:
        return
    on_a_card = Setup(**{**vars(found), "device": "cuda:0"})
    assert "has its own GradScaler" in KNOB.refusal("fp16", on_a_card) and KNOB.refusal("bf16", on_a_card) == ""
    effect = case.trial({"amp": "off"}, steps=10, seconds=5)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.grad_scaler, candidate.setup.grad_scaler) == (True, False)
