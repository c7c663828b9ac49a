"""A side of a trial that reaches no step is ended; interrupts of others are handled as they want it."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture import Recorder
from gpu_doctor.capture.patching import Patches, active
from gpu_doctor.capture.record import running
from gpu_doctor.trials import interrupts, side_budget
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.side_budget import SideBudget

Patience: TypeAlias = Callable[[Callable[[Recorder], bool]], None]
STUCK = "for _ in range(6000): time.sleep(0.1)"
"""Longer than any test may take."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for a set-up, a tenth of a second's grace: for code that would never reach a step."""
    monkeypatch.setattr(side_budget, "SETUP_S", 0.5)
    monkeypatch.setattr(interrupts, "STOP_PATIENCE_S", 0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """Has the patience with a side end where a test says, however long a busy machine takes to get there."""
    monkeypatch.setattr(interrupts, "STOP_PATIENCE_S", 0.1)

    def until(stuck: Callable[[Recorder], bool]) -> None:
        monkeypatch.setattr(SideBudget, "patience_s", lambda budget: 0.0 if stuck(budget.recorder) else 0.02)

    return until


@pytest.mark.parametrize(
    "cell",
    [
        STUCK,
        f"try:\n    {STUCK}\nexcept KeyboardInterrupt:\n    pass",
        f"try:\n    {STUCK}\nexcept KeyboardInterrupt:\n    raise SystemExit(1)",
    ],
)
def test_a_side_that_reaches_no_step_is_ended(cell: str, short: None) -> None:
    """Whatever the code makes of our interrupt; the other side, which would be no better, is not begun."""
    space: dict[str, Any] = {"time": time, "made": []}
    case = gpu_doctor.case(f"made.append(1)\n{cell}", space)
    effect = case.trial({}, seconds=1.0)
    assert effect.outcome == "budget-reached" and effect.reason.startswith("no training step within ")
    assert f"nothing was measured: {effect.reason}; took " in str(effect)
    assert space["made"] == []


def test_a_candidate_that_reaches_no_step_ends_the_trial(patient: Patience) -> None:
    cell = (
        "if turns.pop(): time.sleep(600)\n"
        "for _ in range(4):\n    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()"
    )
    model = nn.Linear(2, 2)
    turns, taken = iter([False, True, True]), list[bool]()

    class Turns:
        __module__ = "torch._turns"  # the trial does not put these back

        def pop(self) -> bool:
            taken.append(next(turns))
            return taken[-1]

    patient(lambda recorder: any(taken))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    space = {"time": time, "turns": Turns(), "model": model, "optimizer": optimizer, "x": torch.ones(1, 2)}
    effect = gpu_doctor.case(cell, space).trial({}, seconds=1.0)
    assert effect.outcome == "budget-reached" and effect.reason.startswith("no training step within ")
    assert next(turns)  # the third side was not begun


def test_the_users_own_run_is_left_alone(short: None) -> None:
    case = gpu_doctor.case("time.sleep(1.0)", {"time": time})
    assert case.run(seconds=0.1).outcome == "completed"


TRAINS = "for _ in range(6):\n    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()\n"


def training() -> dict[str, Any]:
    """Names for a loop, and time."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"time": time, "model": model, "optimizer": optimizer, "x": torch.ones(1, 2)}


def test_a_set_up_that_takes_longer_than_the_seconds_leaves_them_whole() -> None:
    """0.3 of 0.4 s is one side's part: before, a second of set-up ended it at its first step."""
    cell = f"time.sleep(1.0)\n{TRAINS.replace('6', '30')}"
    effect = gpu_doctor.case(cell, training()).trial({}, seconds=0.4, pairs=1)
    assert effect.speedup is not None


def test_a_side_that_goes_on_after_its_steps_is_left_alone_for_a_while() -> None:
    case = gpu_doctor.case(f"{TRAINS}time.sleep(0.5)", training())
    assert case.measured(seconds=60.0).outcome == "completed"


@pytest.mark.parametrize("steps", [1, 6])
def test_a_side_that_reaches_no_further_step_is_ended_and_its_steps_are_kept(steps: int, patient: Patience) -> None:
    """The last step counts, too, though its end is only told by the next one's begin."""
    patient(lambda recorder: recorder.log.stepped == steps)
    cell = TRAINS.replace("6", str(steps)) + STUCK
    recording = gpu_doctor.case(cell, training()).measured(seconds=60.0)
    assert (recording.outcome, recording.reason) == ("budget-reached", "")
    assert len(recording.steps) == steps


def test_a_stop_wins_over_the_guard(patient: Patience) -> None:
    case = gpu_doctor.case(STUCK, {"time": time})

    def stopped(recorder: Recorder) -> bool:
        case.stop()
        return recorder.ending == "stopped"

    patient(stopped)
    assert case.trial({}, seconds=5.0).outcome == "stopped"


def test_a_call_that_no_interrupt_reaches_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "STOP_PATIENCE_S", 0.05)
    deaf = "    try:\n        time.sleep(0.01)\n    except KeyboardInterrupt:\n        pass"
    cell = f"begun.set()\nwhile not free.is_set():\n{deaf}"
    begun, free, told = threading.Event(), threading.Event(), list[str]()
    case = gpu_doctor.case(cell, {"time": time, "begun": begun, "free": free})

    def stop() -> None:
        begun.wait()
        case.stop()
        while not told or (time.monotonic() < until and not re.search(r"line [1-6]\)", told[-1])):
            told.append(case.progress)
            time.sleep(0.01)
        free.set()

    until = time.monotonic() + 20.0
    threading.Thread(target=stop).start()
    assert case.trial({}, seconds=5.0).outcome == "stopped"
    assert re.search(r"line [1-6]\)", told[-1])
    assert not interrupts._unheard


