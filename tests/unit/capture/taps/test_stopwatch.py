"""The CUDA clock reuses its events and never waits; a run has it while the tap is on."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpu_doctor.capture.taps.gpu_clock import FORWARDS, CudaClock, tap
from gpu_doctor.capture.taps.tap import TapScope
from tests.support.iterators import iterator
from tests.support.one_tap import on
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import Graph, Noted, SimulatedDevice


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedCuda]:
    """A GPU whose events nobody may wait for."""
    with SimulatedCuda(SimulatedDevice(exact=True)) as found:
        monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda _: pytest.fail("waited for the device"))
        yield found


def ended(cuda: SimulatedCuda, loop: Noted) -> None:
    """The loop is over, and its device has done all of it."""
    cuda.device.synchronize()
    loop.close()


def on_cuda(card: int = 0) -> Any:
    """An optimizer over a parameter that says it is on a GPU."""
    parameter = SimpleNamespace(is_cuda=True, device=torch.device("cuda", card))
    return SimpleNamespace(param_groups=[{"params": [parameter]}])


def test_events_are_reused(cuda: SimulatedCuda) -> None:
    clock = CudaClock()
    for _ in range(5):
        begin = clock.mark()
        cuda.launch(1.0)
        end = clock.mark()
        assert not clock.done(end) and np.isnan(clock.seconds(begin, end)), "nobody waits for it"
        cuda.device.host(2.0)
        assert clock.done(end)
        assert clock.seconds(begin, end) == pytest.approx(0.001, rel=0.02)
        clock.free(begin)
        clock.free(end)
    assert cuda.events == 2
    assert len(cuda.device.marks) == 10


def test_marks_go_to_the_stream_that_computes_whatever_the_current_one_is(cuda: SimulatedCuda) -> None:
    clock = CudaClock()
    clock.follow()
    with torch.cuda.stream(torch.cuda.Stream()):
        cuda.launch(5.0)
        assert clock.aside() and clock.idle()
        mine, copies = clock.mark(), clock.mark(current=True)
        assert clock.done(mine) and not clock.done(copies)
    assert not clock.aside()


def test_steps_are_marked_only_while_the_tap_is_on(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    with on(tap, recorder) as scope:
        assert recorder.log.marker is None
        scope.optimized[0](on_cuda())
        marks, marker = recorder.marks, recorder.log.marker
        assert marks is not None and marker is marks.clock
        scope.optimized[0](on_cuda())
        assert recorder.marks is marks and recorder.log.marker is marker
    assert recorder.log.marker is None and recorder.windows is None


def test_a_loop_with_the_clock_reads_every_step_but_the_first(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for _ in range(50):
            one_step(cuda, loop)
        ended(cuda, loop)
    steps = recorder.table.steps()
    assert steps.device_steps.sum() == 49
    assert cuda.events <= 48


def one_step(cuda: SimulatedCuda, loop: Noted, card: int = 0, optimizer: int = 1) -> None:
    """A step of a model under `torch.cuda.device(card)`."""
    cuda.device.card = card
    loop.forward()
    cuda.launch(1.0)
    cuda.device.host(2.0)
    loop.called()
    loop.step(optimizer)
    loop.stepped(optimizer)


def test_models_on_two_devices_are_each_compared_with_themselves(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for i in range(40):
            one_step(cuda, loop, card=i // 10 % 2)  # ten steps on one, ten on the other
        ended(cuda, loop)
    assert not recorder.notes
    read = recorder.table.steps().device_steps
    # The first step of all and the first on another device have nothing before them to be compared with.
    assert np.flatnonzero(read == 0).tolist() == [0, 10, 20, 30]


def test_a_model_on_another_card_than_the_current_one_is_timed_there(
    cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    current_stream = torch.cuda.current_stream

    def stream_of(card: int | None = None) -> Any:
        cuda.device.card = card or 0  # which is the current one nowhere else
        try:
            return current_stream()
        finally:
            cuda.device.card = 0

    monkeypatch.setattr(torch.cuda, "current_stream", stream_of)
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda(card=1))
        for _ in range(20):
            one_step(cuda, loop)
        assert recorder.marks is not None and isinstance(clock := recorder.marks.clock._device, CudaClock)
        ended(cuda, loop)
    assert recorder.table.steps().device_steps.sum() == 19
    assert set(clock._pools) == {1}


def test_a_step_that_changes_its_device_is_not_read(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for _ in range(20):
            loop.pull(iterator())
            one_step(cuda, loop, 0, optimizer=1)
            one_step(cuda, loop, 1, optimizer=2)
        ended(cuda, loop)
    assert not recorder.notes
    assert len(recorder.table.steps()) == 20
    assert recorder.table.steps().device_steps.sum() == 0


def test_nothing_is_put_into_a_graph_that_is_captured(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for i in range(30):
            cuda.device.graph = Graph() if i in (11, 12) else None
            one_step(cuda, loop)
        ended(cuda, loop)
    assert not recorder.notes
    read = recorder.table.steps().device_steps
    # Of the first step, and of the one after those that were captured, it is not known where the one before ended.
    assert np.flatnonzero(read == 0).tolist() == [0, 11, 12, 13]
    assert (recorder.table.steps().gpu_s[read > 0] > 0).all()


@pytest.mark.parametrize("method", ["ready", "mark", "done", "seconds", "free"])
def test_an_error_of_the_clock_ends_the_clock_and_not_the_loop(
    cuda: SimulatedCuda, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = getattr(CudaClock, method), 0
    most = 20 if method == "done" else 60  # a step has two such calls, or some six

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= most:
            raise RuntimeError(f"CUDA error in {method}")
        return original(*args)

    monkeypatch.setattr(CudaClock, method, failing)
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for _ in range(40):
            one_step(cuda, loop)
        assert recorder.log.marker is None
        scope.optimized[0](on_cuda())  # a second optimizer does not bring it back
        assert recorder.log.marker is None
        one_step(cuda, loop)
        ended(cuda, loop)
    assert len(recorder.table.steps()) == 41
    assert 0 < recorder.table.steps().device_steps.sum() < 20
    assert len(recorder.notes) == 1
    assert "GPU timing" in recorder.notes[0] and f"CUDA error in {method}" in recorder.notes[0]
    assert calls == most  # it is called no more


@pytest.mark.parametrize("most", range(1, 13))
@pytest.mark.parametrize("method", ["mark", "done"])
def test_an_error_of_the_clock_ends_no_loop_that_has_no_optimizer(
    cuda: SimulatedCuda, method: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its marks or questions is the one that fails: inference, an update by hand."""
    original, calls = getattr(CudaClock, method), 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= most:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return original(*args)

    monkeypatch.setattr(CudaClock, method, failing)
    recorder = cuda.device.recorder()
    loop, source = Noted(recorder), iterator()
    with on(tap, recorder, accelerated=True) as scope:
        forwards(scope, cuda=True)
        for _ in range(12):
            loop.pull(source)
            loop.forward()
            loop.called()
            loop.backward()
            loop.backed()
        ended(cuda, loop)
    assert len(recorder.notes) == 1 and "device-side assert" in recorder.notes[0]


