"""What the panel asks for waits for the kernel's loop and can be withdrawn; an interrupt keeps what was measured."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from gpu_doctor.notebook import errands
from gpu_doctor.notebook.errands import Errands


class Loop:
    """The kernel's loop: callbacks wait until it is free."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def add_callback(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def is_free(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Visited:
    """A visit of which only what an errand touches is there; it writes down what the page was shown."""

    def __init__(self, trial: Callable[..., Any] = lambda settings, steps: None) -> None:
        self.status, self.message, self.plan = "idle", "", None
        self.case: Any = types.SimpleNamespace(plans=[], trial=trial, stop=lambda: self.seen.append("stopped"))
        self.seen: list[str] = []

    def busy(self, status: str) -> None:
        self.status = status

    def redraw(self) -> None:
        self.seen.append(self.status)

    def settle(self) -> None:
        self.status = "idle"
        self.seen.append("settled")


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    free = Loop()
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(io_loop=free))
    monkeypatch.setattr(errands, "get_ipython", lambda: shell)
    return free


def test_an_interrupted_treatment_shows_the_plan_so_far(loop: Loop) -> None:
    visit: Any = Visited()

    def treat(**given: Any) -> None:
        visit.case.plans.append("what was verified")
        raise KeyboardInterrupt

    visit.case.treat = treat
    Errands(visit).take({"ask": "treat"})
    loop.is_free()
    assert visit.plan == "what was verified"
    assert visit.message.startswith("Interrupted: everything that the trial touched was put back")
    assert (visit.status, visit.seen[-1]) == ("idle", "settled")
