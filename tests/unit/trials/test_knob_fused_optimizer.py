"""The knob fused_optimizer: fused for the run, as it was afterwards, and able to go on training."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import OptimizerFacts
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import TrialScope


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)
    for x in torch.randn(steps, 8, 6):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()


SEEN = Setup(optimizers=("Adam",), optimizer_facts=(OptimizerFacts("Adam", 4, 100, can_fuse=True),))


MAKERS: dict[str, Any] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}


def options(opt: torch.optim.Optimizer) -> list[tuple[Any, ...]]:
    flag = vars(opt).get("_step_supports_amp_scaling", False)
    return [(group["fused"], group["foreach"], flag) for group in opt.param_groups]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("where", ["before", "inside", "hidden"])
def test_turned_put_back_and_going_on(name: str, where: str) -> None:
    torch.manual_seed(0)
    net = nn.Linear(6, 2)
    twin = copy.deepcopy(net)
    opt, plain = (None if where == "inside" else MAKERS[name](net.parameters())), MAKERS[name](twin.parameters())
    if opt is not None:
        train(net, opt, 2)
        train(twin, plain, 2)
    written = options(plain)
    scope = TrialScope({"net": net, "opt": opt} if where == "before" else {})
    with knobs.turned({"fused_optimizer": True}, scope):
        opt = opt or MAKERS[name](net.parameters())
        train(net, opt, 3)
        assert [group["fused"] for group in opt.param_groups] == [True]
    assert options(opt) == written and scope.notes == []
    train(twin, plain, 3)
    train(net, opt, 2)
    train(twin, plain, 2)
    for mine, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)
        for key, value in plain.state[other].items():
            if isinstance(value, torch.Tensor):
                assert opt.state[mine][key].dtype == value.dtype
                assert torch.allclose(opt.state[mine][key], value, atol=1e-6), key


def test_a_group_added_and_a_state_loaded_meanwhile_are_fused_too() -> None:
    net, more = nn.Linear(6, 6), nn.Linear(6, 2)
    opt = torch.optim.Adam(net.parameters())
    kept = copy.deepcopy(opt.state_dict())
    with knobs.turned({"fused_optimizer": True}, TrialScope({"opt": opt}, SEEN)):
        opt.load_state_dict(kept)
        train(net, opt, 1)
        assert [group["fused"] for group in opt.param_groups] == [True]
        opt.add_param_group({"params": list(more.parameters())})
        train(nn.Sequential(net, more), opt, 1)
        assert [group["fused"] for group in opt.param_groups] == [True, True]
    assert [group["fused"] for group in opt.param_groups] == [None, None]


def test_what_cannot_be_fused_is_left_and_said() -> None:
    net, table = nn.Linear(6, 2), nn.Embedding(5, 2, sparse=True)
    rms = torch.optim.RMSprop(net.parameters())
    sparse = torch.optim.SGD(table.parameters(), lr=0.1)
    scope = TrialScope({"rms": rms, "sparse": sparse})
    table(torch.tensor([1])).sum().backward()
    with knobs.turned({"fused_optimizer": True}, scope):
        train(net, rms, 2)
        sparse.step()
    assert len(scope.notes) == 2 and "RMSprop" in scope.notes[0] and "SGD" in scope.notes[1]
    assert options(sparse) == [(None, None, False)]


def test_the_users_own_is_switched_off_and_on_again() -> None:
    net = nn.Linear(6, 2)
    opt = torch.optim.Adam(net.parameters(), fused=True)
    with knobs.turned({"fused_optimizer": False}, TrialScope({"opt": opt})):
        train(net, opt, 2)
        assert options(opt) == [(False, None, False)]
    assert options(opt) == [(True, None, True)]
    train(net, opt, 1)
