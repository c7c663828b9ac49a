"""A panel's visit without a kernel, for tests of what its buttons do."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from gpu_doctor.notebook import actions


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
    """A panel of which only what a request touches is there; it writes down what the page was shown."""

    def __init__(self, trial: Callable[..., Any] = lambda settings, **budget: None) -> None:
        self.status, self.message = "idle", ""
        self.case: Any = types.SimpleNamespace(
            plans=[], trial=trial, reached={}, stop=lambda: self.seen.append("stopped")
        )
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
    monkeypatch.setattr(actions, "get_ipython", lambda: shell)
    return free
