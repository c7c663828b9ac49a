"""Loops that make their model anew (folds, learning rates): each is recorded, and freed when the loop lets go of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.optimizer import tap
from gpu_doctor.capture.taps.parameters import Parameters
from tests.support.one_tap import batches, on

FOLDS = 6


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What only the collector of circles would free stays until a test collects, which goes through its own objects."""
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first of a process imports, whose circles hold the frames around it
    gc.collect()
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


class Called(nn.Module):
    """Its `forward` is called past torch's own call, and no name leads to it: nothing shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def plain() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))


def compiled() -> nn.Module:
    """What stands on the module as its compiled call knows it no more than torch's own would."""
    net = nn.Linear(4, 1)
    weight = net.weight
    net._compiled_call_impl = lambda x: x @ weight.T
    return net


@pytest.mark.parametrize("kind", [plain, compiled, Called])
def test_the_models_of_earlier_folds_are_gone(kind: Any) -> None:
    alive: list[int] = []
    refs: list[weakref.ref[nn.Module]] = []

    def fold() -> None:
        net = kind()
        refs.append(weakref.ref(net))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for x, _ in batches(64):
            optimizer.zero_grad()
            (net.forward(x) if isinstance(net, Called) else net(x)).sum().backward()
            optimizer.step()

    def loop() -> None:
        for _ in range(FOLDS):
            fold()
            alive.append(sum(ref() is not None for ref in refs))

    recording = gpu_doctor.case(loop, {}).run()
    steps = recording.steps
    assert alive == [0] * FOLDS
    assert steps.count.sum() == FOLDS * 8
    timed = (steps.forward_s.reshape(FOLDS, 8)[:, 4:] > 0).all()  # of every fold
    notes = [note for note in recording.notes if note.startswith("No module call was seen")]
    assert (timed, len(notes)) == ((False, 1) if kind is Called else (True, 0))


@pytest.mark.slow
def test_every_optimizer_is_recorded_though_it_has_the_place_of_a_dead_one() -> None:
    kinds: list[str] = []
    with on(tap) as scope:
        scope.optimized.append(lambda optimizer: kinds.append(type(optimizer).__name__))
        weight = torch.zeros(1, requires_grad=True)
        for _ in range(20):
            for kind in (torch.optim.SGD, torch.optim.Adam):
                optimizer = kind([weight], lr=0.1)
                optimizer.step()
                optimizer.step()
                del optimizer
                gc.collect()
    assert kinds == ["SGD", "Adam"] * 20


@pytest.mark.parametrize("count", [3, 60])
def test_a_model_that_the_cell_has_deleted_after_its_predictions_is_described(count: int) -> None:
    namespace: dict[str, Any] = {"net": nn.Linear(4, 1).eval()}

    def loop() -> None:
        with torch.no_grad():
            for x, _ in batches(8 * count):
                namespace["net"](x)
        del namespace["net"]

    recorder = Recorder()
    with listening(recorder, namespace, accelerated=False):
        loop()
    model = recorder.close().setup.model
    assert model is not None and model.device_bytes == {"cpu": 20}


def test_parameters_are_known_for_as_long_as_they_live() -> None:
    known, first, second = Parameters(), torch.zeros(1), torch.zeros(1)
    known.add([first, second, first])
    assert first in known and torch.zeros(1) not in known
    assert [one is other for one, other in zip(known.alive(), (first, second), strict=True)] == [True, True]
    del first
    assert [one is second for one in known.alive()] == [True]
