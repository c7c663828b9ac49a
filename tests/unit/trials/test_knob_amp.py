"""The knob amp: what it offers, and its trials, which run the cell with torch's recipe written in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.amp.knob import KNOB, lstm_in_bf16
from gpu_doctor.trials.knobs.knob import Refused


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.inner(x))


SEEN = Setup(optimizers=("SGD",), models=("Net",), dtype="float32", parameters=10)


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    yield
    assert patching.active() == ()


EARLIER = """import torch
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(rows):
    for x in rows:
        opt.zero_grad()
        loss = net(x).mean()
        loss.backward()
        opt.step()
"""
LOOP = "for x in data:\n    opt.zero_grad()\n    loss = net(x).mean()\n    loss.backward()\n    opt.step()\n"


def case_of(cell: str, earlier: str = EARLIER) -> gpu_doctor.Case:
    names: dict[str, Any] = {"torch": torch, "Net": Net, "data": list(torch.randn(30, 4, 8)), "__name__": "__main__"}
    exec(earlier, names)
    names["In"] = ["", earlier, cell]
    case = gpu_doctor.case(cell, names)
    case.run()
    return case


@pytest.mark.parametrize("cell", [LOOP, "train(data)\n"])
def test_a_trial_runs_the_recipe_also_in_a_function_of_an_earlier_cell(cell: str) -> None:
    case = case_of(cell)
    train, state = case.namespace["train"], case.namespace["net"].state_dict()
    before = {name: one.clone() for name, one in state.items()}
    effect = case.trial({"amp": "bf16"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.autocast, candidate.setup.autocast) == ("", "bfloat16")
    (pasted,) = case.fix({"amp": "bf16"}).cells
    function = pasted.after[pasted.after.index("def train") :] if cell != LOOP else ""
    assert candidate.source == (pasted.after if cell == LOOP else function.rstrip() + "\n" + cell)
    assert all(torch.equal(one, before[name]) for name, one in case.namespace["net"].state_dict().items())
    assert case.namespace["train"] is train
    autocast = [case.run(settings).setup.autocast for settings in ({"amp": "bf16"}, {})]
    assert autocast == ["bfloat16", ""] and case.namespace["train"] is train, "the next run is as written again"


def test_a_loop_that_the_recipe_does_not_fit_is_refused_with_the_reason_and_the_cure() -> None:
    case = case_of(LOOP.replace("loss.backward()", "back(loss)"), EARLIER + "def back(loss): loss.backward()\n")
    effect = case.trial({"amp": "bf16"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome == "refused" and "a function that this cell calls" in effect.reason
    assert "case.code({'amp': 'bf16'})" in effect.reason and case.trials == []
    with pytest.raises(Refused, match="by hand"):
        case.run({"amp": "bf16"})


def test_a_function_is_run_with_the_recipe_and_keeps_its_name() -> None:
    effect = (case := gpu_doctor.case(trained)).trial({"amp": "bf16"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert case.trials[-1][1].setup.autocast == "bfloat16" and case.namespace["trained"] is trained
    net = Net()

    def closed() -> None:
        net(torch.ones(1, 8))

    assert "not given as text" in gpu_doctor.case(closed).trial({"amp": "bf16"}, steps=2).reason


def trained() -> None:
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(30, 4, 8):
        opt.zero_grad()
        loss = net(x).mean()
        loss.backward()
        opt.step()


def test_an_lstm_is_refused_exactly_where_torch_cannot_run_it() -> None:
    """The truth is torch itself, asked on this machine."""
    net = nn.LSTM(4, 8, batch_first=True)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            net(torch.randn(2, 3, 4))
        runs = True
    except RuntimeError:
        runs = False
    assert lstm_in_bf16() == runs
    setup = Setup(optimizers=("SGD",), dtype="float32", layers={"LSTM": 1})
    assert bool(KNOB.reason("bf16", setup)) == (not runs)
    assert not KNOB.reason("bf16", Setup(optimizers=("SGD",), dtype="float32", layers={"GRU": 1}))


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
    assert "has its own GradScaler" in KNOB.reason("fp16", on_a_card) and KNOB.reason("bf16", on_a_card) == ""
    effect = case.trial({"amp": "off"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.grad_scaler, candidate.setup.grad_scaler) == (True, False)


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
    effect = case.trial({"amp": "off"}, steps=10, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    baseline, candidate = case.trials[-1]
    assert (baseline.setup.autocast, candidate.setup.autocast) == ("bfloat16", "")
