"""Loops that launch a CUDA graph of their own: each launch is a step, and what is marked stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from gpu_doctor.recording.steps import INFERENCE, TRAINING
from tests.support.device_loops import WIDTH, World, our_shares, true_shares
from tests.support.simulated_cuda import SimulatedCuda

STEPS = 40


@pytest.fixture
def world() -> Iterator[World]:
    """A device, a model and batches that come late."""
    with SimulatedCuda() as cuda:
        yield World(cuda, fetch_ms=20.0)


class Captured:
    """A step, or a forward, that was captured after a warm-up."""

    def __init__(self, world: World, learns: bool = True) -> None:
        self.static = torch.zeros(8, WIDTH, device="cuda")
        self.graph: Any = torch.cuda.CUDAGraph()

        def work() -> None:
            if learns:
                world.optimizer.zero_grad()
                world.learn(self.static)
                world.optimizer.step()
            else:
                world.net(self.static)

        for _ in range(3):
            work()
        with torch.cuda.graph(self.graph):
            work()

    def launch(self, world: World, batches: int = STEPS) -> None:
        """A launch a batch."""
        for x in world.loader(batches):
            self.static.copy_(x)
            self.graph.replay()


def heard(world: World, loop: Callable[[], object]) -> Recording:
    """What the taps hear of it."""
    recorder = world.device.recorder()
    world.device.asked.clear()
    with listening(recorder, {"world": world}, accelerated=True):
        loop()
    world.device.synchronize()
    recording = recorder.close()
    assert not recording.notes
    return recording


def test_a_graph_that_is_captured_and_launched_in_one_cell_is_a_step_a_launch(world: World) -> None:
    recording = heard(world, lambda: Captured(world).launch(world))
    assert len(recording.steps) == 3 + 1 + STEPS  # the warm-up, and the capture
    assert (recording.steps.kind == TRAINING).all()
    assert recording.steps.device_steps.sum() >= STEPS
    assert our_shares(recording) == pytest.approx(true_shares(world.device), abs=0.02)


def test_a_graph_of_an_earlier_cell_is_heard_and_its_device_is_the_gpu(world: World) -> None:
    captured = Captured(world)
    recording = heard(world, lambda: captured.launch(world))
    assert recording.setup.device == "cuda:0" and recording.setup.on_gpu
    assert len(recording.steps) == STEPS and (recording.steps.kind == TRAINING).all()
    assert our_shares(recording) == pytest.approx(true_shares(world.device), abs=0.02)


def test_a_long_run_of_launches_keeps_few_events_and_few_spans(world: World) -> None:
    captured = Captured(world)
    world.fetch_ms = 0.2
    recorder = world.device.recorder()
    with listening(recorder, {"world": world}, accelerated=True):
        captured.launch(world, 1500)
        assert len(recorder.step_clock.open.spans) < 10
    assert world.cuda.events < 500
    assert recorder.close().steps.device_steps.sum() < 1500, "as other steps, not all are marked"


@pytest.mark.parametrize("earlier", [False, True])
def test_a_graph_without_a_step_of_an_optimizer_predicts(world: World, earlier: bool) -> None:
    with torch.no_grad():
        captured = Captured(world, learns=False) if earlier else None
        recording = heard(world, lambda: (captured or Captured(world, learns=False)).launch(world))
    assert (recording.steps.kind == INFERENCE).all() and recording.steps.count.sum() >= STEPS - 1


def test_a_graph_within_a_module_is_a_part_of_its_forward(world: World) -> None:
    inner = Captured(world, learns=False)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, device="cuda"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner.graph.replay()
            return x[:, :4] * self.weight

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loop() -> None:
        for x in world.loader(20):
            optimizer.zero_grad()
            net(x.to("cuda")).mean().backward()
            optimizer.step()

    recording = heard(world, loop)
    assert len(recording.steps) == 20
    assert recording.steps.forward_s.sum() > 0
