"""Outermost modules are found by the names of a namespace, and described in plain values."""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.names import named
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


def test_the_namespace_gives_outermost_modules_that_hold_parameters() -> None:
    net = Net()
    space = {"body": net.body, "net": net, "loss": nn.MSELoss(), "head": net.body[2], "x": 3}
    assert models.outermost(space, None) == [net]
    assert models.outermost(space, net.parameters()) == [net]


def test_one_level_of_attributes_is_looked_at() -> None:
    net = Net()
    assert models.outermost({"trainer": SimpleNamespace(model=net)}, net.parameters()) == [net]
    assert models.outermost({"nets": [net]}, ()) == [net]


def test_functions_lead_to_what_they_hold() -> None:
    closed, default, keyword, bound, given = (Net() for _ in range(5))

    def step(x: Any, net: nn.Module = default, *, other: nn.Module = keyword) -> Any:
        return closed, net, other, unbound

    class Trainer:
        def __init__(self) -> None:
            self.model = [bound]

        def fit(self) -> None:
            """Trains."""

    partial = functools.partial(print, given)
    space = {"step": step, "fit": Trainer().fit, "partial": partial, "unbound": len, "trainer": Trainer()}
    assert models.outermost(space) == [closed, default, keyword, given, bound]
    unbound = 0


def test_what_no_name_leads_to_is_not_found() -> None:
    net = Net()
    assert models.outermost({"other": nn.Linear(2, 2), "data": [0] * 40 + [net]}, net.parameters()) == []
    assert models.outermost(None, net.parameters()) == []


def test_optimizers_and_loaders_are_found_as_models_are() -> None:
    net = Net()
    net.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # type: ignore[assignment]
    more = torch.optim.Adam(net.parameters())
    loader = DataLoader(TensorDataset(torch.zeros(4)))
    space = {"net": net, "trainer": SimpleNamespace(optimizers=[more], loaders={"train": loader}), "_3": more}
    assert named(space, torch.optim.Optimizer) == [net.optimizer, more]
    assert named(space, DataLoader) == [loader] and named(space, nn.Module) == [net] and named(None, nn.Module) == []


def test_a_box_gives_the_modules_in_it() -> None:
    net, other = Net(), Net()
    box = nn.ModuleDict({"one": net, "more": nn.ModuleList([other])})
    assert models.outermost({"box": box}, None) == [net, other]
    assert models.outermost({"box": box}, net.parameters()) == [net]


def test_a_copy_that_is_not_trained_is_not_taken() -> None:
    net = Net()
    ema = copy.deepcopy(net)
    assert models.outermost({"ema": ema, "net": net}, net.parameters()) == [net]


def test_ipython_history_is_not_searched() -> None:
    assert models.outermost({"_5": Net(), "__": Net()}, None) == []


def test_a_lazy_proxy_is_left_asleep() -> None:
    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:  # type: ignore[override]
            raise AssertionError("woken")

    keep = Proxy()
    net = Net()
    assert models.outermost({"proxy": keep, "net": net}, net.parameters()) == [net]


def test_described() -> None:
    net = Net()
    net.half_head = nn.Linear(2, 1).to(torch.bfloat16)  # type: ignore[assignment]
    net.body.append(net.body[1])
    facts = models.described([net])
    assert facts["dtype"] == "float32"
    assert facts["device"] == "cpu"
    assert facts["parameters"] == 4 * 8 + 8 + 8 * 2 + 2 + 3
    assert facts["parameter_bytes"] == 4 * (4 * 8 + 8 + 8 * 2 + 2) + 2 * 3
    assert facts["layers"] == {"Linear": 3, "ReLU": 1}
    assert facts["models"] == ("Net",)
    assert models.described([net], net.body.parameters())["parameters"] == 58
    assert models.described([])["dtype"] == ""


def test_only_the_users_own_compiling_counts() -> None:
    plain, compiled = nn.Linear(2, 1), nn.Linear(2, 1)
    compiled.compile(backend="eager")
    with listening(Recorder(), {"plain": plain, "compiled": compiled}, accelerated=False):
        assert models.CALL in vars(plain)
        made: list[Any] = [plain, compiled, torch.compile(plain, backend="eager")]
        found = [models.compiles_itself(one) for one in made]
    assert found == [False, True, True]
