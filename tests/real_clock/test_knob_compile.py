"""The knob compile: the forward goes through torch.compile for the run, and nothing compiled is left afterwards."""

from __future__ import annotations

import copy
import dataclasses
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import ModelFacts
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs import compiler
from gpu_doctor.trials.knobs.compile import KNOB
from gpu_doctor.trials.knobs.knob import Refused, TrialScope

SEEN = Setup(optimizers=("SGD",), model=ModelFacts())
needs_compiler = pytest.mark.skipif(
    bool(compiler.unsupported("cpu")), reason="torch.compile is not supported on this machine"
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))  # type: ignore[no-any-return]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every graph that is compiled; inductor's seconds are saved."""
    compiled: list[Any] = []
    real: Callable[..., Any] = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend=backend))
    return compiled


def train(net: nn.Module, opt: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)
    for x in torch.randn(steps, 4, 8):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()


@pytest.mark.parametrize("where", ["before", "inside", "hidden"])
def test_turned_for_models_made_before_and_inside(where: str, graphs: list[Any]) -> None:
    net = Net() if where != "inside" else None
    opt = torch.optim.SGD(net.parameters(), lr=0.1) if net is not None else None
    scope = TrialScope({"net": net, "opt": opt} if where == "before" else {})
    with knobs.turned({"compile": True}, scope):
        net = net or Net()
        opt = opt or torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, opt, 3)
        twin = copy.deepcopy(net)
        assert len(graphs) == 1
        assert torch.equal(twin(torch.ones(1, 8)), net.b(torch.relu(net.a(torch.ones(1, 8)))))
        assert len(graphs) == 1  # a copy is no trained model
    assert vars(net).get("_compiled_call_impl") is None
    assert "seconds to minutes" in scope.notes[-1]
    train(net, opt, 2)
    assert len(graphs) == 1


def test_put_back_when_the_loop_raised(graphs: list[Any]) -> None:
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def failing() -> None:
        with knobs.turned({"compile": True}, TrialScope({"net": net, "opt": opt}, SEEN)):
            train(net, opt, 1)
            raise RuntimeError("of the loop")

    with pytest.raises(RuntimeError, match="of the loop"):
        failing()
    assert len(graphs) == 1
    train(net, opt, 1)


def test_what_the_user_compiled_before_stays_compiled(graphs: list[Any]) -> None:
    torch._dynamo.reset()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return x.pow(2).mean()

    own = torch.compile(loss)
    own(torch.ones(3))
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with knobs.turned({"compile": True}, TrialScope({"net": net, "opt": opt}, SEEN)):
        train(net, opt, 2)
    assert len(graphs) == 2
    own(torch.ones(3))
    assert len(graphs) == 2
    torch.compile(net)(torch.ones(4, 8))  # and ours is forgotten
    assert len(graphs) == 3
    torch._dynamo.reset()


def test_what_the_compiler_cannot_do_is_a_refusal_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend=backend))
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with knobs.turned({"compile": True}, TrialScope({"net": net, "opt": opt}, SEEN)):
        with pytest.raises(Refused, match="could not compile Net"):
            train(net, opt, 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.compile(Net(), backend="eager"), "compiles the model itself"),
        (lambda: nn.Sequential(torch.jit.script(nn.Linear(8, 2))), "scripted parts"),
        (lambda: nn.DataParallel(Net()), "by hand before"),
    ],
)
def test_models_that_are_refused_before_anything_is_changed(make: Callable[[], nn.Module], reason: str) -> None:
    net = make()
    scope = TrialScope({"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)})
    with pytest.raises(Refused, match=reason), knobs.turned({"compile": True}, scope):
        pytest.fail("not reached")


def test_a_model_whose_call_or_forward_is_no_longer_its_class() -> None:
    net, patched = Net(), Net()
    net.compile(backend="eager")
    own = vars(net)["_compiled_call_impl"]
    patched.forward = lambda x: x  # type: ignore[method-assign]
    for one, reason in ((net, "compiles the model itself"), (patched, "Other code replaced")):
        scope = TrialScope({"net": one, "opt": torch.optim.SGD(one.parameters(), lr=0.1)})
        with pytest.raises(Refused, match=reason), knobs.turned({"compile": True}, scope):
            pytest.fail("not reached")
    assert vars(net)["_compiled_call_impl"] is own


def test_refused_without_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.unsupported.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in KNOB.reason(True, SEEN)
    compiler.unsupported.cache_clear()
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    assert "Triton" in KNOB.reason(True, dataclasses.replace(SEEN, device="cuda:0"))
    compiler.unsupported.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    assert "needs torch 2.6" in KNOB.reason(True, SEEN)
    compiler.unsupported.cache_clear()
    assert "not on mps" in KNOB.reason(True, dataclasses.replace(SEEN, device="mps"))


def test_refusals_found_and_code() -> None:
    assert KNOB.found(SEEN) is False and KNOB.found(Setup()) is None
    own = dataclasses.replace(SEEN, model=ModelFacts(compiled=True))
    assert KNOB.found(own) is True and "itself" in KNOB.reason(False, own) and KNOB.reason(True, own) == ""
    wrapped = dataclasses.replace(SEEN, model=ModelFacts(wrapper="DistributedDataParallel"))
    assert "by hand before" in KNOB.reason(True, wrapped)
    assert "No torch optimizer" in KNOB.reason(True, Setup(torch_version="2"))
    assert "seconds to minutes" in KNOB.choices(SEEN)[1].label
    assert KNOB.code(True, SEEN).startswith("model.compile()")


DEFINITION = """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))
"""
LOOP = """
for x in data:
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""


@needs_compiler
def test_a_trial_with_inductor_leaves_everything_bit_for_bit(capfd: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "__main__"}
    exec(DEFINITION, space)  # as in a notebook: the model's globals are the cell's namespace
    net = space["net"] = space["Small"]()
    opt = space["opt"] = torch.optim.Adam(net.parameters())
    space["data"] = list(torch.randn(60, 4, 8))
    weights, names = copy.deepcopy(net.state_dict()), set(space)
    case = gpu_doctor.case(LOOP, space)
    effect = case.trial({"compile": True}, steps=20, seconds=60, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    candidate = case.trials[-1][1]
    assert candidate.steps.forward_s[-5:].sum() > 0  # the taps have heard the compiled forward
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert dict(opt.state) == {} and set(space) == names
    torch.compile(net, backend="eager")(space["data"][0])  # no cached code that looks for helpers that are gone
    assert "KeyError" not in capfd.readouterr().err
