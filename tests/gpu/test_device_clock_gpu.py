"""The device clock against Kineto on the same steps, on seven kinds of loops: gap, busy time, exposed wait and copies.

GPU: not yet run on one. Our marks are compared with a simulated device in tests/unit/capture/test_device_loops.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gpu_doctor
from tests.support.loops_traced import KINDS, ran, share

POINTS = 0.03


@pytest.mark.parametrize("name", KINDS)
def test_the_gap_is_kinetos(name: str) -> None:
    seen, true = ran(name, traced=False)
    assert share(seen, "gpu_gap_s") == pytest.approx(true.gap_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_busy_time_is_kinetos_where_steps_have_no_pauses_and_its_upper_bound_elsewhere(name: str) -> None:
    seen, true = ran(name, traced=False)
    busy = share(seen, "gpu_s")
    assert busy >= true.busy_share - POINTS
    if KINDS[name].solid:
        assert busy == pytest.approx(true.busy_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_exposed_wait_is_kinetos(name: str) -> None:
    seen, true = ran(name, traced=True)
    assert true.exposed_wait_share is not None
    assert share(seen, "exposed_wait_s") == pytest.approx(true.exposed_wait_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_exposed_copies_are_kinetos(name: str) -> None:
    seen, true = ran(name, traced=True)
    assert share(seen, "exposed_transfer_s") == pytest.approx(true.exposed_transfer_share, abs=POINTS)


def test_copies_that_the_host_waits_for_take_it_as_long_as_the_device() -> None:
    """On an idle device the host's seconds of transfer are Kineto's of memcpy; behind a queue they are more."""
    seen, true = ran("starved", traced=False)
    assert seen.transfer_s.sum() / seen.wall_s.sum() == pytest.approx(true.memcpy_share, abs=POINTS)
    assert (seen.pageable == 1).all() and (seen.transfer_bytes == 2048 * 4096 * 4).all()
    pinned, true = ran("starved with pinned copies", traced=False)
    assert pinned.transfer_s.sum() / pinned.wall_s.sum() < POINTS
    assert true.memcpy_share > 0 and (pinned.pageable == 0).all()


def test_the_phases_are_those_of_events_put_by_hand() -> None:
    kind = KINDS["compute-bound"]
    model = kind.model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(kind.shape, device="cuda")
    seconds = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    with gpu_doctor.watch() as run:
        for step in range(60):
            at = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
            at[0].record()
            y = model(x)
            at[1].record()
            loss = y.square().mean()
            optimizer.zero_grad()
            at[2].record()
            loss.backward()
            at[3].record()
            at[4].record()
            optimizer.step()
            at[5].record()
            torch.cuda.synchronize()
            for i, phase in enumerate(seconds):
                seconds[phase] += at[2 * i].elapsed_time(at[2 * i + 1]) * 1e-3 if step >= 10 else 0.0
    assert run.recording is not None
    seen = run.recording.steps.rows(10)
    read = seen.device_steps > 0
    assert read.sum() >= 40
    for phase, expected_s in seconds.items():
        assert float(getattr(seen, f"gpu_{phase}_s")[read].mean()) == pytest.approx(expected_s / 50, rel=0.05)


def test_marks_keep_within_their_share() -> None:
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(64, 256, device="cuda")
    with gpu_doctor.watch() as run:
        for _ in range(20_000):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert run.recording is not None
    steps = run.recording.steps
    assert 200 < steps.device_steps.sum() < 10_000
