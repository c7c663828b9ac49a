"""Runs end cleanly: nothing of a run is left in memory, in the process or on the screen, whenever it is stopped."""

from __future__ import annotations

import functools
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture import record
from gpu_doctor.capture.record import running
from gpu_doctor.recording import Recording
from gpu_doctor.trials import interrupts as stopping
from gpu_doctor.trials import run
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support import small_loop
from tests.support.faster import make_trials_faster

LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    pause()
    optimizer.step()
"""


def namespace(data: small_loop.Rows | None = None, workers: int = 0) -> dict[str, Any]:
    return small_loop.namespace(data, workers=workers, pause=lambda: None)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The collector of reference circles is off."""
    namespace()  # torch's own imports at the first optimizer leave circles that know this frame's callers
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_the_model_dies_with_its_last_name(uncollected: None) -> None:
    space = namespace()
    case = gpu_doctor.case(LOOP, space)
    case.run(steps=3)
    model = weakref.ref(space["model"])
    space.clear()
    assert model() is None


def test_what_a_failing_loop_held_dies_with_its_error(uncollected: None) -> None:
    held: list[weakref.ref[Any]] = []

    def train() -> None:
        big = nn.Linear(1, 1)
        held.append(weakref.ref(big))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        gpu_doctor.case(train).run()
    del raised
    assert held[0]() is None


def test_an_interrupt_while_a_run_begins_leaves_no_run_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(record, "driver_version", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpu_doctor.case(LOOP, namespace()).run()
    assert running() is None


def test_a_late_stop_does_not_interrupt_the_end_of_the_workers(capfd: pytest.CaptureFixture[str]) -> None:
    slow = small_loop.Rows(sleep_s=0.4)  # a worker cannot end any sooner
    space = namespace(slow, workers=1)
    case = gpu_doctor.case(LOOP, space)
    space["pause"] = case.stop  # the loop asks for its next batch at once; its worker needs 1.6 s to end
    assert case.run().outcome == "stopped"
    assert "KeyboardInterrupt" not in capfd.readouterr().err


def stop_at_restore(monkeypatch: pytest.MonkeyPatch, case: Case, number: int) -> None:
    """Stop arrives while the state is put back for the `number`-th time."""
    restore, times = Snapshot.restore, iter(range(1, 100))

    def restoring(self: Snapshot) -> tuple[str, ...]:
        if next(times) == number:
            case.stop()
        return restore(self)

    monkeypatch.setattr(Snapshot, "restore", restoring)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_stop_between_the_sides_ends_the_trial(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.run(steps=5)
    stop_at_restore(monkeypatch, case, number)
    assert case.trial({"batch_size": 8}, steps=5, seconds=5).outcome == "stopped"


def test_a_stop_between_the_sides_ends_the_treatment(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.run(steps=5)
    sizes = iter((8, 16, 32))
    advice = "gpu_doctor.trials.treat.moves"
    monkeypatch.setattr(advice, lambda *given: iter([SimpleNamespace(settings={"batch_size": next(sizes)})]))
    stop_at_restore(monkeypatch, case, 1)
    plan = case.treat(max_trials=3, steps=5, seconds=5)
    assert [effect.outcome for effect in plan.effects] == ["stopped"]


def test_a_stop_while_the_state_is_kept_ends_the_trial_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    take = Snapshot.take

    def taking(*args: Any, **kwargs: Any) -> Snapshot:
        case.stop()
        return take(*args, **kwargs)

    monkeypatch.setattr(Snapshot, "take", taking)
    effect = case.trial({"batch_size": 8}, steps=5, seconds=5)
    assert (effect.outcome, case.trials) == ("stopped", [])


def test_the_setup_as_written_is_not_that_of_a_kept_setting() -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.trial({"batch_size": 16}, steps=3, seconds=2, pairs=1)
    case.trial({"batch_size": 16}, steps=3, seconds=2, pairs=1, against={"batch_size": 8})
    assert case.found is not None
    assert [loader.batch_size for loader in case.found.loaders] == [4]


def test_a_treatment_starts_from_the_code_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.run(steps=3)
    case.run({"batch_size": 8}, steps=3)
    judged: list[Recording] = []

    def diagnosing(recording: Recording) -> Any:
        judged.append(recording)
        return gpu_doctor.diagnose(recording)

    monkeypatch.setattr("gpu_doctor.trials.treat.diagnose", diagnosing)
    make_trials_faster(monkeypatch)
    case.treat(max_trials=1, steps=5)
    assert dict(judged[0].settings) == {}


def test_a_partial_is_code_too() -> None:
    ran: list[int] = []
    gpu_doctor.case(functools.partial(ran.append, 1)).run()
    assert ran == [1]


def test_a_case_made_inside_a_recorded_run_is_not_the_newest() -> None:
    outer = gpu_doctor.case(lambda: gpu_doctor.case("1 + 1"))
    outer.run()
    assert gpu_doctor.last_case() is outer


def test_no_thread_of_a_stop_outlives_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that did not hear of the run's end would wait for as long as a test may take."""
    monkeypatch.setattr(stopping, "STOP_PATIENCE_S", 600.0)
    space = namespace()
    case = gpu_doctor.case(LOOP, space)
    space["pause"] = case.stop
    case.run()
    for thread in threading.enumerate():
        if thread.name == "gpu_doctor-stop":
            thread.join(60.0)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 B.",
    ],
)
def test_every_allocator_is_understood(said: str) -> None:
    assert run.is_out_of_memory(RuntimeError(said))
    assert not run.is_out_of_memory(ValueError(said))


def test_what_torch_really_says_where_the_memory_of_the_cpu_ends_is_out_of_memory() -> None:
    recording = gpu_doctor.case("torch.empty(1 << 50)", {"torch": torch}).trial({}, steps=1, seconds=5)
    assert recording.outcome == "out-of-memory"


def test_two_quick_stops_interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that reaches no tap: the second interrupt would meet what its `finally` still has to do."""
    interrupts: list[float] = []
    interrupt = stopping.interrupt_main

    def interrupting() -> None:
        interrupts.append(time.monotonic())
        interrupt()

    monkeypatch.setattr(stopping, "interrupt_main", interrupting)
    cell = "click(); click(); click()\ntry:\n    for _ in range(6000): time.sleep(0.1)\n"
    cell += "finally:\n    time.sleep(1.5)\n    put_away.append(1)"
    space: dict[str, Any] = {"time": time, "put_away": []}
    case = gpu_doctor.case(cell, space)
    space["click"] = case.stop
    assert case.run().outcome == "stopped"
    assert (len(interrupts), space["put_away"]) == (1, [1])
