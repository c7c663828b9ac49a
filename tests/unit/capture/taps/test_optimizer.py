"""Optimizer steps and `zero_grad` are heard, of any optimizer, also after one that raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpu_doctor.capture.recorder import Recorder, RunEnded
from gpu_doctor.capture.taps.optimizer import MOST_DESCRIBED, tap
from gpu_doctor.recording.steps import OTHER, TRAINING
from tests.support.one_tap import Ticking, model, on
from tests.support.told_loop import begun, phase_now


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_steps_are_heard(kind: Any) -> None:
    recorder, net = Recorder(), model()
    optimizer = kind(net.parameters(), lr=0.1)
    with on(tap, recorder):
        for _ in range(3):
            net(torch.rand(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert phase_now(recorder) == OTHER
    steps = recorder.close().steps
    assert len(steps) == 3
    assert steps.optimizer_s.sum() > 0


def test_a_loop_without_a_loader_has_the_cpu_time_of_its_steps() -> None:
    """Where nothing is asked for that has a clock: a row without a reading is NaN, never 0."""
    now = Ticking()
    recorder, net = Recorder(clock=now), model()
    recorder.log.cpu_clock = lambda: now.ns // 2
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with on(tap, recorder):
        for _ in range(4):
            now.ns += 10_000_000
            net(torch.rand(2, 4)).sum().backward()
            optimizer.step()
    steps = recorder.close().steps
    assert np.isnan(steps.cpu_s[0])
    np.testing.assert_allclose(steps.cpu_s[1:], 0.005, rtol=0.01)


def test_an_optimizer_is_met_once_before_its_first_use() -> None:
    met: list[Any] = []
    first, second = (torch.optim.SGD(model().parameters(), lr=0.1) for _ in range(2))
    with on(tap) as scope:
        scope.optimized.append(met.append)
        first.zero_grad()
        assert met == [first]
        first.step()
        second.step()
        second.zero_grad()
    assert met == [first, second]


def test_a_listener_that_fails_leaves_a_note() -> None:
    recorder = Recorder()

    def fail(_: Any) -> None:
        raise ValueError("no")

    with on(tap, recorder) as scope:
        scope.optimized.append(fail)
        torch.optim.SGD(model().parameters(), lr=0.1).step()
    assert recorder.notes == ["The optimizer's model could not be read: no"]
    assert recorder.close().steps.kind.tolist() == [TRAINING]


class Failing(torch.optim.SGD):
    """Raises at its second step."""

    steps = 0

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.steps += 1
        if self.steps == 2:
            raise ValueError("user's")
        return super().step(closure)


def test_a_step_that_raises_is_no_step_and_the_phase_heals() -> None:
    recorder, net = Recorder(), model()
    optimizer = Failing(net.parameters(), lr=0.1)
    with on(tap, recorder):
        for i in range(4):
            net(torch.rand(2, 4)).sum().backward()
            if i == 1:
                with pytest.raises(ValueError, match="user's"):
                    optimizer.step()
            else:
                optimizer.step()
                assert phase_now(recorder) == OTHER
    assert len(recorder.close().steps) == 3


class Around(torch.optim.SGD):
    """An optimizer whose step calls another optimizer's."""

    inner: torch.optim.Optimizer

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.inner.step(closure)


def test_an_optimizer_around_another_is_one_step() -> None:
    recorder, net = Recorder(), model()
    outer = Around(net.parameters(), lr=0.1)
    outer.inner = torch.optim.SGD(net.parameters(), lr=0.1)
    with on(tap, recorder):
        for _ in range(3):
            net(torch.rand(2, 4)).sum().backward()
            outer.step()
            assert phase_now(recorder) == OTHER
    assert len(recorder.close().steps) == 3


def test_the_end_of_a_run_comes_before_the_step() -> None:
    recorder, net = Recorder(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net[0].weight.detach().clone()  # type: ignore[index]
    with on(tap, recorder):
        net(torch.rand(2, 4)).sum().backward()
        recorder.stop()
        with pytest.raises(RunEnded):
            optimizer.step()
    assert torch.equal(net[0].weight, before)  # type: ignore[index]


@pytest.mark.parametrize("named", [False, True])
def test_a_closure_is_none_of_the_optimizers_time(named: bool) -> None:
    recorder, net, phases = Recorder(), model(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        phases.append(phase_now(recorder))
        loss = net(torch.rand(2, 4)).sum()
        loss.backward()
        return loss

    with on(tap, recorder):
        for _ in range(2):
            loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
            assert isinstance(loss, torch.Tensor)
        assert phase_now(recorder) == OTHER
    assert phases == [OTHER, OTHER]


def test_optimizers_that_inner_loops_make_anew_are_soon_known() -> None:
    met: list[str] = []
    recorder, net = Recorder(), model()
    with on(tap, recorder) as scope:
        scope.optimized.append(lambda one: met.append(type(one).__name__))
        scope.optimized.append(lambda one: scope.owned.add(p for group in one.param_groups for p in group["params"]))
        for _task in range(20):
            torch.optim.SGD(net.parameters(), lr=0.1).step()
        torch.optim.SGD([*net.parameters(), torch.zeros(1, requires_grad=True)], lr=0.1).step()
        assert met == ["SGD"] * (MOST_DESCRIBED + 1)
        last = torch.optim.SGD(net.parameters(), lr=0.1)
        last.step()
        assert any(ref() is last for ref in recorder.remembered)  # a trial must find it all the same


@pytest.mark.parametrize("zeroed", [False, True])
def test_what_meeting_takes_is_not_the_optimizers(zeroed: bool) -> None:
    clock = Ticking()
    recorder, net = Recorder(clock=clock), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def slow(_: Any) -> None:
        clock.ns += 1_000_000_000

    with on(tap, recorder) as scope:
        begun(recorder)
        scope.optimized.append(slow)
        if zeroed:
            optimizer.zero_grad()
        optimizer.step()
    steps = recorder.close().steps
    assert steps.optimizer_s.sum() < 0.1 and steps.wall_s.sum() > 1.0
    assert recorder.cost.searched_s == pytest.approx(1.0, rel=0.1)
