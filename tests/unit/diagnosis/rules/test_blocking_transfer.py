"""blocking-transfer: pinned batches, and the loop waits for each copy all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, sick
from tests.support.recordings import Loop, on_gpu

RULE = "blocking-transfer"
WAITED = Traffic(to_device=200, to_device_bytes=2e9, blocking_pinned=200)
LOOP = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, batch_bytes=20e6)


def waited(loop: Loop = LOOP, traffic: Traffic = WAITED, copied_ms: float = 2.0) -> Recording:
    """The host waits 5 of 15 ms for copies: the GPU copies for some of them, and then idles."""
    recording = loop.recording()
    copies = np.full(len(recording.steps), copied_ms * 1e-3)
    return replace(recording, traffic=traffic, steps=replace(recording.steps, exposed_transfer_s=copies))


def test_sick() -> None:
    found = sick(RULE, waited())
    assert found.kind == "lost" and found.cost_share == pytest.approx(3 / 15, rel=0.02), "the idling, not the copying"
    assert not found.prescriptions[0].settings and "non_blocking=True" in found.prescriptions[0].code


def test_the_copying_itself_is_the_bytes() -> None:
    assert sick("heavy-transfer", waited()).cost_share == pytest.approx(2 / 15, rel=0.02)


def test_beside_launches_the_copy_hides_as_well() -> None:
    launching = waited(LOOP.but(caught_up=1.0))
    assert sick(RULE, launching).cost_share == pytest.approx(5 / 15, rel=0.02)
    assert asked("heavy-transfer", launching) is None, "the same seconds"


@pytest.mark.parametrize(
    "recording",
    [
        waited(traffic=Traffic(to_device=200, to_device_bytes=2e9)),  # nothing is waited for
        waited(LOOP.but(pageable=2.0)),
        waited(LOOP.but(gpu_gap=0.1, gpu_work=15.0), copied_ms=0.1),  # the GPU does not notice
        waited(copied_ms=5.0),  # all of the wait is copying
    ],
)
def test_well(recording: Recording) -> None:
    assert asked(RULE, recording) is None
