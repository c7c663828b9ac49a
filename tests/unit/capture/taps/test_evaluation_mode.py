"""Passes that call parts of a trained model in evaluation mode are an evaluation; other work without gradients is none.

On a virtual clock, which moves only where a loop says so: what an evaluation takes is known without ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.patching import active
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from tests.support.one_tap import batches, sgd, standing

MS = 1_000_000
SEAMS = ((nn.Module, "eval"), (nn.Module, "train"), (torch.no_grad, "__enter__"), (torch.inference_mode, "__enter__"))


class Clock:
    """Stands still but for `spend`."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def spend(self, ms: float) -> None:
        self.ns += round(ms * MS)


class Net(nn.Module):
    """An encoder and a head, which the loop may call by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


X = torch.rand(8, 4)
STEPS = 6


def evaluated(after: Callable[[Clock, Net], None], net: nn.Module | None = None, before: Any = None) -> list[float]:
    """Milliseconds of evaluation in each of six steps: a training step of 10 ms, and then `after`."""
    clock, model = Clock(), Net() if net is None else net
    recorder, stood = Recorder(clock=clock), standing(*SEAMS)
    with listening(recorder, {"net": model}, accelerated=False):
        optimizer = sgd(model)
        for _ in range(STEPS):
            if before is not None:
                before(clock, model)
            optimizer.zero_grad()
            out = model(X)
            clock.spend(4)
            out.sum().backward()
            clock.spend(6)
            optimizer.step()
            after(clock, model)  # type: ignore[arg-type]
    assert all(now is then for now, then in zip(standing(*SEAMS), stood, strict=True)) and not active()
    recording = recorder.close()
    assert not recording.notes and recording.steps.count.sum() == STEPS
    return [round(float(one) * 1e3, 6) for one in recording.steps.evaluation_s]


@torch.no_grad()
def neighbours(clock: Clock, net: Net) -> None:
    """As a function of contrastive learning: decorated, and of the encoder alone."""
    net.eval()
    net.body(X)
    clock.spend(20)
    net.train()
    clock.spend(1)  # of the step again


def probe(mode: Any) -> Callable[[Clock, Net], None]:
    def pass_(clock: Clock, net: Net) -> None:
        net.eval()
        with mode():
            net.body(X)
            clock.spend(20)
        net.train()
        clock.spend(1)

    return pass_


@pytest.mark.parametrize("how", [neighbours, probe(torch.no_grad), probe(torch.inference_mode)])
def test_a_pass_of_a_part(how: Callable[[Clock, Net], None]) -> None:
    found = evaluated(how)
    assert sum(found) == STEPS * 20, "each of them, and no more than it"


def test_every_second_step() -> None:
    count = iter(range(STEPS))
    found = evaluated(lambda clock, net: neighbours(clock, net) if next(count) % 2 else None)
    assert sum(found) == STEPS / 2 * 20


def test_a_wrapper_around_what_the_loop_calls_the_model() -> None:
    inner = Net()
    found = evaluated(lambda clock, _: neighbours(clock, inner), nn.Sequential(inner))
    assert sum(found) == STEPS * 20


def test_a_pass_of_the_whole_model_ends_where_it_is_put_back() -> None:
    def validate(clock: Clock, net: Net) -> None:
        net.eval()
        with torch.no_grad():
            net(X)
            clock.spend(20)
        net.train()
        clock.spend(3)  # such as the next batch in the making

    assert sum(evaluated(validate)) == STEPS * 20


def average(clock: Clock, net: Net) -> None:
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.0)
        clock.spend(5)


def save(clock: Clock, net: Net) -> None:
    net.eval()
    clock.spend(5)
    net.train()


def freeze(clock: Clock, net: Net) -> None:
    net.body.eval()
    average(clock, net)
    net.body.train()


def average_later(clock: Clock, net: Net) -> None:
    save(clock, net)
    average(clock, net)


@pytest.mark.parametrize("other", [average, save, freeze, average_later])
def test_what_is_no_evaluation(other: Callable[[Clock, Net], None]) -> None:
    assert sum(evaluated(other)) == 0


def test_a_policy_that_acts_in_training_mode() -> None:
    def act(clock: Clock, net: Net) -> None:
        with torch.no_grad():
            net.body(X)
            clock.spend(5)

    assert sum(evaluated(act)) == 0


def test_a_model_that_is_trained_in_evaluation_mode() -> None:
    """Its batch norm is frozen that way; what records no gradients after the backward is no evaluation."""
    found = evaluated(average, before=lambda clock, net: net.eval())
    assert sum(found) == 0


def test_a_teacher_and_a_moving_average_are_not_trained() -> None:
    teacher = Net()

    def distil(clock: Clock, net: Net) -> None:
        teacher.eval()
        average(clock, net)
        with torch.no_grad():
            teacher.body(X)
            clock.spend(5)

    assert sum(evaluated(distil)) == 0


def test_an_evaluation_that_a_loader_feeds_is_billed_once() -> None:
    def validate(clock: Clock, net: Net) -> None:
        net.eval()
        with torch.no_grad():
            for x, _ in batches(16):
                net.body(x)
                clock.spend(10)
        net.train()

    assert sum(evaluated(validate)) == STEPS * 20


def test_nothing_stands_there_but_while_it_evaluates() -> None:
    net, stood = Net(), standing(*SEAMS[1:])
    seen: list[bool] = []
    with listening(Recorder(), {"net": net}, accelerated=False), contextlib.suppress(ZeroDivisionError):
        optimizer = sgd(net)
        for _ in range(2):
            net(X).sum().backward()
            optimizer.step()
        seen.append(standing(*SEAMS[1:]) == stood)
        net.eval()
        seen.append(standing(*SEAMS[1:]) == stood)
        net.train()
        seen.append(standing(*SEAMS[1:]) == stood)
        net.eval()
        raise ZeroDivisionError
    assert seen == [True, False, True]
    assert standing(*SEAMS[1:]) == stood