def test_the_cost_of_the_marks_is_counted_after_the_taps_are_off(cuda: SimulatedCuda) -> None:
    cuda.device.exact = False
    recorder = cuda.device.recorder()
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        loop = Noted(recorder)
        for _ in range(20):
            one_step(cuda, loop)
        ended(cuda, loop)
        assert recorder.marks is not None
        cost_s = recorder.marks.clock.spent_ns * 1e-9
        tapped_s = recorder.tapped_s()
    assert tapped_s >= cost_s > 0
    assert recorder.tapped_s() == pytest.approx(tapped_s, rel=0.2)


def test_a_clock_that_comes_with_the_first_optimizer_step_is_not_a_step_late(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder) as scope:
        for i in range(20):
            loop.forward()
            cuda.launch(1.0)
            loop.called()
            loop.step()
            if i == 0:
                scope.optimized[0](on_cuda())
            loop.stepped()
        ended(cuda, loop)
    steps = recorder.table.steps()
    assert steps.device_steps.tolist() == [0.0] + [1.0] * 19
    assert (steps.gpu_s[1:] > 0).all()


def forwards(scope: TapScope, cuda: bool, output: Any = None) -> None:
    """A forward of a module whose parameters are on a GPU or not."""
    module = torch.nn.Linear(1, 1).to("cuda" if cuda else "cpu")
    for hear in tuple(scope.forwarded):
        hear(module, False, (), {}, output)


def test_a_loop_without_an_optimizer_gets_the_clock_with_its_first_forward(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    loop = Noted(recorder)
    with on(tap, recorder, accelerated=True) as scope:
        source = iterator()
        for _ in range(50):
            loop.pull(source, grad=False)
            loop.forward(False, False, False)
            loop.called()
            forwards(scope, cuda=True)
        assert not scope.forwarded  # forwards are watched no longer
        loop.exhaust(source, grad=False)
        ended(cuda, loop)
    steps = recorder.table.steps()
    assert steps.device_steps.tolist() == [0.0] + [1.0] * 49
    assert cuda.events <= 48
    assert recorder.log.marker is None


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("optimizer", [True, False])
def test_a_model_in_main_memory_gets_no_clock_and_ends_the_search(
    cuda: SimulatedCuda, accelerated: bool, optimizer: bool
) -> None:
    recorder = cuda.device.recorder()
    with on(tap, recorder, accelerated=accelerated) as scope:
        assert len(scope.forwarded) == accelerated
        if optimizer:
            scope.optimized[0](torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
        else:
            for _ in range(FORWARDS):
                forwards(scope, cuda=False, output=(1, 2))
        assert not scope.forwarded
        assert recorder.marks is None and recorder.log.marker is None


def test_an_output_on_a_gpu_is_enough_and_an_error_of_its_is_ignored(cuda: SimulatedCuda) -> None:
    class Odd:
        @property
        def is_cuda(self) -> bool:
            raise ValueError("no such thing")

    recorder = cuda.device.recorder()
    with on(tap, recorder, accelerated=True) as scope:
        forwards(scope, cuda=False, output=Odd())
        assert recorder.marks is None
        forwards(scope, cuda=False, output=torch.ones(1, device="cuda"))
        assert recorder.marks is not None
