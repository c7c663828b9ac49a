"""Looks that fall into a wait for a device, or a copy to it, are of that phase. GPU: a tensor stands in for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from gpu_doctor.capture.events import CPU, DONE, PHASE
from gpu_doctor.capture.lines.sampler import LineSampler
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.device_calls import tap
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from gpu_doctor.recording.steps import FORWARD, PHASE_NAMES, SYNC
from tests.support.iterators import only_evaluated
from tests.support.one_tap import on
from tests.support.simulated_device import Noted
from tests.support.told_loop import begun, billed_ns, open_spans

LOOK_NS = 1_000_000


class Elsewhere(torch.Tensor):
    """A tensor in main memory that says it is on a device, until it is copied."""

    device = torch.device("meta")  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # gives plain tensors


class Bench:
    """A run on a clock that moves where the run spends time, and is looked at once in a virtual millisecond."""

    def __init__(self) -> None:
        self.now = -LOOK_NS // 2  # so that looks fall between what begins and ends at whole milliseconds
        self.recorder = Recorder(clock=lambda: self.now)
        self.told = Noted(self.recorder)
        self.sampler = LineSampler(self.recorder)
        self.recorder.parts["lines"] = self.sampler.costs
        begun(self.recorder)
        self.sampler.sample()
        self.now = 0

    def spend(self, seconds: float) -> None:
        """What takes so long, on the line that called."""
        for _ in range(round(seconds * 1e9 / LOOK_NS)):
            self.now += LOOK_NS // 2
            self.sampler.sample()
            self.now += LOOK_NS // 2

    def seen(self) -> dict[str, int]:
        """Phase -> milliseconds in which it was looked at."""
        self.recorder.log.note((CPU, self.now, 0))
        self.recorder.fold()
        found: dict[str, int] = {}
        for one in self.sampler.costs():
            found[one.phase] = found.get(one.phase, 0) + round(one.share * self.now * 1e-6)
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Waits and copies that take 10 ms each, and the taps that hear them."""
    made, inside = Bench(), False

    def slow(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:  # a subclass of Tensor calls once more
                return original(*args, **kwargs)
            inside = True
            try:
                made.spend(0.010)
                return original(*args, **kwargs)
            finally:
                inside = False

        return call

    for name in ("item", "to", "cuda", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, slow(getattr(torch.Tensor, name)))
    monkeypatch.setattr(torch.Tensor, "cuda", slow(lambda tensor, *args: torch.empty_like(tensor, device="meta")))
    monkeypatch.setattr(torch.cuda, "synchronize", slow(lambda: None))
    with on(tap, made.recorder, accelerated=True):
        yield made


HERE, THERE = torch.zeros(4), torch.zeros(4, device="meta")
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "item": (lambda: torch.ones(1).as_subclass(Elsewhere).item(), "sync"),
    "synchronize": (lambda: torch.cuda.synchronize(), "sync"),
    "to the host": (lambda: HERE.as_subclass(Elsewhere).to("cpu", copy=True), "sync"),
    "to the host by name": (lambda: HERE.as_subclass(Elsewhere).to(device=torch.device("cpu"), copy=True), "sync"),
    "into the host": (lambda: torch.empty(4).copy_(HERE.as_subclass(Elsewhere)), "sync"),
    "to a device": (lambda: HERE.to("meta:0"), "transfer"),
    "to a device, typed": (lambda: HERE.to(torch.device("meta"), torch.float64), "transfer"),
    "as a tensor there": (lambda: HERE.to(THERE), "transfer"),
    "as a tensor there by name": (lambda: HERE.to(tensor=THERE), "transfer"),  # type: ignore[call-overload]
    "cuda": (lambda: HERE.cuda(), "transfer"),
    "into a device": (lambda: torch.empty(4, device="meta").copy_(HERE), "transfer"),
    # what is carved out of no phase stays in it
    "item of a number here": (lambda: torch.ones(1).item(), "forward"),
    "to another type": (lambda: HERE.to(torch.float64), "forward"),
    "to the host from the host": (lambda: HERE.to("cpu"), "forward"),
    "as a tensor here": (lambda: HERE.to(torch.zeros(1)), "forward"),
    "type by name": (lambda: HERE.to(dtype=torch.float64), "forward"),
    "to where it is": (lambda: THERE.to("meta"), "forward"),
    "to the host without waiting": (
        lambda: HERE.as_subclass(Elsewhere).to("cpu", non_blocking=True, copy=True),
        "forward",
    ),
    "into the host, both here": (lambda: torch.empty(4).copy_(HERE), "forward"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_look_has_the_phase_that_the_time_is_billed_to(bench: Bench, name: str) -> None:
    call, phase = CALLS[name]
    note = bench.recorder.log.note
    note((PHASE, bench.now, FORWARD))
    bench.spend(0.005)
    call()
    bench.spend(0.005)
    note((DONE, bench.now, None))
    assert bench.seen() == ({"forward": 20} if phase == "forward" else {"forward": 10, phase: 10})
    for name, ms in bench.seen().items():
        assert billed_ns(bench.recorder, PHASE_NAMES.index(name)) == ms * 1_000_000


@pytest.mark.parametrize("name", CALLS)
def test_an_evaluation_keeps_its_waits_and_copies(bench: Bench, name: str) -> None:
    only_evaluated(bench.recorder.step_clock.sources, bench.told.source)
    bench.told.pull()
    CALLS[name][0]()
    assert bench.seen() == {"evaluation": 10}


@pytest.mark.parametrize("call", [lambda: THERE.item(), lambda: HERE.to("meta", "no such type")], ids=["wait", "copy"])  # type: ignore[call-overload]
def test_after_an_error_the_phase_is_the_running_one(bench: Bench, call: Callable[[], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        call()
    before = bench.seen().get("other", 0)
    bench.spend(0.005)
    assert bench.seen()["other"] - before == 5


def test_a_wait_inside_a_copy_is_a_wait_and_the_rest_of_it_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    def to(tensor: torch.Tensor, device: str) -> torch.Tensor:
        bench.spend(0.002)
        torch.cuda.synchronize()
        bench.spend(0.003)
        return torch.empty_like(tensor, device=device)

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: bench.spend(0.007))
    with on(tap, bench.recorder, accelerated=True):
        HERE.to("meta")
    assert bench.seen() == {"transfer": 5, "sync": 7}


def test_other_threads_wait_for_themselves(bench: Bench) -> None:
    inside, looked = threading.Event(), threading.Event()

    def wait() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench, "spend", lambda _: (inside.set(), looked.wait(10)))  # type: ignore[func-returns-value]
            torch.ones(1).as_subclass(Elsewhere).item()

    thread = threading.Thread(target=wait)
    thread.start()
    assert inside.wait(10)
    looked.set()
    thread.join()
    assert bench.seen() == {}
    assert billed_ns(bench.recorder, SYNC) == 0 and sum(one.syncs for one in open_spans(bench.recorder)) == 0


@contextmanager
def training(bench: Bench) -> Iterator[None]:
    """A step of the loop: a batch, a forward and an update around what is done inside."""
    bench.told.pull()
    bench.told.forward()
    bench.told.called()
    bench.spend(0.010)
    yield
    bench.told.learns()


def ran(bench: Bench, act: Callable[[], Any]) -> Recording:
    """Twenty steps that spend 10 ms on a line of the loop and 10 ms in `act`."""
    for _ in range(20):
        with training(bench):
            act()
    return bench.recorder.close()


@pytest.mark.parametrize("name", ["item", "synchronize", "to a device", "into a device"])
def test_the_line_that_waits_or_copies_is_named_with_its_share(bench: Bench, name: str) -> None:
    act, phase = CALLS[name]
    vitals = measure(ran(bench, act))
    assert getattr(vitals, f"{phase}_share") == pytest.approx(0.5, abs=0.01)
    assert hot_lines(vitals, (phase,))
    assert sum(one.share for one in vitals.lines if one.phase == phase) == pytest.approx(0.5, abs=0.05)
    assert sum(one.share for one in vitals.lines if one.phase == "other") == pytest.approx(0.5, abs=0.05)
