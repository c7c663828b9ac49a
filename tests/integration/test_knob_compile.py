"""The knob compile: a trial compiles the trained model by a line of the cell, and leaves nothing compiled."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import ModelFacts
from gpu_doctor.trials.knobs import compile as compiling
from gpu_doctor.trials.knobs.compile import KNOB

SEEN = Setup(optimizers=("SGD",), model=ModelFacts())
needs_compiler = pytest.mark.skipif(bool(compiling.unsupported("cpu")), reason="torch.compile needs a C++ compiler")
EARLIER = """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

net = Small()
opt = torch.optim.Adam(net.parameters())
data = list(torch.randn(60, 4, 8))
"""
LOOP = """
for x in data:
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
"""


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every graph that is compiled; inductor's seconds are saved."""
    compiled: list[Any] = []
    real: Callable[..., Any] = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, **how: real(function, **{**how, "backend": backend}))
    torch._dynamo.reset()
    yield compiled
    torch._dynamo.reset()


def made(loop: str = LOOP) -> gpu_doctor.Case:
    space: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "__main__"}
    exec(EARLIER, space)  # as in a notebook: the model's globals are the cell's namespace
    return gpu_doctor.case(loop, space)


def test_a_trial_compiles_and_leaves_the_model_as_it_was(graphs: list[Any]) -> None:
    case = made()
    net, opt, names = case.namespace["net"], case.namespace["opt"], set(case.namespace)
    weights = copy.deepcopy(net.state_dict())
    effect = case.trial({"compile": True}, steps=10, seconds=20, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    base, candidate = case.trials[-1]
    assert "net.compile()" in candidate.source and "net.compile()" in case.fix({"compile": True}).cells[0].after
    assert base.setup.model is not None and candidate.setup.model is not None
    assert (base.setup.model.compiled, candidate.setup.model.compiled) == (False, True)
    assert any("seconds to minutes" in note for note in candidate.notes)
    assert graphs and vars(net).get("_compiled_call_impl") is None
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert dict(opt.state) == {} and set(case.namespace) == names
    before = len(graphs)
    net(torch.ones(1, 8))
    assert len(graphs) == before


def test_what_the_user_compiled_before_works_on(graphs: list[Any]) -> None:
    own = torch.compile(lambda x: x.pow(2).mean())
    assert own(torch.ones(3)) == 1.0
    made().trial({"compile": True}, steps=5, seconds=20, pairs=1)
    assert own(torch.ones(3)) == 1.0


def test_an_error_of_the_compiler_is_the_trials_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch, "compile", lambda function, **how: real(function, backend=backend))
    case = made()
    effect = case.trial({"compile": True}, steps=5, seconds=20, pairs=1)
    assert effect.outcome == "failed" and "no such kernel" in effect.reason
    assert vars(case.namespace["net"]).get("_compiled_call_impl") is None


def test_refused_without_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling.unsupported.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in KNOB.reason(True, SEEN)
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert "Triton" in KNOB.reason(True, dataclasses.replace(SEEN, device="cuda:0"))
    assert "not on mps" in KNOB.reason(True, dataclasses.replace(SEEN, device="mps"))
    compiling.unsupported.cache_clear()


@needs_compiler
def test_a_trial_with_inductor_leaves_no_code_that_looks_for_helpers(capfd: pytest.CaptureFixture[str]) -> None:
    case = made()
    effect = case.trial({"compile": True}, steps=20, seconds=60, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert case.trials[-1][1].steps.forward_s[-5:].sum() > 0  # the taps have heard the compiled forward
    net, data = case.namespace["net"], case.namespace["data"]
    torch.compile(net, backend="eager")(data[0])
    assert "KeyError" not in capfd.readouterr().err
