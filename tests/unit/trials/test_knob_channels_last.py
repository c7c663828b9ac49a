"""The knob channels_last: weights, gradients, state and inputs stored channels last for the run, then as they were."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import ModelFacts
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.channels_last import KNOB
from gpu_doctor.trials.knobs.knob import Refused, TrialScope

LAST = torch.channels_last


class Net(nn.Module):
    def __init__(self, flatten: str = "flatten") -> None:
        super().__init__()
        # no bias before the norm: its gradient is rounding alone, which Adam would blow up
        self.a, self.b = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 4, 3)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(4 * 4 * 4, 2)
        self.flatten, self.last = flatten, []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last.append(x.is_contiguous(memory_format=LAST))
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


def is_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=LAST) and not tensor.is_contiguous()


@pytest.mark.parametrize("where", ["before", "inside", "hidden"])
def test_turned_put_back_and_the_same_numbers(where: str) -> None:
    torch.manual_seed(0)
    net = Net()
    twin = copy.deepcopy(net)
    opt, plain = (None if where == "inside" else adam(net)), adam(twin)
    if opt is not None:
        train(net, opt, 2)
        train(twin, plain, 2)
    memory = {name: one.data_ptr() for name, one in net.named_parameters()}
    objects = dict(net.named_parameters())
    with knobs.turned({"channels_last": True}, TrialScope({"net": net, "opt": opt} if where == "before" else {})):
        opt = opt or adam(net)
        train(net, opt, 3)
        assert is_last(net.a.weight) and is_last(net.b.weight) and is_last(opt.state[net.b.weight]["exp_avg"])
        assert net.last[-1] is True
    train(twin, plain, 3)
    assert all(one is objects[name] and one.data_ptr() == memory[name] for name, one in net.named_parameters())
    tensors: list[Any] = [*net.parameters(), *(one.grad for one in net.parameters())]
    tensors += [one for entry in opt.state.values() for one in entry.values()]
    assert all(one.is_contiguous() for one in tensors)
    train(net, opt, 2)
    train(twin, plain, 2)
    assert net.last[-1] is False
    for mine, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-4)


def test_put_back_when_the_loop_raised() -> None:
    net = Net()
    opt = adam(net)
    before = copy.deepcopy(net.state_dict())

    def failing() -> None:
        with knobs.turned({"channels_last": True}, TrialScope({"net": net, "opt": opt}, SEEN)):
            assert is_last(net.a.weight)
            raise RuntimeError("of the loop")

    with pytest.raises(RuntimeError, match="of the loop"):
        failing()
    for name, one in net.state_dict().items():
        assert torch.equal(one, before[name]) and one.stride() == before[name].stride()


def test_a_view_of_images_is_refused_with_the_cure() -> None:
    net = Net("view")
    opt = adam(net)
    with knobs.turned({"channels_last": True}, TrialScope({"net": net, "opt": opt}, SEEN)):
        with pytest.raises(Refused, match=r"use \.reshape\(\)"):
            train(net, opt, 1)
    assert net.a.weight.is_contiguous()
    train(net, opt, 1)


def test_weights_that_share_their_memory_are_refused() -> None:
    net = Net()
    flat = torch.cat([net.a.weight.detach().flatten(), net.b.weight.detach().flatten()])
    net.a.weight.data = flat[: net.a.weight.numel()].view_as(net.a.weight)
    scope = TrialScope({"net": net, "opt": adam(net)}, SEEN)
    with pytest.raises(Refused, match="share memory with other tensors"), knobs.turned({"channels_last": True}, scope):
        pytest.fail("not reached")
    assert net.b.weight.is_contiguous()


def test_a_model_without_convolutions() -> None:
    scope = TrialScope({"net": nn.Linear(2, 2), "kernel": nn.Parameter(torch.zeros(2, 2, 2, 2))})
    scope.namespace["opt"] = torch.optim.SGD([*scope.namespace["net"].parameters(), scope.namespace["kernel"]])
    with knobs.turned({"channels_last": True}, scope):
        assert scope.namespace["kernel"].is_contiguous()
    assert "changed nothing" in scope.notes[0]


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
def test_a_trial_leaves_everything_bit_for_bit(steps_before: int) -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, steps_before)
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    case = gpu_doctor.case(LOOP, {"net": net, "opt": opt, "data": list(torch.randn(40, 4, 3, 8, 8))})
    effect = case.trial({"channels_last": True}, steps=10, seconds=3, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name]) and value.stride() == weights[name].stride()
    now = opt.state_dict()
    assert now["param_groups"] == state["param_groups"] and now["state"].keys() == state["state"].keys()
    for key, entry in now["state"].items():
        for name, value in entry.items():
            kept = state["state"][key][name]
            assert torch.equal(value, kept) and value.stride() == kept.stride()
