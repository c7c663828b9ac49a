"""Loops on a simulated GPU whose shares are hard to tell, beside the truth of the device's own timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from tests.support.device_loops import BATCH, WARM, WIDTH, Net, Rows, Shares, World, our_shares, shares
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

STEPS = 40


def played(loop: Callable[[World], None], **options: Any) -> tuple[World, Recording]:
    """Runs a loop under the taps."""
    with SimulatedCuda() as cuda:
        world = World(cuda, **{"fetch_ms": 0.5, **options})
        recorder = cuda.device.recorder()
        with listening(recorder, {"world": world}, accelerated=True):
            loop(world)
        cuda.device.synchronize()
        recording = recorder.close()
        assert not recording.notes
        return world, recording


def true_shares(device: SimulatedDevice) -> Shares:
    """From an early fetch to the last one."""
    return shares(device, device.asked[WARM], device.asked[-1])


def step(world: World, x: torch.Tensor) -> None:
    """A training step."""
    world.optimizer.zero_grad()
    world.learn(x)
    world.optimizer.step()


def caught_up(recording: Recording) -> float:
    """Part of the device's time in steps during which it kept up with its host."""
    steps = recording.steps.rows(WARM)
    return float(np.nansum(steps.gpu_caught_up_s) / np.nansum(steps.gpu_s))


def test_an_evaluation_after_every_step_is_no_wait_of_the_next_one() -> None:
    def loop(world: World) -> None:
        for x in world.loader(STEPS):
            step(world, x.to("cuda"))
            world.net.eval()
            with torch.no_grad():
                for held_out in world.loader(2):
                    score = world.net(held_out.to("cuda")).mean()
                score.item()
            world.cuda.pending.clear()
            world.net.train()

    _, recording = played(loop)
    # 0.5 ms of 11.3 ms: the device is idle when the next step's batch is asked for.
    assert our_shares(recording).wait == pytest.approx(0.5 / 11.3, abs=0.02)


class OnDevice(Rows):
    """Batches of features, which a model makes on the device."""

    def __init__(self, world: World, batches: int) -> None:
        super().__init__(world, batches)
        self._features = Net(world).to("cuda").eval()

    def __getitem__(self, index: int) -> torch.Tensor:
        x: torch.Tensor = super().__getitem__(index).to("cuda")
        with torch.no_grad():
            self._features(x)
        return x


@pytest.mark.parametrize("fetch_ms", [0.5, 22.0])
def test_a_model_that_makes_the_batches_on_a_busy_device_is_no_wait(fetch_ms: float) -> None:
    def loop(world: World) -> None:
        for x in DataLoader(OnDevice(world, STEPS), batch_size=None):
            step(world, x)

    world, recording = played(loop, fetch_ms=fetch_ms)
    assert our_shares(recording) == pytest.approx(true_shares(world.device), abs=0.02)


def test_a_loader_that_launches_work_on_a_device_that_never_idles_is_no_wait() -> None:
    def loop(world: World) -> None:
        for x in world.loader(300):
            step(world, x.pin_memory().to("cuda", non_blocking=True))

    world, recording = played(loop, after_ms=3.0)
    assert our_shares(recording) == pytest.approx(true_shares(world.device), abs=0.02)


def test_a_launch_bound_loop_whose_stream_is_never_found_empty_is_told() -> None:
    """The batch is made on the device right before the forward, and the optimizer's kernels are long."""

    def loop(world: World) -> None:
        for _ in range(STEPS):
            x = torch.zeros(BATCH, WIDTH, device="cuda")
            world.gpu(0.004, 3)
            step(world, x)

    _, bound = played(loop, kernels=50, kernel_ms=0.005, cost_ms=0.02)
    assert caught_up(bound) > 0.6
    _, busy = played(loop, kernels=50, kernel_ms=0.03, cost_ms=0.02)
    assert caught_up(busy) == 0


def test_work_on_two_streams_at_once_counts_once() -> None:
    def loop(world: World) -> None:
        side = torch.cuda.Stream()
        for x in world.loader(STEPS):
            x = x.to("cuda")
            y = world.net(x)
            with torch.cuda.stream(side):
                z = world.net(x)
            world.optimizer.zero_grad()
            (y + z).mean().backward()
            world.optimizer.step()

    world, recording = played(loop, fetch_ms=30.0)
    steps = recording.steps.rows(WARM).where(recording.steps.rows(WARM).device_steps > 0)
    took_s = 1e-9 * (world.device.asked[-1] - world.device.asked[WARM]) / (STEPS - WARM - 1)
    assert float(np.mean(steps.gpu_s + steps.gpu_gap_s)) == pytest.approx(took_s, rel=0.02)
