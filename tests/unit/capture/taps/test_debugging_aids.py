"""torch's debugging aids are told by checks of some backwards, however the cell turns them on; nothing is patched."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.environment import AidChecks
from gpu_doctor.recording import Recording
from tests.support.one_tap import Ticking, batches, model


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection")
        yield
    assert patching.active() == () and not torch.is_anomaly_enabled()


def trained(each: Callable[[], AbstractContextManager[Any]] = nullcontext, steps: int = 200) -> Recording:
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


def told(recording: Recording) -> tuple[Any, ...]:
    """Whether each aid's switch was found on, and its share."""
    flags = recording.setup.flags
    return tuple(flags[name] for name in ("anomaly_mode", "anomaly_share", "profiler", "profiler_share"))


def test_nothing_on() -> None:
    assert told(trained()) == (False, 0.0, False, 0.0)


def test_on_within_each_step() -> None:
    assert trained(torch.autograd.detect_anomaly).setup.flags["anomaly_share"] == 1.0


def test_on_for_good() -> None:
    torch.autograd.set_detect_anomaly(True)
    try:
        recording = trained()
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert told(recording)[:2] == (True, 1.0)


def test_on_in_every_second_half_of_the_steps() -> None:
    count = iter(range(1000))

    def later() -> AbstractContextManager[Any]:
        return torch.autograd.detect_anomaly() if next(count) >= 100 else nullcontext()

    share = trained(later).setup.flags["anomaly_share"]
    assert 0.0 < share < 1.0


def test_a_profiler_around_the_loop() -> None:
    with torch.autograd.profiler.profile():
        recording = trained(steps=10)
    assert told(recording)[2:] == (True, 1.0)


def test_nobody_checks_when_the_run_is_over() -> None:
    recorder = Recorder()
    with taps.listening(recorder, {}):
        pass
    assert not [one for one in recorder.listeners.of_steps if isinstance(getattr(one, "__self__", None), AidChecks)]
    assert "anomaly_share" not in recorder.close().setup.flags