def test_an_interrupt_that_is_ignored_or_handled_by_others_stays_so() -> None:
    handled: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_IGN, lambda number, frame: handled.append(number)):
            signal.signal(signal.SIGINT, handler)
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
                assert handled == []
        assert handled == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)


INTERRUPTED = """
import signal
def begin():
    made.append(1)
    if interrupts.pop(): signal.raise_signal(signal.SIGINT)
def step(): optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


HANDLED = {
    "saved": "try:\n    step(); begin()\n    for _ in range(30): step()\nexcept KeyboardInterrupt: made.append(2)",
    "passed over": "for i in range(30):\n    try: step(); i or begin()\n    except KeyboardInterrupt: pass",
    "another exception": "step()\ntry: begin()\nexcept KeyboardInterrupt: raise SystemExit(1)",
    "not handled": "step()\nbegin()",
    "no further step": f"step()\ntry: begin()\nexcept KeyboardInterrupt: pass\n{STUCK}",
}


@pytest.mark.parametrize(("how", "side"), [*((how, 0) for how in HANDLED), *((how, 1) for how in list(HANDLED)[:4])])
def test_an_interrupt_ends_a_trial_whatever_the_cell_makes_of_it(how: str, side: int, patient: Patience) -> None:
    patient(lambda recorder: how == "no further step" and recorder.ending == "interrupted")
    turns = iter([number == side for number in range(2)])

    class Turns:
        __module__ = "torch._turns"  # the trial does not put these back

        def pop(self) -> bool:
            return next(turns)

    space = {**training(), "interrupts": Turns(), "made": []}
    weight, before = space["model"].weight.clone(), signal.getsignal(signal.SIGINT)
    case = gpu_doctor.case(INTERRUPTED + HANDLED[how], space)
    with pytest.raises(KeyboardInterrupt):
        case.trial({}, steps=20, seconds=2.0, pairs=2)
    if side:  # without a candidate there is no effect
        assert case.trials[-1][1].outcome == case.effects[-1].outcome == "interrupted"
    assert torch.equal(space["model"].weight, weight) and space["made"] == []
    assert signal.getsignal(signal.SIGINT) is before and next(turns, None) is (None if side else False)
    assert active() == ()


def test_what_a_trials_cell_handles_of_signals_ends_with_it() -> None:
    cell = """
