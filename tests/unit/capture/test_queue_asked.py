"""Whether the device keeps up with its host is asked before a wait empties its queue, and never waited for."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from gpu_doctor.capture.events import BEHIND_NS, GRADIENT
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Source
from gpu_doctor.capture.taps.sync import of_current, tap
from tests.support.one_tap import on
from tests.support.simulated_device import MS, Loop, Noted, Plain, SimulatedDevice


def empty_share(recording: Any) -> float:
    """Part of the steps that were read whose queue was empty, without the first few."""
    steps = recording.steps.rows(5)
    return float(np.nansum(steps.queue_empty) / steps.device_steps.sum())


def watched() -> tuple[SimulatedDevice, Noted]:
    """A device, and a loop on it whose steps are marked."""
    device = SimulatedDevice()
    return device, Noted(Recorder(clock=lambda: device.now, sync_measured=True), device)


COMPUTE = {"wait": 0.1, "kernel": 1.0}
LAUNCHES = {"wait": 0.1, "kernel": 0.01, "kernels": 100, "launch_cost": 0.05}


@pytest.mark.parametrize(("loop", "empty"), [(COMPUTE, 0.0), (LAUNCHES, 1.0)])
@pytest.mark.parametrize("every", [0, 1])
def test_reading_the_loss_changes_nothing(loop: dict[str, Any], empty: float, every: int) -> None:
    assert empty_share(Loop(**loop, item_every=every).play()[1]) == pytest.approx(empty, abs=0.05)


@pytest.mark.parametrize(("loop", "empty"), [(COMPUTE, 0.0), (LAUNCHES, 1.0)])
def test_nor_does_reading_what_was_predicted(loop: dict[str, Any], empty: float) -> None:
    assert empty_share(Plain(**loop, reads=True).play()[1]) == pytest.approx(empty, abs=0.05)


@pytest.mark.parametrize(("behind_ms", "empty"), [(0.04, True), (0.4, True), (0.8, False)])
def test_a_device_that_is_a_little_behind_keeps_up(behind_ms: float, empty: bool) -> None:
    device, loop = watched()
    source = Source()
    for _ in range(20):  # 10 ms of host, of which 5 % are 0.5
        loop.pull(source)
        loop.forward()
        loop.called()
        loop.backward()
        device.host(10)
        device.launch(behind_ms)
        loop.backed()
        loop.step()
        loop.stepped()
        loop.awaits(device)
    loop.exhaust(source)
    assert empty_share(loop.close()) == empty


@pytest.mark.parametrize(("kernel_ms", "reads", "empty"), [(0.01, False, 1.0), (30, False, 0.0), (30, True, 0.0)])
def test_a_long_kernel_launched_last_is_no_queue(kernel_ms: float, reads: bool, empty: float) -> None:
    """A fused optimizer's, say: whether the device had run dry before it decides, but not what a wait has emptied."""
    device, loop = watched()
    source = Source()
    for _ in range(20):
        loop.pull(source)
        loop.forward()
        device.host(5)
        device.launch(kernel_ms)
        loop.called()
        if reads:
            loop.awaits(device)  # the loss, before its backward
        device.host(0.04)
        loop.backward()
        device.host(5)
        device.launch(kernel_ms)
        loop.backed()
        device.host(0.04)
        loop.step()
        device.launch(2)
        loop.stepped()
    device.host(3000)  # until the device has done all of it, which is read then
    loop.exhaust(source)
    assert empty_share(loop.close()) == pytest.approx(empty, abs=0.07)


def test_a_host_that_stood_still_meanwhile_tells_nothing() -> None:
    """It may have waited for the device unheard, as for the size of `logits[mask]`: what was done then is no sign."""
    device, loop = watched()
    source = Source()
    for _ in range(20):
        loop.pull(source)
        loop.forward()
        device.host(1)
        device.launch(50)
        loop.called()
        device.synchronize()
        loop.backward()
        device.host(1)
        device.launch(100)
        loop.backed()
        loop.step()
        device.launch(2)
        loop.stepped()
    device.host(3000)
    loop.exhaust(source)
    assert empty_share(loop.close()) == pytest.approx(0.0, abs=0.07)


def test_what_an_evaluation_waits_for_is_none_of_the_next_steps() -> None:
    device, loop = watched()
    source = Source()
    for _ in range(20):
        loop.pull(source)
        device.launch(20)
        loop.awaits(device)  # a look at held-out data, say, which the device takes 20 ms for
        loop.forward()
        loop.called()
        loop.backward()
        device.launch(0.01, 0.05)
        loop.backed()
        loop.step()
        loop.stepped()
        device.host(1)
    loop.exhaust(source)
    assert empty_share(loop.close()) == 1.0


def test_the_loop_waits_no_longer_for_being_asked() -> None:
    device, loop = watched()
    device.launch(3)
    loop.awaits(device)
    assert device.now == 3 * MS
    before = device.now
    device.launch(0.02)
    loop.awaits(device)
    assert device.now - before <= 0.021 * MS  # the last question takes a microsecond


def test_a_wait_for_a_part_of_the_queue_is_not_held_up_and_tells_only_where_it_is_long() -> None:
    device, loop = watched()
    log = loop.log
    device.launch(30)
    before = device.now
    log.waits(whole=False)
    assert device.now - before < BEHIND_NS / 10
    log.waited()
    assert log.empty is None, "what was waited for may be long done"
    log.waits(whole=False)
    device.host(20)
    log.waited()
    assert log.empty is False


def test_of_several_waits_one_that_finds_work_decides_until_the_next_backward() -> None:
    device, loop = watched()
    log = loop.log
    loop.awaits(device)
    assert log.empty is True
    device.launch(30)
    loop.awaits(device)
    assert log.empty is False
    loop.awaits(device)
    assert log.empty is False
    log.mark(GRADIENT)
    assert log.empty is None


class Told:
    """A device that says what it is told to, or fails."""

    def __init__(self, idle: bool | None) -> None:
        self.says = idle

    def ready(self) -> bool:
        """See DeviceClock."""
        return True

    def idle(self) -> bool:
        """See DeviceClock."""
        if self.says is None:
            raise RuntimeError("no such stream")
        return self.says


def test_a_question_that_fails_ends_the_clock_and_answers_nothing() -> None:
    heard: list[Exception] = []
    clock = QuietClock(Told(None), heard.append)  # type: ignore[arg-type]
    assert clock.idle(BEHIND_NS) is None and clock.off and len(heard) == 1
    assert clock.idle(BEHIND_NS) is None


@pytest.mark.parametrize("idle", [True, False])
def test_synchronize_asks_before_it_waits(idle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    found: list[Any] = []
    log = recorder.log
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: found.append((log.empty, log.waiting is None)))
    Noted(recorder).pull(Source())
    log.marker = QuietClock(Told(idle))  # type: ignore[arg-type]
    with on(tap, recorder, accelerated=True):
        torch.cuda.synchronize()
    assert found == [(True, True) if idle else (None, False)]
    assert log.waiting is None


@pytest.mark.parametrize(("device", "current"), [("cuda:0", True), ("cuda:1", False), ("mps", True)])
def test_a_wait_for_another_device_is_not_held_up_for_the_queue_of_this_one(
    device: str, current: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert of_current(Mock(device=torch.device(device))) == current


def test_synchronizing_a_device_that_is_named_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    found: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: found.append(recorder.log.waiting[1]))  # type: ignore[index]
    Noted(recorder).pull(Source())
    recorder.log.marker = QuietClock(Told(False))  # type: ignore[arg-type]
    with on(tap, recorder, accelerated=True):
        torch.cuda.synchronize(1)
    assert found == [False]
