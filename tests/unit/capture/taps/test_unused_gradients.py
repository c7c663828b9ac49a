"""Parameters with gradients that no optimizer steps are found by what happens in the first steps."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.unused_gradients import walked
from gpu_doctor.recording.setup import ModelFacts


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False))


def sgd(*parts: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.01)


def found(loop: Any, **namespace: Any) -> ModelFacts:
    """Facts about the models that a loop trains."""
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
    assert 0.6 < facts.spared_share < 1.0, "all but the sum, and the head's weight"


def accumulate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _step in range(6):
        for _ in range(3):
            model(torch.rand(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def skip_every_other_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """As a GradScaler does it after an overflow: that no gradient of it is used says nothing of its kind."""
    for step in range(8):
        optimizer.zero_grad()
        model(torch.rand(4, 8)).sum().backward()
        if step % 2 == 0:
            optimizer.step()


def freeze(model: nn.Sequential) -> torch.optim.Optimizer:
    model[:2].requires_grad_(False)  # type: ignore[index]
    return sgd(model[2])


@pytest.mark.parametrize(
    ("loop", "optimizer", "unstepped"),
    [
        (train, lambda model: torch.optim.Adam(model[2].parameters(), lr=0.01, fused=True), 128),
        (train, lambda model: torch.optim.Adam(model[2].parameters(), lr=0.01, foreach=True), 128),
        (train, lambda model: sgd(nn.Linear(8, 8), model[2]), 128),
        (partial(train, steps=3), lambda model: sgd(model[2]), 128),
        (partial(train, steps=1), lambda model: sgd(model[2]), None),
        (train, sgd, 0),
        (train, freeze, 0),
        (accumulate, sgd, 0),
        (skip_every_other_step, sgd, 0),
    ],
    ids=["fused", "foreach", "unused layer", "three steps", "one step", "all", "frozen", "accumulated", "skipped"],
)
def test_parameters_without_an_optimizer(loop: Any, optimizer: Any, unstepped: int | None) -> None:
    model, old = net(), net()
    old(torch.rand(4, 8)).sum().backward()  # gradients of an earlier cell
    recorder, its = Recorder(), optimizer(model)
    with listening(recorder, {"model": model, "old": old, "optimizer": its}, accelerated=False):
        loop(model, its)
    facts = recorder.close().setup.model
    assert facts is not None and facts.unstepped == unstepped


def test_what_lies_behind_a_trained_layer_needs_its_inputs_gradient() -> None:
    model = net()
    assert 0.2 < found(train, model=model, optimizer=sgd(model[0])).spared_share < 0.6


def test_a_backbone_of_its_own() -> None:
    def loop(backbone: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        train(nn.Sequential(backbone, head), optimizer)

    backbone, head = nn.Sequential(nn.Linear(8, 8, bias=False)), nn.Linear(8, 2, bias=False)
    facts = found(loop, backbone=backbone, head=head, optimizer=sgd(head))
    assert facts.unstepped == 64
    assert 0.3 < facts.spared_share < 0.9


def gan(
    maker: nn.Module, critic: nn.Module, one: Any, other: Any, sick: bool, critics: int = 3, clear: Any = None, **_: Any
) -> None:
    """`sick`: the critic's loss goes through the maker."""
    for _step in range(5):
        for _turn in range(critics):
            made = maker(torch.rand(4, 8))
            one.zero_grad()
            critic(made if sick else made.detach()).sum().backward()
            one.step()
        critic.requires_grad_(False)
        (clear or other.zero_grad)()
        critic(maker(torch.rand(4, 8))).sum().backward()
        other.step()
        critic.requires_grad_(True)


def two() -> dict[str, Any]:
    maker, critic = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), nn.Linear(8, 1)
    return {"maker": maker, "critic": critic, "one": sgd(critic), "other": sgd(maker)}