import signal
signal.signal(signal.SIGINT, lambda number, frame: None)
signal.signal(signal.SIGTERM, lambda number, frame: None)
for _ in range(4):
    model(x).sum().backward(); optimizer.step()
"""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    case = gpu_doctor.case(cell, {"model": model, "optimizer": optimizer, "x": torch.ones(1, 2)})
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert case.trial({}, seconds=5.0, pairs=1).outcome == "completed"
    case.measured(steps=2, seconds=5.0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_alarm_that_a_trials_cell_has_set_does_not_ring_after_it() -> None:
    cell = """
import signal
signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.setitimer(signal.ITIMER_REAL, 600.0)
for _ in range(4):
    model(x).sum().backward(); optimizer.step()
"""
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0.0)  # this test's own time limit
    try:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        case = gpu_doctor.case(cell, {"model": model, "optimizer": optimizer, "x": torch.ones(1, 2)})
        assert case.trial({}, seconds=5.0, pairs=1).outcome == "completed"
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.parametrize("name", ["ITIMER_VIRTUAL", "ITIMER_PROF"])
def test_a_timer_of_cpu_seconds_that_a_trials_cell_has_set_does_not_ring_after_it(name: str) -> None:
    timer = getattr(signal, name)
    model = nn.Linear(2, 2)
    space = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "x": torch.ones(1, 2)}
    cell = f"import signal\nsignal.setitimer(signal.{name}, 600.0)\n"
    case = gpu_doctor.case(cell + "for _ in range(4):\n    model(x).sum().backward(); optimizer.step()", space)
    try:
        assert case.trial({}, seconds=5.0, pairs=1).outcome == "completed"
        assert signal.getitimer(timer) == (0.0, 0.0)
    finally:
        signal.setitimer(timer, 0.0)


@pytest.mark.parametrize(("code", "outcome"), [("", "completed"), ("0", "completed"), ("1", "failed")])
def test_a_cell_that_exits_by_itself_has_ended(code: str, outcome: str) -> None:
    cell = f"for _ in range(4):\n    model(x).sum().backward(); optimizer.step()\nraise SystemExit({code})"
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    case = gpu_doctor.case(cell, {"model": model, "optimizer": optimizer, "x": torch.ones(1, 2)})
    with pytest.raises(SystemExit):
        case.run()
    assert case.recordings[-1].outcome == outcome
    assert case.trial({}, seconds=5.0, pairs=1).outcome == outcome


def test_an_interrupt_while_the_patches_are_taken_off_leaves_none_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is kept, and the interrupt is the user's own afterwards."""
    restore = Patches.restore

    def interrupted(self: Patches) -> None:
        signal.raise_signal(signal.SIGINT)
        restore(self)

    monkeypatch.setattr(Patches, "restore", interrupted)
    case = gpu_doctor.case("pass", {})
    for act in (case.run, lambda: case.trial({}, seconds=5.0)):
        with pytest.raises(KeyboardInterrupt):
            act()
        assert active() == ()
        assert running() is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [one.outcome for one in case.recordings] == ["interrupted"]


@pytest.mark.parametrize("number", [1, 4, 9, 15])
def test_an_interrupt_while_the_patches_are_put_on_leaves_none_on(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    register, calls = Patches._register, iter(range(1, 1000))

    def interrupted(self: Patches, label: str, undo: Any) -> None:
        register(self, label, undo)
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Patches, "_register", interrupted)
    before = open
    with pytest.raises(KeyboardInterrupt):
        gpu_doctor.case("pass", {}).trial({}, seconds=5.0)
    assert active() == ()
    assert open is before
    assert running() is None
