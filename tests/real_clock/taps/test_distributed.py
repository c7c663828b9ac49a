"""What goes on between processes is heard: with two real gloo processes, and one seam after the other in this one."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import peers
from gpu_doctor.capture.taps.costly_calls import COLLECT_GARBAGE, book_of
from gpu_doctor.capture.taps.costly_calls import tap as chores
from gpu_doctor.capture.taps.distributed import COLLECTIVES, COMMUNICATION, SPREADING, tap
from gpu_doctor.capture.taps.tap import Tap
from gpu_doctor.recording.setup import World
from tests.support.one_tap import Ticking, batches, model, on, standing
from tests.support.simulated_device import Noted
from tests.support.told_loop import begun

pytestmark = pytest.mark.slow

SEAMS = (
    *((dist, name) for name in (*COLLECTIVES, "destroy_process_group")),
    *((nn.DataParallel, name) for name in ("replicate", "scatter", "gather")),
    (DistributedDataParallel, "no_sync"),
)


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
    assert (world.world_size, world.rank, world.step_s_by_rank, world.replicated, world.unsynced) == (
        1,
        0,
        (),
        False,
        0,
    )
    assert world.reduce_s != world.reduce_s
    assert world.shm_free_bytes > 0 or world.shm_free_bytes != world.shm_free_bytes
    assert world.oom_kills == 0.0 or world.oom_kills != world.oom_kills
    assert recorder.notes == []


def test_nothing_of_the_users_is_held_after_the_run() -> None:
    recorder = opened()
    with on(tap, recorder, namespace={"loader": batches()}):
        pass
    assert isinstance(recorder.facts["world"], World)


def test_a_collective_is_a_chore_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor)
    recorder = opened()
    with on(tap, recorder):
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
            step(recorder)
        dist.all_reduce(torch.ones(1))  # after the last step: none of it
    (chore,) = recorder.close().chores or ()
    assert (chore.kind, chore.calls) == (COMMUNICATION, 3)
    assert "all_reduce" in chore.text


@pytest.mark.parametrize("taps", [(chores, tap), (tap, chores)], ids=["opened before", "opened later"])
def test_chores_of_another_tap_stay_beside_ours(monkeypatch: pytest.MonkeyPatch, taps: tuple[Tap, Tap]) -> None:
    monkeypatch.setattr(dist, "barrier", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    recorder = opened()
    with on(taps[0], recorder), on(taps[1], recorder):
        dist.barrier()
        gc.collect()
        step(recorder)
        step(recorder)
        recorder.fold()
    kinds = [one.kind for one in recorder.so_far().chores or ()]
    assert sorted(kinds) == [COLLECT_GARBAGE, COMMUNICATION]


def test_the_first_steps_collectives_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "barrier", lambda: None)
    recorder = opened()
    with on(tap, recorder) as scope:
        first_ns = book_of(scope).first_ns
        dist.barrier()
        step(recorder)
        step(recorder)
        recorder.fold()
        before = first_ns[COMMUNICATION]
        assert before > 0
        dist.barrier()
        step(recorder)
        step(recorder)
        recorder.fold()
        assert first_ns[COMMUNICATION] == before


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


def test_own_seconds_leave_waiting_out() -> None:
    recorder = Recorder(clock=Ticking())
    told = Noted(begun(recorder))
    for _ in range(12):
        told.learns()
    steps = recorder.close().steps
    own_s = peers.own_step_s(steps, 0.0)
    assert own_s == pytest.approx(float((steps.wall_s - steps.backward_s)[1:].mean()))
    assert peers.own_step_s(steps, 1.0) == 0.0
    assert peers.own_step_s(steps.rows(0, 4), 0.0) is None


def ranks(scene: str) -> list[dict[str, Any]]:
    """What each rank of a real group of two said, by rank."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ranks_apart", scene], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(said, key=lambda one: int(one["rank"]))


def findings(said: dict[str, Any]) -> list[str]:
    """Names of the rules that found something."""
    return [name for name, _, _ in said["findings"]]


LATE_S = 0.014
"""What rank 1 sleeps more, in each of its batches."""
WIDTH = 0.5
"""Half of what separates that from two ranks that are alike."""


@pytest.mark.alone
def test_two_ranks_of_which_one_is_late() -> None:
    both = ranks("straggler")
    assert [one["rank"] for one in both] == [0, 1]
    for one in both:
        assert (one["size"], one["replicated"], one["unsynced"], one["notes"]) == (2, True, 0, [])
        assert one["by_rank"] == both[0]["by_rank"]
        assert one["by_rank"][1] - one["by_rank"][0] == pytest.approx(LATE_S, rel=WIDTH)
        assert findings(one)[0] == "straggler"
        assert one["findings"][0][2].startswith("Rank 1 is late")
        assert ("communication", 30, "dist.all_reduce(mean)") in [tuple(chore) for chore in one["chores"]]
    # the rank that waits does so in its backward, where DistributedDataParallel's own clock sees it
    assert both[0]["reduce_s"] > 2 * both[1]["reduce_s"]


def test_micro_batches_with_and_without_no_sync() -> None:
    plain, spared = ranks("accumulating"), ranks("no-sync")
    assert [one["unsynced"] for one in plain] == [0, 0]
    assert [one["unsynced"] for one in spared] == [20, 20]
    assert all(one["steps"] == 10 for one in (*plain, *spared))
    assert all(one["reduce_s"] > 0 and one["hidden_s"] >= 0 for one in plain)
    assert any("sync-on-every-microbatch" in findings(one) for one in plain)
    assert not any("sync-on-every-microbatch" in findings(one) for one in spared)


def test_a_group_that_ends_inside_the_run_is_still_read() -> None:
    both = ranks("ends-inside")
    assert all(one["size"] == 2 and len(one["by_rank"]) == 2 and one["reduce_s"] > 0 for one in both)
