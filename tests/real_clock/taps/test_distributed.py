"""The process group is told, by two real gloo processes and by one that is alone; DataParallel's copies are timed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.distributed import SPREADING, tap
from gpu_doctor.recording.setup import World
from tests.support.one_tap import Ticking, batches, model, on, standing
from tests.support.simulated_device import Noted
from tests.support.told_loop import begun

pytestmark = pytest.mark.slow

SEAMS = (*((nn.DataParallel, name) for name in ("replicate", "scatter", "gather")),)


def opened() -> Recorder:
    """A recorder whose loop has begun, on a clock that ticks when read."""
    return begun(Recorder(clock=Ticking()))


def world_of(recorder: Recorder) -> World:
    """What the recording says of the world."""
    world = recorder.setup().world
    assert world is not None
    return world


def step(recorder: Recorder) -> None:
    """One optimizer step."""
    told = Noted(recorder)
    told.step()
    told.stepped()


def test_the_seams_are_restored() -> None:
    before = standing(*SEAMS)
    with on(tap):
        assert not any(now is then for now, then in zip(standing(*SEAMS), before, strict=True))
    assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))


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


def test_data_parallels_copies_are_a_chore(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("replicate", "scatter", "gather"):
        monkeypatch.setattr(nn.DataParallel, name, lambda self, *args: args)
    recorder = opened()
    wrapped = nn.DataParallel(model())
    with on(tap, recorder):
        assert wrapped.replicate(1, 2) == (1, 2)  # type: ignore[arg-type]
        wrapped.gather([])  # type: ignore[call-arg]
        step(recorder)
        step(recorder)
        recorder.fold()
    (chore,) = recorder.so_far().chores or ()
    assert (chore.kind, chore.calls) == (SPREADING, 2)


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
