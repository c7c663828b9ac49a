"""The poller: when it reads, what it does with a probe that fails, and that it stays below its budget."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from gpu_doctor.capture.poller import LOOKS, Poller
from gpu_doctor.machine.probe import ProbeScope, Reader, Reading
from gpu_doctor.recording import Metric

WATTS = Metric("watts_w", "W", "watts", "detail")


class Clock:
    """Host and CPU clock of a machine that does nothing by itself."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0

    def work(self, cpu_s: float) -> None:
        self.now_s += cpu_s
        self.cpu_s += cpu_s


class Source:
    """A probe: counts what is done with it, fails when told to."""

    def __init__(self, clock: Clock | None = None, cost_s: float = 0.0) -> None:
        self.opened = self.closed = self.reads = 0
        self.fail_at = -1
        self.value = 7.0
        self.clock, self.cost_s = clock, cost_s

    @contextmanager
    def probe(self, scope: ProbeScope) -> Iterator[Reader | None]:
        self.opened += 1
        try:
            yield self.read
        finally:
            self.closed += 1

    def read(self) -> list[Reading]:
        self.reads += 1
        if self.clock:
            self.clock.work(self.cost_s)
        if self.reads == self.fail_at:
            raise OSError("the bus fell off")
        return [(WATTS, self.value)]


def poller_of(clock: Clock, *probes: Any, **more: Any) -> tuple[Poller, list[tuple[Metric, float, float]], list[str]]:
    readings: list[tuple[Metric, float, float]] = []
    notes: list[str] = []
    poller = Poller(
        [(f"source {i}", probe) for i, probe in enumerate(probes)],
        lambda metric, at, value: readings.append((metric, at, value)),
        note=notes.append,
        clock=lambda: clock.now_s,
        cpu_clock=lambda: clock.cpu_s,
        **more,
    )
    return poller, readings, notes


def turn(poller: Poller, clock: Clock, seconds: float) -> None:
    """Lets the poller live for a while, without a thread."""
    until = clock.now_s + seconds
    while clock.now_s < until:
        clock.now_s += max(poller.tick(), 1e-4)


def test_first_reading_at_once_then_one_a_period() -> None:
    clock, source = Clock(), Source()
    poller, readings, _ = poller_of(clock, source.probe)
    poller.open()
    assert poller.tick() == pytest.approx(0.5)
    assert readings == [(WATTS, 100.0, 7.0)]
    clock.now_s += 0.2
    assert poller.tick() == pytest.approx(0.3)
    assert len(readings) == 1
    turn(poller, clock, 4.2)
    assert len(readings) == 9
    poller.close()
    assert (source.opened, source.closed) == (1, 1)


def test_a_garbage_collection_between_two_looks_makes_no_look_dear() -> None:
    """Python collects on the thread that asks for memory next: 20 ms in a process with transformers, while we wait."""
    clock = Clock()
    looks: list[float] = []

    def look(_: float) -> None:
        looks.append(clock.now_s)
        clock.work(5e-5)

    poller, _, _ = poller_of(clock, sampler=look)
    for turns in range(400):
        clock.now_s += max(poller.tick(), 1e-4)
        if turns % 50 == 10:
            clock.work(0.02)
    # Looks come at random; one that was charged 20 ms would put the next off by seconds.
    assert max(later - earlier for earlier, later in pairwise(looks)) < 0.5


def test_a_probe_that_fails_half_way_takes_itself_off_and_the_others_go_on() -> None:
    clock, sick, well = Clock(), Source(), Source()
    sick.fail_at = 2
    poller, readings, notes = poller_of(clock, sick.probe, well.probe)
    poller.open()
    turn(poller, clock, 2.4)
    assert (sick.reads, sick.closed, well.reads, well.closed) == (2, 1, 5, 0)
    assert notes == ["The source 0 probe failed and was switched off: the bus fell off"]
    assert len(readings) == 1 + 5
    poller.close()
    assert (sick.closed, well.closed) == (1, 1)


def test_a_probe_that_cannot_open_or_has_no_source_is_absent() -> None:
    @contextmanager
    def broken(scope: ProbeScope) -> Iterator[Reader | None]:
        raise OSError("no such bus")
        yield

    @contextmanager
    def nothing(scope: ProbeScope) -> Iterator[Reader | None]:
        yield None

    clock, well = Clock(), Source()
    poller, readings, notes = poller_of(clock, broken, nothing, well.probe)
    poller.open()
    poller.tick()
    poller.close()
    assert len(readings) == 1
    assert notes == ["The source 0 probe could not be started: no such bus"]


def test_what_is_not_a_number_is_not_recorded() -> None:
    clock, source = Clock(), Source()
    source.value = float("nan")
    poller, readings, _ = poller_of(clock, source.probe)
    poller.open()
    poller.tick()
    poller.close()
    assert source.reads == 1 and readings == []


