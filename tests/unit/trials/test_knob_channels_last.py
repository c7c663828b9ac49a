"""The knob channels_last: weights, gradients, state and inputs stored channels last for the run, then as they were."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import ModelFacts
from gpu_doctor.trials.knobs.channels_last import KNOB


class Net(nn.Module):
    def __init__(self, flatten: str = "flatten") -> None:
        super().__init__()
        # no bias before the norm: its gradient is rounding alone, which Adam would blow up
        self.a, self.b = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 4, 3)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(4 * 4 * 4, 2)
        self.flatten, self.last = flatten, []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last.append(x.is_contiguous())
        x = self.b(torch.relu(self.norm(self.a(x))))
        flat = x.view(len(x), -1) if self.flatten == "view" else x.flatten(1)
        return self.head(flat)  # type: ignore[no-any-return]


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)
    for x in torch.randn(steps, 4, 3, 8, 8):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01)


SEEN = Setup(optimizers=("SGD",), layers={"Conv2d": 2, "Linear": 1}, model=ModelFacts(convolutions=2))


def test_refusals_found_and_code() -> None:
    assert KNOB.reason(True, SEEN) == "" and KNOB.found(SEEN) is False
    assert "no 2D convolutions" in KNOB.reason(True, Setup(optimizers=("SGD",), layers={"Linear": 3}))
    assert "No torch optimizer" in KNOB.reason(True, Setup(torch_version="2"))
    own = dataclasses.replace(SEEN, model=ModelFacts(convolutions=2, channels_last=2))
    assert KNOB.found(own) is True and "change it there" in KNOB.reason(False, own)
    parallel = dataclasses.replace(SEEN, model=ModelFacts(convolutions=2, wrapper="DistributedDataParallel"))
    assert "before the model is wrapped" in KNOB.reason(True, parallel)
    assert [one.value for one in KNOB.choices(SEEN)] == [False, True]
    for value in (True, False):
        compile(KNOB.code(value, SEEN), "<code>", "exec")


LOOP = """
for x in data:
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_trial_runs_the_lines_and_leaves_everything_bit_for_bit(steps_before: int) -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, steps_before)
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    memory = {name: one.data_ptr() for name, one in net.named_parameters()}
    names = {"torch": torch, "net": net, "opt": opt, "data": list(torch.randn(40, 4, 3, 8, 8))}
    case = gpu_doctor.case(LOOP, names)
    effect = case.trial({"channels_last": True}, steps=10, seconds=3, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    base, candidate = case.trials[-1]
    assert base.setup.model is not None and candidate.setup.model is not None
    assert (base.setup.model.channels_last, candidate.setup.model.channels_last) == (0, 2)
    assert "net.to(memory_format=" in candidate.source
    assert {name: one.data_ptr() for name, one in net.named_parameters()} == memory
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name]) and value.stride() == weights[name].stride()
    now = opt.state_dict()
    assert now["param_groups"] == state["param_groups"] and now["state"].keys() == state["state"].keys()
    for key, entry in now["state"].items():
        for name, value in entry.items():
            kept = state["state"][key][name]
            assert torch.equal(value, kept) and value.stride() == kept.stride()


def test_a_view_of_images_fails_with_torchs_words_and_an_unknown_model_is_refused() -> None:
    net = Net("view")
    names = {"torch": torch, "net": net, "opt": adam(net), "data": list(torch.randn(40, 4, 3, 8, 8))}
    effect = gpu_doctor.case(LOOP, names).trial({"channels_last": True}, steps=10, seconds=3, pairs=1)
    assert effect.outcome == "failed" and ".reshape(...)" in effect.reason
    assert net.a.weight.is_contiguous()
    hidden = gpu_doctor.case(LOOP.replace("net(x)", "forward(x)"), {**names, "forward": net.forward})
    effect = hidden.trial({"channels_last": True}, steps=10)
    assert effect.outcome == "refused" and "No call of the model" in effect.reason and "by hand" in effect.reason
