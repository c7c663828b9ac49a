"""The process group is told, by two real gloo processes and by one that is alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.environment import tap
from gpu_doctor.recording.setup import World
from tests.support.one_tap import Ticking, batches, model, on
from tests.support.told_loop import begun

pytestmark = pytest.mark.slow


def opened() -> Recorder:
    """A recorder whose loop has begun, on a clock that ticks when read."""
    return begun(Recorder(clock=Ticking()))


def world_of(recorder: Recorder) -> World:
    """What the recording says of the world."""
    world = recorder.setup().world
    assert world is not None
    return world


def test_a_process_alone_says_so() -> None:
    recorder = opened()
    with on(tap, recorder) as scope:
        for hear in scope.optimized:
            hear(torch.optim.SGD(model().parameters(), 0.1))
    world = world_of(recorder)
    assert (world.world_size, world.rank, world.local_size) == (1, 0, 1)
    assert world.shm_free_bytes > 0 or world.shm_free_bytes != world.shm_free_bytes
    assert world.oom_kills == 0.0 or world.oom_kills != world.oom_kills
    assert recorder.notes == []


def test_nothing_of_the_users_is_held_after_the_run() -> None:
    recorder = opened()
    with on(tap, recorder, namespace={"loader": batches()}):
        pass
    assert isinstance(recorder.facts["world"], World)


def ranks(scene: str) -> list[dict[str, Any]]:
    """What each rank of a real group of two said, by rank."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ranks_apart", scene], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(said, key=lambda one: int(one["rank"]))


@pytest.mark.parametrize("scene", ["plain", "ends-inside"])
def test_each_rank_knows_its_group(scene: str) -> None:
    both = ranks(scene)
    assert [one["rank"] for one in both] == [0, 1]
    for one in both:
        assert (one["size"], one["local"], one["wrapper"], one["notes"]) == (2, 2, "DistributedDataParallel", [])
        assert one["steps"] == 30 and one["chores"] == []
