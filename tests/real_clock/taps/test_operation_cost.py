"""What an operation costs at least is measured after the run, once, and moves nothing of the user's."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.after_run import time_what_ran
from gpu_doctor.capture.taps.operation_cost import LAYERS, operation_s

MODULE = importlib.import_module("gpu_doctor.capture.taps.operation_cost")
BACKWARD = torch.autograd.backward

LOOP = """
layers = [one for _ in range({depth}) for one in (torch.nn.Linear({width}, {width}), torch.nn.ReLU())]
net = torch.nn.Sequential(*layers)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(40):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
"""


@pytest.fixture(autouse=True)
def _first_time() -> None:
    operation_s.cache_clear()


def recorded(width: int, rows: int, depth: int = 6) -> gpu_doctor.Recording:
    namespace: dict[str, Any] = {"torch": torch, "x": torch.rand(rows, width)}
    return gpu_doctor.case(LOOP.format(width=width, depth=depth), namespace).run()


def test_seconds_of_a_backward_over_its_operations() -> None:
    ticks = iter(range(1000))
    # A tick for each backward; a layer is a linear, its transposed weight, a ReLU and two leaves; the first has no ReLU
    # of another before it, and a sum stands behind the last.
    assert operation_s(lambda: float(next(ticks))) == pytest.approx(1.0 / (5 * LAYERS + 1))
    assert 1e-7 < operation_s() < 1e-3


def test_nothing_of_the_users_is_moved() -> None:
    before = torch.get_rng_state()
    with torch.inference_mode():
        operation_s()
        operation_s.cache_clear()
        assert torch.is_inference_mode_enabled()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        operation_s()
        assert not torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_it_is_timed_on_the_training_thread_when_nothing_of_ours_stands_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def timed() -> float:
        seen.append((threading.current_thread() is threading.main_thread(), torch.autograd.backward is BACKWARD))
        return 5e-6

    monkeypatch.setattr(MODULE, "operation_s", timed)
    assert recorded(8, 4).setup.operation_s == 5e-6
    with pytest.raises(ZeroDivisionError):
        gpu_doctor.case(LOOP.format(width=8, depth=2) + "1 / 0", {"torch": torch, "x": torch.rand(4, 8)}).run()
    assert seen == [(True, True)] * 2


@pytest.mark.parametrize("facts", [{}, {"graph_operations": 40, "device": "cuda:0"}])
def test_a_loop_without_a_backward_and_one_on_a_gpu_have_none(facts: dict[str, Any]) -> None:
    recorder = Recorder()
    recorder.facts.update(facts)
    time_what_ran(recorder)
    assert "operation_s" not in recorder.facts


def test_what_cannot_be_measured_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> float:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(MODULE, "operation_s", fails)
    recording = recorded(8, 4)
    assert recording.setup.operation_s is None
    (note,) = (one for one in recording.notes if "no such operator" in one)
    assert note.startswith("The shortest operation")


def test_small_operations_are_most_of_their_step_and_large_ones_next_to_nothing_of_it() -> None:
    small, large = (gpu_doctor.diagnose(recorded(*size)).vitals for size in ((8, 4), (1024, 64)))
    assert small.dispatch_share is not None and large.dispatch_share is not None
    assert small.dispatch_share > 0.1 > large.dispatch_share
    assert small.dispatch_share > 5 * large.dispatch_share