@pytest.mark.parametrize("by_module", [False, True])
def test_a_critics_loss_that_goes_through_the_maker(by_module: bool) -> None:
    world = two()
    facts = found(gan, **world, sick=True, clear=world["maker"].zero_grad if by_module else None)
    assert facts.unstepped == 2 * 72 and facts.gradients_cleared and facts.unstepped_place == "0.weight"
    assert 0.3 < facts.spared_share < 0.75, "three of four backwards go through the maker for nothing"


def test_a_critic_that_is_given_detached_samples() -> None:
    facts = found(gan, **two(), sick=False)
    assert facts.unstepped == 0 and not facts.gradients_cleared and facts.spared_share == 0.0


def test_gradients_that_two_losses_add_up_are_used() -> None:
    """An encoder with two heads: each has a backward and an optimizer, the encoder's steps by the sum."""

    def loop(body: nn.Module, heads: nn.ModuleList, optimizers: list[torch.optim.Optimizer]) -> None:
        for _step in range(8):
            for one in optimizers:
                one.zero_grad()
            for head in heads:
                head(body(torch.rand(4, 8))).sum().backward()
            for one in optimizers:
                one.step()

    body, heads = nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 2)])
    optimizers = [sgd(body), sgd(heads[0]), sgd(heads[1])]
    assert found(loop, body=body, heads=heads, optimizers=optimizers).unstepped == 0


def test_a_teacher_beside_the_student() -> None:
    """None of the backward through a model of its own is needed."""

    def loop(teacher: nn.Module, student: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _step in range(6):
            x = torch.rand(4, 8)
            loss = (student(x) - teacher(x)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    teacher, student = net(), nn.Linear(8, 2, bias=False)
    facts = found(loop, teacher=teacher, student=student, optimizer=sgd(student))
    assert facts.unstepped == 144 and not facts.gradients_cleared
    assert 0.5 < facts.spared_share < 0.9, "all but the loss and the student"


def test_an_optimizer_that_steps_seldom_owns_its_parameters_too() -> None:
    def seldom(model: nn.Sequential, optimizer: torch.optim.Optimizer, later: torch.optim.Optimizer) -> None:
        train(model, optimizer)
        later.step()

    model = net()
    assert not found(seldom, model=model, optimizer=sgd(model[2]), later=sgd(model[:2])).unstepped  # type: ignore[index]


@pytest.mark.parametrize("sick", [False, True])
def test_owners_are_searched_only_of_a_parameter_without_a_recorded_optimizer(
    sick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[set[int]] = []

    def owners(scope: TapScope) -> set[int]:
        searches.append(set())
        return searches[-1]

    monkeypatch.setattr(TapScope, "owners", owners)
    old, model = net(), net()
    found(gan, **two(), old=old, sick=False, critics=1)
    found(train, model=model, optimizer=sgd(model[2] if sick else model), old=old)
    assert len(searches) == sick


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


def test_what_an_operation_computes_counts_alike_for_each_of_its_inputs() -> None:
    first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False)
    owners = {id(first.weight): 8, id(last.weight): 16}
    walk = walked(last(first(torch.rand(4, 8))).sum(), lambda leaf: owners[id(leaf)])
    # The sum's gradient serves both; the last product makes its weight's and its input's, the first its weight's.
    both, product = frozenset((8, 16)), (2 * 8 + 4 * 8) / 2
    assert dict(walk.serving) == {both: 4 * 2, both - {8}: product, both - {16}: product + 8 * 8}
    assert {owner: len(refs) for owner, refs in walk.leaves.items()} == {8: 1, 16: 1}


def test_of_each_optimizer_the_smallest_gradient_alone_is_held() -> None:
    model = nn.Linear(8, 8)
    walk = walked(model(torch.rand(4, 8)).sum(), lambda leaf: 8)
    (held,) = walk.waiting.values()
    assert held[0]() is model.bias


def test_no_model_of_a_sweep_is_kept_that_steps_once() -> None:
    kept: list[int] = []

    def loop() -> None:
        made: list[weakref.ref[nn.Module]] = []
        for _ in range(6):
            model = net()
            made.append(weakref.ref(model))
            train(model, sgd(model), steps=1)
            del model
            kept.append(sum(ref() is not None for ref in made))

    found(loop)
    assert kept == [0] * 6
