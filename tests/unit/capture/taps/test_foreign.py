"""Optimizers that are none of torch's are heard as torch's are: in long loops, after an error, imported late."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording.steps import TRAINING
from tests.support.one_tap import batches, model


class Optimizer:
    """As fastai's own: no base class, parameters in lists, and the groups a property."""

    def __init__(self, parameters: Any) -> None:
        self.param_lists = [list(parameters)]
        self.steps = 0
        self.fails = False

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Made anew whenever they are asked for."""
        return [{"params": one, "lr": 0.01} for one in self.param_lists]

    def step(self) -> None:
        """Plain gradient descent."""
        self.steps += 1
        if self.fails:
            raise ValueError("user's")
        for p in self.param_lists[0]:
            p.data.add_(p.grad, alpha=-0.01)

    def zero_grad(self) -> None:
        """Without a torch optimizer's hooks."""
        for p in self.param_lists[0]:
            p.grad = None


class Other(Optimizer):
    """A subclass whose step adds to the class' own."""

    def step(self) -> None:
        """As it is."""
        super().step()


@pytest.fixture
def library() -> Iterator[ModuleType]:
    """A module of the name; not imported yet."""
    made = ModuleType("fastai.optimizer")
    made.Optimizer = Optimizer  # type: ignore[attr-defined]
    before = sys.modules.pop(made.__name__, None)
    yield made
    sys.modules.pop(made.__name__, None)
    if before is not None:
        sys.modules[made.__name__] = before


@pytest.fixture
def imported(library: ModuleType) -> ModuleType:
    """It, imported."""
    sys.modules[library.__name__] = library
    return library


def learn(net: Any, optimizer: Any, x: torch.Tensor) -> None:
    """One step."""
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [Optimizer, Other])
def test_steps_evaluation_and_roles_are_told(imported: ModuleType, kind: type[Optimizer]) -> None:
    net, recorder = model(), Recorder()
    optimizer, loader, held_out = kind(net.parameters()), batches(40), batches(16)
    with listening(recorder, {"net": net}, accelerated=False):
        for _ in range(2):
            for x, _y in loader:
                learn(net, optimizer, x)
            net.eval()
            with torch.no_grad():
                for x, _y in held_out:
                    net(x)
            net.train()
    recording = recorder.close()
    steps = recording.steps
    assert not recording.notes
    assert steps.kind.tolist() == [TRAINING] * optimizer.steps == [TRAINING] * 10
    assert steps.samples.sum() == 80
    assert (steps.optimizer_s > 0).all() and (steps.forward_s > 0).all()
    assert (steps.evaluation_s > 0).sum() == 2
    assert sorted((one.role, one.dataset_len) for one in recording.setup.loaders) == [
        ("evaluation", 16),
        ("training", 40),
    ]
    assert recording.setup.parameters == sum(p.numel() for p in net.parameters())
    assert recording.setup.optimizers == ()  # no knob that looks for torch's would find it


def test_one_that_is_imported_in_the_loop_is_heard(library: ModuleType) -> None:
    net, recorder = model(), Recorder()
    with listening(recorder, {"net": net}, accelerated=False):
        sys.modules[library.__name__] = library
        optimizer = Optimizer(net.parameters())
        for x, _y in batches(40):
            learn(net, optimizer, x)
    assert (recorder.close().steps.optimizer_s > 0).sum() == 5


def test_a_step_that_raises_is_the_users_own_and_the_next_is_heard(imported: ModuleType) -> None:
    net, recorder = model(), Recorder()
    optimizer = Optimizer(net.parameters())
    with listening(recorder, {"net": net}, accelerated=False):
        for i, (x, _y) in enumerate(batches(40)):
            optimizer.fails = i == 2
            with pytest.raises(ValueError, match="user's") if optimizer.fails else nullcontext():
                learn(net, optimizer, x)
    assert recorder.close().steps.count.sum() == 4  # the batch of the step that raised goes into the next one


def test_long_loops_are_counted(imported: ModuleType) -> None:
    net, recorder = model(), Recorder()
    optimizer = Optimizer(net.parameters())
    with listening(recorder, {"net": net}, accelerated=False):
        for _ in range(8):
            for x, _y in batches(8 * 100):
                learn(net, optimizer, x)
    steps = recorder.close().steps
    assert steps.count.sum() == optimizer.steps == 800
    assert steps.samples.sum() == 6400
    assert (steps.optimizer_s > 0).all()
