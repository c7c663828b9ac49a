"""Parameters with gradients that nobody steps are told from all others by what happens in the first steps."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.unused_gradients import Unstepped, spared
from gpu_doctor.recording.setup import ModelFacts


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False))


def sgd(*parts: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.01)


def found(loop: Any, **namespace: Any) -> ModelFacts:
    """What is told of the models that a loop trains."""
    recorder = Recorder()
    with listening(recorder, namespace, accelerated=False):
        loop(**namespace)
    facts = recorder.close().setup.model
    assert facts is not None
    return facts


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 8, **_: Any) -> None:
    for _step in range(steps):
        optimizer.zero_grad()
        model(torch.rand(4, 8)).sum().backward()
        optimizer.step()


def test_a_backbone_that_was_left_out_of_the_optimizer() -> None:
    model = net()
    facts = found(train, model=model, optimizer=sgd(model[2]))
    assert (facts.unstepped, facts.unstepped_place) == (128, "0.weight")
    assert facts.spared_shares == pytest.approx((256 / 288, 256 / 288))


def test_four_steps_are_enough() -> None:
    model = net()
    assert found(train, model=model, optimizer=sgd(model[2]), steps=4).unstepped == 128


def test_an_error_while_looking_does_not_reach_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Unstepped) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Unstepped, "stepped", failing)
    recorder, model = Recorder(), net()
    with listening(recorder, {"model": model}, accelerated=False):
        train(model, sgd(model[2]))
    assert len(recorder.close().steps) == 8
    assert [one for one in recorder.notes if "no such thing" in one] == recorder.notes != []


def test_what_lies_behind_a_trained_layer_needs_its_inputs_gradient() -> None:
    model = net()
    assert found(train, model=model, optimizer=sgd(model[0])).spared_shares == pytest.approx((80 / 288, 80 / 288))


def test_a_model_that_is_trained_or_frozen() -> None:
    model = net()
    assert found(train, model=model, optimizer=sgd(model)).unstepped == 0
    model[:2].requires_grad_(False)  # type: ignore[index]
    assert found(train, model=model, optimizer=sgd(model[2])).unstepped == 0


def test_a_backbone_of_its_own() -> None:
    def loop(backbone: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        train(nn.Sequential(backbone, head), optimizer)

    backbone, head = nn.Sequential(nn.Linear(8, 8, bias=False)), nn.Linear(8, 2, bias=False)
    facts = found(loop, backbone=backbone, head=head, optimizer=sgd(head))
    assert facts.unstepped == 64
    assert facts.spared_shares == pytest.approx((64 / 160, 128 / 160))  # before the head or behind it: not known


def test_gradients_of_an_earlier_cell_are_no_news() -> None:
    old, model = net(), net()
    old(torch.rand(4, 8)).sum().backward()
    assert found(train, model=model, optimizer=sgd(model), old=old).unstepped == 0


def test_two_optimizers_own_their_models() -> None:
    def gan(maker: nn.Module, critic: nn.Module, one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
        for _step in range(8):
            for optimizer in (one, other):
                optimizer.zero_grad()
                critic(maker(torch.rand(4, 8))).sum().backward()
                optimizer.step()

    maker, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    assert found(gan, maker=maker, critic=critic, one=sgd(critic), other=sgd(maker)).unstepped == 0


def test_an_optimizer_that_steps_seldom_owns_its_parameters_too() -> None:
    def seldom(model: nn.Sequential, optimizer: torch.optim.Optimizer, later: torch.optim.Optimizer) -> None:
        train(model, optimizer)
        later.step()

    model = net()
    assert found(seldom, model=model, optimizer=sgd(model[2]), later=sgd(model[:2])).unstepped == 0  # type: ignore[index]


def test_a_run_of_three_steps_is_not_judged() -> None:
    model = net()
    assert (
        found(lambda model, optimizer: train(model, optimizer, 3), model=model, optimizer=sgd(model[2])).unstepped
        is None
    )


def test_nothing_of_the_model_is_held_when_a_short_run_is_over() -> None:
    model = net()
    kept = weakref.ref(model[0].weight)
    recorder, namespace = Recorder(), {"model": model}
    with listening(recorder, namespace, accelerated=False):
        train(model, sgd(model[2]), 2)
    namespace.clear()
    del model
    gc.collect()
    assert kept() is None and recorder.facts["model"] is not None


def test_tables_make_no_products() -> None:
    model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 2, bias=False))
    table, head = model[0].weight, model[1].weight
    assert spared([model], {id(head)}, [table])["spared_shares"] == (0.0, 0.0)  # type: ignore[list-item]