@pytest.mark.parametrize("look_s", [20e-6, 2e-4])
@pytest.mark.parametrize("reading_s", [0.0, 2e-3])
def test_neither_looks_nor_readings_take_more_than_their_share(look_s: float, reading_s: float) -> None:
    clock = Clock()
    source = Source(clock, reading_s)
    looks: list[float] = []

    def look(_: float) -> None:
        looks.append(clock.now_s)
        clock.work(look_s)

    poller, readings, _ = poller_of(clock, source.probe, sampler=look)
    poller.open()
    turn(poller, clock, 2.0)
    assert len(looks) >= min(0.012 / look_s, 95), "a short run has enough of them, however dear they are"
    turn(poller, clock, 118.0)
    poller.close()
    assert clock.cpu_s / 120.0 <= 0.003 and poller.cpu_s == pytest.approx(clock.cpu_s)
    assert len(looks) * look_s <= 0.015 + 120.0 * 0.001 + look_s and len(looks) >= 150
    if look_s == 20e-6:
        early = LOOKS * 0.02
        assert sum(at < 100.0 + early for at in looks) == pytest.approx(LOOKS, rel=0.1), "50 a second at first"
        assert len(looks) == pytest.approx(LOOKS + LOOKS * math.log(120.0 / early), rel=0.15), "ever fewer later"
    if not reading_s:
        assert len(readings) == pytest.approx(240, abs=5), "what is cheap is read twice a second"


def test_one_dear_look_slows_a_run_down_for_a_moment() -> None:
    """A garbage collection may fall into any."""
    clock = Clock()
    looks: list[float] = []

    def look(_: float) -> None:
        looks.append(clock.now_s)
        clock.work(0.02 if len(looks) == 20 else 2e-5)

    poller, _, _ = poller_of(clock, sampler=look)
    turn(poller, clock, 60.0)
    assert max(later - earlier for earlier, later in pairwise(looks)) < 0.7 and len(looks) > 400


def test_the_looks_are_not_periodic_and_the_users_random_state_stands_still() -> None:
    clock = Clock()
    state = random.getstate()
    poller, _, _ = poller_of(clock, sampler=lambda _: None)
    waits = []
    for _ in range(50):
        poller.tick()
        waits.append(poller._next_look_s - clock.now_s)
        clock.now_s += waits[-1] + 1e-9
    assert random.getstate() == state
    assert len(set(waits)) > 40
    assert 0.0159 < min(waits) < 0.018 and 0.022 < max(waits) < 0.0241


def test_a_sampler_that_fails_is_taken_off_and_the_probes_go_on() -> None:
    def broken(_: float) -> None:
        raise RuntimeError("no frame")

    clock, source = Clock(), Source()
    poller, readings, notes = poller_of(clock, source.probe, sampler=broken)
    poller.open()
    turn(poller, clock, 0.9)
    poller.close()
    assert notes == ["Line timings stopped: no frame. Other measurements go on."] and len(readings) == 2


def test_the_thread_reads_at_start_and_at_stop_and_is_gone_then() -> None:
    read, looked = threading.Event(), threading.Event()
    source = Source()
    poller = Poller(
        [("source", source.probe)],
        lambda metric, at, value: read.set(),
        note=lambda text: pytest.fail(text),
        sampler=lambda _: looked.set(),
    )
    poller.start()
    thread = next(one for one in threading.enumerate() if one.name == "gpu_doctor-poller")
    assert thread.daemon
    assert read.wait(5) and looked.wait(5)
    time.sleep(0.11)  # a reading at the end needs some time behind it
    poller.stop(timeout=30.0)
    assert not thread.is_alive()
    assert source.reads == 2 and source.closed == 1
    assert 0 < poller.cpu_s < 1
    poller.stop()
    poller.start()  # a used one is not started again
    assert not any(one.name == "gpu_doctor-poller" for one in threading.enumerate())


def test_an_interrupt_while_the_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = sys.getswitchinterval()

    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    poller = Poller([], lambda *_: None, note=print, sampler=lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            poller.start()
    poller.stop()
    assert sys.getswitchinterval() == interval


def test_stop_before_start_and_a_reading_that_hangs() -> None:
    Poller([], lambda *_: None, note=print).stop()
    release = threading.Event()
    added: list[Any] = []
    notes: list[str] = []

    @contextmanager
    def hanging(scope: ProbeScope) -> Iterator[Reader | None]:
        def read() -> list[Reading]:
            release.wait(10)
            return [(WATTS, 1.0)]

        yield read

    poller = Poller([("hanging", hanging)], lambda *reading: added.append(reading), note=notes.append)
    poller.start()
    poller.stop(timeout=0.05)
    assert len(notes) == 1 and "took too long" in notes[0]
    release.set()
    poller.stop(timeout=5)
    assert added == []  # a late reading belongs to no run


def test_a_finalizer_that_falls_to_the_thread_is_waited_for() -> None:
    """Python collects the user's garbage on any thread, and torch's loaders wait there for their workers."""
    begun, release = threading.Event(), threading.Event()
    notes: list[str] = []

    class Forgotten:
        def __del__(self) -> None:
            begun.set()
            release.wait(20)

    def look(_: float) -> None:
        Forgotten()

    poller = Poller([], lambda *_: None, note=notes.append, sampler=look)
    poller.start()
    assert begun.wait(20)
    end = threading.Timer(0.3, release.set)
    end.start()
    poller.stop(timeout=0.05)
    assert not any(one.name == "gpu_doctor-poller" for one in threading.enumerate())
    assert not any("took too long" in one for one in notes)
    end.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_may_stop_it_without_waiting_for_anything() -> None:
    poller = Poller([], lambda *_: None, note=print, sampler=lambda _: None)
    poller.start()
    children = []
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                poller.stop()
                os._exit(0)
            children.append(child)
        deadline = time.monotonic() + 20
        while children and time.monotonic() < deadline:
            done, status = os.waitpid(children[0], os.WNOHANG)
            if done:
                assert os.waitstatus_to_exitcode(status) == 0
                children.pop(0)
            else:
                time.sleep(0.005)
    finally:
        poller.stop()
    assert not children, "a forked child hangs"
