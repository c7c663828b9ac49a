"""What the tests of dashboard share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.recording import Replay
from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials import knobs
from tests.support.recordings import starved


class Noted(Replay):
    """A replay that takes notes, as a recorder does."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


class Bench:
    """A dashboard over a replay, whose messages are kept instead of sent."""

    def __init__(self) -> None:
        self.recording = starved(gpu=True, steps=100)
        self.replay = Noted(self.recording, 1.0)
        self.input = PanelInput(status="recording", setup=self.recording.setup)
        self.requests: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.page: dict[str, list[float]] = {}
        self.dashboard = Dashboard(self.look, self.requests.append, knobs.KNOBS, gpus=(0,))
        self.dashboard.view.send = self.send
        self.failing: Exception | None = None

    def look(self) -> PanelInput:
        if self.failing is not None:
            raise self.failing
        return self.input

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        """Does what the page does with a message."""
        self.messages.append(content)
        self.take(content["rows"], buffers[0])

    def take(self, head: dict[str, Any], data: bytes) -> None:
        values, at = np.frombuffer(data, "<f4"), 0
        for name in list(self.page):
            if name.partition(":")[0] in head["clear"]:
                self.page[name] = []
        for layer, key, count, whole in head["lines"]:
            y = values[at + count : at + 2 * count].tolist()
            self.page[f"{layer}:{key}"] = y if whole else self.page[f"{layer}:{key}"] + y
            at += 2 * count
        assert at == len(values)


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.dashboard.stop()
    one.dashboard.view.close()
