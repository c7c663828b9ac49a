"""The panel's promise, in virtual time: a verdict within 30 steps or 5 s, called early below 20 measured steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis.diagnosis import SURE_STEPS
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.notebook import live_view as module
from gpu_doctor.notebook.live_verdict import LiveVerdict
from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.recording import Recording, Setup
from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials import knobs
from tests.support.simulated_device import Noted

PROMISED_STEPS, PROMISED_S = 30, 5.0


class Notebook:
    """A loop, and the refresher that looks at it. Nobody sleeps: while the refresher waits, the loop goes on."""

    def __init__(self, step_s: float, before_s: float = 0.0, look_s: float = 0.0) -> None:
        """Steps of `step_s` begin after `before_s`; a look takes `look_s` of a core, the first one five times.

        The cell holds the interpreter: a diagnosis lasts three times as long as it computes.
        """
        self.step_s, self.before_s, self.look_s = step_s, before_s, look_s
        self.until_s = before_s + PROMISED_S + PROMISED_STEPS * step_s
        self.now_s = self.cpu_s = 0.0
        self.steps = 0
        self.seen: list[tuple[float, int, int, dict[str, Any]]] = []
        """Of every look: seconds and steps since the loop began, steps measured, and the verdict that was shown."""
        self.recorder = Recorder(clock=lambda: round(self.now_s * 1e9))
        self.verdict = LiveVerdict()
        self.dashboard = Dashboard(self.look, lambda request: None, knobs.KNOBS, gpus=())
        self.dashboard.view.send = self.shown
        self.dashboard._stopping = cast(threading.Event, SimpleNamespace(is_set=self.over, wait=self.wait))
        self.dashboard.follow(self.recorder)
        self._loop = self._steps()
        self._due_s = before_s
        self._state: dict[str, Any] = {}

    def refresh(self) -> None:
        """The refresher, from the cell's first line to its last."""
        self.dashboard._refresh()
        assert not self.dashboard.failure

    def look(self) -> PanelInput:
        self.cpu_s += self.look_s * (1 if self.seen else 5)
        diagnosis = self.verdict.on(self.recorder.step_count, self.so_far)
        self.measured = 0 if diagnosis is None else diagnosis.vitals.measured_steps
        return PanelInput(status="recording", setup=Setup(), diagnosis=diagnosis)

    def so_far(self) -> Recording:
        """Read for a diagnosis, which takes its time."""
        self.now_s += 3 * self.look_s
        return self.recorder.so_far()

    def shown(self, content: dict[str, Any], buffers: Any = None) -> None:
        self._state |= content["state"]
        self.seen.append((self.now_s - self.before_s, self.steps, self.measured, self._state["verdict"]))

    def over(self) -> bool:
        return self.now_s >= self.until_s

    def wait(self, seconds: float) -> None:
        """The loop runs meanwhile, in its own steps."""
        end_s = self.now_s + seconds
        while self._due_s < end_s:
            self.now_s = max(self.now_s, self._due_s)
            next(self._loop)
            self._due_s = self.now_s
        self.now_s = max(self.now_s, end_s)

    def _steps(self) -> Iterator[None]:
        """A loop that waits for data half of the time."""
        told = Noted(self.recorder)
        while True:
            told.ask()
            self.now_s += self.step_s / 2
            told.batch()
            told.forward()
            self.now_s += self.step_s / 8
            told.called()
            told.backward()
            self.now_s += self.step_s / 4
            told.backed()
            told.step()
            self.now_s += self.step_s / 8
            told.stepped()
            self.steps += 1
            yield


@pytest.fixture(autouse=True)
def virtual_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the refresher takes is what the notebook says that a look takes."""

    def took() -> float:
        return RUNNING[-1].cpu_s if RUNNING else 0.0

    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=took, monotonic=time.monotonic))
    RUNNING.clear()


RUNNING: list[Notebook] = []


def watched(**words: float) -> Notebook:
    """A notebook whose cell has run."""
    RUNNING.append(Notebook(**words))
    RUNNING[-1].refresh()
    return RUNNING[-1]


@pytest.mark.parametrize("look_s", [0.0, 0.004, 0.02, 0.05])
@pytest.mark.parametrize("before_s", [0.0, 40.0])
@pytest.mark.parametrize("step_s", [0.005, 0.02, 0.3, 1.0])
def test_the_first_verdict_comes_within_thirty_steps_or_five_seconds(
    step_s: float, before_s: float, look_s: float
) -> None:
    notebook = watched(step_s=step_s, before_s=before_s, look_s=look_s)
    at_s, steps = next((at, steps) for at, steps, _, said in notebook.seen if not said["text"].startswith("Listening"))
    assert at_s <= PROMISED_S or steps <= PROMISED_STEPS


def test_a_verdict_is_early_until_twenty_steps_are_measured() -> None:
    seen = [(measured, said) for _, _, measured, said in watched(step_s=0.5).seen]
    assert {0, FEWEST_STEPS - 1, FEWEST_STEPS} <= {measured for measured, _ in seen}
    assert max(measured for measured, _ in seen) >= SURE_STEPS
    for measured, said in seen:
        assert said["text"].startswith("Listening") == (measured < FEWEST_STEPS)
        assert bool(said["early"]) == (FEWEST_STEPS <= measured < SURE_STEPS)
