"""What a GradScaler waits for by itself is a part of the optimizer's step; what the loop reads is a wait."""

from __future__ import annotations

import pytest
import torch

from gpu_doctor.capture.taps import listening
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording
from tests.support.device_loops import World
from tests.support.simulated_cuda import SimulatedCuda


def recorded(reads: bool, python_ms: float = 0.0) -> Recording:
    """A loop with a scaler that works on after its step, and reads the loss or does not."""
    with SimulatedCuda() as cuda:
        world = World(cuda, fetch_ms=0.1)
        scaler, recorder = torch.amp.GradScaler("cuda"), cuda.device.recorder()
        with listening(recorder, {"world": world}, accelerated=True):
            for x in world.loader(40):
                world.optimizer.zero_grad()
                loss = world.learn(x.to("cuda"), scaler.scale)
                scaler.step(world.optimizer)
                scaler.update()
                if reads:
                    loss.item()
                cuda.device.host(python_ms)
        cuda.device.synchronize()
        return recorder.close()


def test_its_own_question_is_no_wait_of_the_loop() -> None:
    recording = recorded(reads=False, python_ms=3.0)
    steps = recording.steps.rows(1)
    assert steps.syncs.sum() == 0 and steps.sync_s.sum() == 0
    assert steps.optimizer_s.sum() > 0.3 * steps.wall_s.sum(), "it waits for the backward there"
    assert "host-sync" not in [one.rule for one in diagnose(recording).findings]


@pytest.mark.parametrize("python_ms", [0.0, 3.0])
def test_a_loss_that_is_read_besides_is_one(python_ms: float) -> None:
    steps = recorded(reads=True, python_ms=python_ms).steps.rows(1)
    assert steps.syncs.tolist() == [1.0] * len(steps)
