"""Outermost modules are found in the namespace or by a scan, and described in plain values."""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.scan import scan
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


def test_a_model_outside_the_namespace_is_found_by_the_scan() -> None:
    net = Net()
    wrapper = nn.Sequential(net)
    assert models.outermost({"other": nn.Linear(2, 2)}, net.parameters()) == [wrapper]
    assert models.outermost(None, net.parameters()) == [wrapper]


def test_a_box_gives_the_modules_in_it() -> None:
    net, other = Net(), Net()
    box = nn.ModuleDict({"one": net, "more": nn.ModuleList([other])})
    assert models.outermost({"box": box}, None) == [net, other]
    assert models.outermost(None, net.parameters()) == [net]


def test_one_scan_serves_all_that_look_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    scans: Any = []
    get_objects = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda generation: scans.append(generation) or get_objects(generation))
    with models.one_scan():
        assert models.outermost(None, net.parameters()) == models.outermost({}, net.parameters()) == [net]
    assert scans == [0, 1, 2]
    assert models.outermost(None, net.parameters()) == [net]
    assert scans == [0, 1, 2] * 2


def test_no_young_object_is_held_while_the_old_ones_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple that another thread is building breaks where a scan holds it: see `scan`."""

    class Kept(list[Any]):
        """A list that can be referred to weakly."""

    handed: list[weakref.ref[Kept]] = []
    get_objects = gc.get_objects

    def handing(generation: int) -> Kept:
        assert not any(ref() for ref in handed)
        handed.append(weakref.ref(given := Kept(get_objects(generation))))
        return given

    monkeypatch.setattr(gc, "get_objects", handing)
    net = Net()
    assert any(one is net for one in scan(nn.Module))
    assert len(handed) == 3 and not any(ref() for ref in handed)


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
    assert models.outermost({"proxy": keep}, net.parameters()) == [net]


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
