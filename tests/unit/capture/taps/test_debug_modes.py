"""torch's debugging aids are heard for as long as they are on, however the cell turns them on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.debug_modes import tap
from gpu_doctor.recording import Recording
from tests.support.one_tap import Ticking, batches, model, on


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = torch.set_anomaly_enabled, torch.autograd.profiler._run_on_profiler_start
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection")
        yield
    assert patching.active() == ()
    assert (torch.set_anomaly_enabled, torch.autograd.profiler._run_on_profiler_start) == before
    assert not torch.is_anomaly_enabled()


def trained(each: Callable[[], AbstractContextManager[Any]] = nullcontext, steps: int = 20) -> Recording:
    """A real loop whose forward and backward lie inside of `each`."""
    recorder, net = Recorder(clock=Ticking()), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}):
        for x, y in batches(8 * steps):
            optimizer.zero_grad()
            with each():
                torch.nn.functional.mse_loss(net(x).squeeze(1), y).backward()
            optimizer.step()
    return recorder.close()


def test_nothing_on_leaves_no_flag() -> None:
    flags = trained().setup.flags
    assert "anomaly_on_s" not in flags and "profiler_on_s" not in flags
    assert (flags["anomaly_mode"], flags["profiler"]) == (False, False)


def test_a_part_of_each_step_counts_as_that_part() -> None:
    recording = trained(torch.autograd.detect_anomaly)
    busy = float((recording.steps.forward_s + recording.steps.backward_s).sum())
    on_s = recording.setup.flags["anomaly_on_s"]
    assert busy <= on_s <= float(recording.steps.wall_s.sum())


def test_turned_on_for_good_it_counts_to_the_end() -> None:
    torch.autograd.set_detect_anomaly(True)
    try:
        recording = trained()
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert recording.setup.flags["anomaly_mode"] is True
    assert recording.setup.flags["anomaly_on_s"] >= float(recording.steps.wall_s.sum())


def test_the_profiler_is_heard_in_those_steps_in_which_it_runs() -> None:
    count = iter(range(100))

    def fifth() -> AbstractContextManager[Any]:
        return torch.autograd.profiler.profile() if next(count) == 5 else nullcontext()

    recording = trained(fifth)
    walls = recording.steps.wall_s
    assert 0 < recording.setup.flags["profiler_on_s"] <= float(walls[4:8].sum())


def test_the_injected_clock_counts() -> None:
    recorder = Recorder(clock=Ticking())
    with on(tap, recorder):
        for _ in range(3):
            with torch.autograd.set_detect_anomaly(True):
                pass
    assert recorder.setup().flags == {"anomaly_on_s": pytest.approx(3e-6)}
