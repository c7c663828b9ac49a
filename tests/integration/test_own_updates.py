"""Loops that change their parameters themselves: `loss.backward()`, then `p.data -= lr * p.grad`, no optimizer."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.recording import PHASES, Recording
from gpu_doctor.recording.steps import INFERENCE, TRAINING
from gpu_doctor.trials.rounds import MOST_TIMES
from tests.support.loop_parts import BATCH, OTHER_S, Net, Truth, backed, loss_of, nap, outside
from tests.support.timed_loops import get_batch

STEPS = 14


def recorded(loop: object, **names: object) -> Recording:
    """A run of a loop whose names are known before it."""
    space = {"loop": loop, **names}
    return gpu_doctor.case("loop()", space).run()


@pytest.mark.parametrize("clears", [True, False], ids=["zero_grad", "no zero_grad"])
def test_a_step_is_counted_and_timed(clears: bool) -> None:
    """A step ends where the gradients are cleared, else at the next forward: what is drawn for it lies before that."""
    model, t = Net(), Truth()

    def loop() -> None:
        x, y = get_batch(Truth())
        t.start()
        for i in range(STEPS):
            if i:
                if clears:
                    model.zero_grad()
                    t.lap("optimizer")
                x, y = get_batch(t)
            backed(t, model, x, y)
            if i == STEPS - 1:
                t.step(BATCH)  # the update after the last backward shows in nothing: the step ends with its backward
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad  # type: ignore[misc, operator]
                    if not clears:
                        p.grad = None
            nap(OTHER_S)
            t.lap("other")
            if i < STEPS - 1:
                t.step(BATCH)
        t.end()

    recording = recorded(loop, model=model)
    steps = recording.steps
    assert not recording.notes
    assert (steps.count.sum(), steps.samples.sum()) == (STEPS, STEPS * BATCH)
    assert set(steps.kind) == {TRAINING}
    assert "Net" in recording.setup.models
    assert outside(t, recording) == {}


def test_without_any_module_a_step_is_a_backward() -> None:
    weight = torch.zeros(4, 2, requires_grad=True)

    def loop() -> None:
        for _ in range(STEPS):
            x, y = get_batch(Truth())
            loss = loss_of(x @ weight, y)
            weight.grad = None
            loss.backward()
            weight.data -= 0.1 * weight.grad  # type: ignore[operator]

    steps = recorded(loop, weight=weight).steps
    assert steps.count.sum() == STEPS
    assert np.isnan(steps.samples).all()


def test_several_losses_between_two_clearings_are_one_step_and_an_evaluation_is_none() -> None:
    model = nn.Linear(4, 2)

    def loop() -> None:
        for i in range(STEPS):
            model.zero_grad()
            for _ in range(3):
                model(torch.rand(BATCH, 4)).sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad  # type: ignore[misc, operator]
            if i % 5 == 4:
                model.eval()
                with torch.no_grad():
                    model(torch.rand(64, 4))
                    time.sleep(0.01)
                    model(torch.rand(64, 4))
                model.train()

    steps = recorded(loop, model=model).steps
    assert steps.count.sum() == STEPS
    assert (steps.evaluation_s > 0.009).sum() == 2


SAME = ("sharpness-aware", "both halves of a judge", "checkpointed")


@pytest.mark.parametrize("way", SAME)
def test_samples_of_a_step_without_a_loader_are_counted_once(way: str) -> None:
    """More forwards and backwards than one do not make more samples where the rows are the same or another model's."""
    model, maker = nn.Linear(4, 2), nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loop() -> None:
        for _ in range(STEPS):
            x = torch.rand(BATCH, 4, requires_grad=True)
            optimizer.zero_grad()
            if way == "checkpointed":
                checkpoint(model, x, use_reentrant=False).sum().backward()
            else:
                model(x).sum().backward()
            if way == "sharpness-aware":
                optimizer.zero_grad()
                model(x).sum().backward()
            elif way == "both halves of a judge":
                made = maker(torch.rand(BATCH, 3))
                model(made.detach()).sum().backward()
            optimizer.step()

    steps = recorded(loop, model=model, maker=maker, optimizer=optimizer).steps
    assert steps.samples.tolist() == [BATCH] * STEPS


EPOCHS, HELD_OUT, ITEM_S = 4, 5, 1e-3


