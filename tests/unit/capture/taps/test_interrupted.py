"""An interrupt of our code passes, the loop may go on after it, and nothing of ours stays on the user's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_doctor.capture import patching
from gpu_doctor.capture.fetch.meter import Meter
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import backward, dataloader, listening, optimizer
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import OTHER
from tests.support.one_tap import Ticking, batches, model, on
from tests.support.told_loop import phase_now


class Interrupts:
    """Raises when it is first called."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *_: Any) -> None:
        self.times += 1
        if self.times == 1:
            raise KeyboardInterrupt


def in_the_optimizer(scope: TapScope, net: torch.nn.Module, interrupts: Interrupts) -> Callable[[], object]:
    scope.optimized.append(interrupts)
    net(torch.rand(2, 4)).sum().backward()
    return torch.optim.SGD(net.parameters(), lr=0.1).step


def in_zero_grad(scope: TapScope, net: torch.nn.Module, interrupts: Interrupts) -> Callable[[], object]:
    scope.optimized.append(interrupts)
    return torch.optim.SGD(net.parameters(), lr=0.1).zero_grad


def in_the_backward(scope: TapScope, net: torch.nn.Module, interrupts: Interrupts) -> Callable[[], object]:
    scope.backed.append(interrupts)
    return net(torch.rand(2, 4)).sum().backward


@pytest.mark.parametrize(
    ("tap", "interrupted"),
    [(optimizer.tap, in_the_optimizer), (optimizer.tap, in_zero_grad), (backward.tap, in_the_backward)],
)
def test_no_phase_is_left_open(tap: Any, interrupted: Any) -> None:
    recorder, interrupts = Recorder(), Interrupts()
    with on(tap, recorder) as scope:
        call = interrupted(scope, model(), interrupts)
        with pytest.raises(KeyboardInterrupt):
            call()
        assert interrupts.times == 1 and phase_now(recorder) == OTHER


def test_the_first_forward_leaves_no_hook_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, net = Recorder(), model()
    with listening(recorder, {"net": net}, accelerated=False):
        adam = torch.optim.Adam(net.parameters())
        adam.zero_grad()
        monkeypatch.setattr(recorder, "fold", Interrupts())
        recorder.log.due = 1
        with pytest.raises(KeyboardInterrupt):
            net(torch.rand(2, 4))
    assert not any(part._forward_pre_hooks for part in net.modules())
    assert patching.active() == ()


def test_a_fetch_gives_its_collate_function_back(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, loader = Recorder(), batches(20)
    before = loader.collate_fn
    with on(dataloader.tap, recorder):
        iterator: Any = iter(loader)
        monkeypatch.setattr(Meter, "ends", Interrupts())
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert iterator._dataset_fetcher.collate_fn is before
        assert phase_now(recorder) == OTHER
    assert patching.active() == ()


def test_the_end_of_zero_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking, interrupts = Ticking(), Interrupts()
    armed: list[bool] = []

    def clock() -> int:
        if armed:
            interrupts()
        return ticking()

    recorder = Recorder(clock=clock)
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", lambda *_: armed.append(True))
    with on(optimizer.tap, recorder):
        sgd = torch.optim.SGD(model().parameters(), lr=0.1)
        with pytest.raises(KeyboardInterrupt):
            sgd.zero_grad()
        assert interrupts.times == 2 and phase_now(recorder) == OTHER