@pytest.mark.parametrize("batches", [6, 30], ids=["held back to the end", "known on the way"])
@pytest.mark.parametrize("way", ["no_grad", "eval alone", "unheard", "torch.func", "autograd.grad"])
def test_an_evaluation_of_a_loop_without_an_optimizer_is_none_of_its_steps(way: str, batches: int) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    x, y = torch.randn(4 * batches, 8), torch.zeros(4 * batches, dtype=torch.int64)
    train = DataLoader(TensorDataset(x, y), batch_size=4, drop_last=True)
    held_out = DataLoader(TensorDataset(x[: 4 * HELD_OUT], y[: 4 * HELD_OUT]), batch_size=4)
    around_s = 0.0

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    def learn(x: torch.Tensor, y: torch.Tensor) -> None:
        parameters = dict(model.named_parameters())
        if way == "torch.func":
            gradients = list(torch.func.grad(loss)(parameters, x, y).values())  # type: ignore[arg-type]
        elif way == "autograd.grad":
            gradients = list(torch.autograd.grad(loss(parameters, x, y), list(parameters.values())))  # type: ignore[arg-type]
        else:
            loss(parameters, x, y).backward()  # type: ignore[arg-type]
            gradients = [p.grad for p in parameters.values() if p.grad is not None]
        with torch.no_grad():
            for p, gradient in zip(parameters.values(), gradients, strict=True):
                p -= 0.01 * gradient  # type: ignore[misc]
                p.grad = None

    def loop() -> None:
        nonlocal around_s
        learned_at = 0.0
        for epoch in range(EPOCHS):
            model.train()
            for i, (x, y) in enumerate(train):
                now = time.perf_counter()
                if epoch and not i:
                    around_s += now - learned_at
                learned_at = now
                learn(x, y)
            model.eval()
            with torch.set_grad_enabled(way == "eval alone"):
                for x, _ in held_out:
                    time.sleep(ITEM_S)
                    if way == "unheard":
                        _ = x @ model[0].weight.T
                    else:
                        model(x)
        around_s += time.perf_counter() - learned_at

    recording = recorded(loop, model=model)
    steps = recording.steps
    assert set(steps.kind) == {TRAINING}
    assert steps.count.sum() == steps.batches.sum() == EPOCHS * batches
    assert steps.samples.sum() == EPOCHS * batches * 4
    assert set(steps.epoch) == set(range(EPOCHS))
    # All that is slept is an evaluation's, and nothing else lies between a batch learned and the next one.
    assert EPOCHS * HELD_OUT * ITEM_S <= steps.evaluation_s.sum() <= around_s
    assert steps.wall_s.sum() == pytest.approx(
        sum(np.nansum(getattr(steps, f"{name}_s")) for name in (*PHASES, "other", "ours")), rel=0.01
    )
    assert [one.role for one in recording.setup.loaders] == ["training", "evaluation"]


def test_gradients_of_some_batches_make_no_evaluation_of_the_others() -> None:
    """Saliency for every tenth batch of an export: all batches are its steps, held back or not."""
    model = nn.Linear(8, 2).eval()
    data = DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4)

    def loop() -> None:
        for i, (x,) in enumerate(data):
            if i % 10 == 0:
                model(x.requires_grad_(True)).sum().backward()
                model.zero_grad()
            else:
                with torch.no_grad():
                    model(x)

    steps = recorded(loop, model=model).steps
    assert (steps.count.sum(), steps.samples.sum()) == (100, 400)
    assert not steps.evaluation_s.any()


def test_a_gradient_to_what_has_no_shape_goes_on() -> None:
    def loop() -> None:
        for _ in range(3):
            nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
            torch.autograd.grad(torch.nested.to_padded_tensor(nested, 0.0).sum(), nested)

    assert recorded(loop, loader=DataLoader(torch.zeros(4))).outcome == "completed"  # type: ignore[arg-type]


def test_a_program_that_learns_from_nothing_has_no_evaluation() -> None:
    """Saliency: a backward to the pixels of some batches, and predictions of others."""
    model = nn.Linear(8, 2)
    data = DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=4)

    def loop() -> None:
        model.eval()
        for (x,) in data:
            x.requires_grad_(True)
            torch.autograd.grad(model(x).sum(), x)
        with torch.no_grad():
            for (x,) in data:
                model(x)

    steps = recorded(loop, model=model).steps
    assert steps.count.sum() == 40 and set(steps.kind) == {INFERENCE} and not steps.evaluation_s.any()


def test_one_backward_is_no_loop() -> None:
    model = nn.Linear(4, 2)
    recording = recorded(lambda: model(torch.rand(BATCH, 4)).sum().backward(), model=model)
    assert recording.steps.count.sum() == 0


def test_a_budget_ends_such_a_loop_and_a_trial_puts_the_parameters_back() -> None:
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()
    done: list[int] = []

    def loop() -> None:
        for i in range(10_000):
            model.zero_grad()
            model(torch.rand(BATCH, 4)).sum().backward()
            done.append(i)
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad  # type: ignore[misc, operator]

    case = gpu_doctor.case(loop, {"model": model})
    effect = case.trial({"threads": 1}, steps=20, seconds=30, pairs=1)
    assert effect.outcome == "budget-reached", effect
    assert 20 <= case.trials[-1][0].steps.count.sum() <= 20 * MOST_TIMES, "more where twenty are too short to be judged"
    assert torch.equal(model.weight, before)
