"""What a panel is fed with: the state after a run, and a feed that can be moved on."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Cursor, News, Recording, Steps
from gpu_doctor.report.panel import PanelInput
from tests.support.recordings import starved


def shown(recording: Recording, **fields: Any) -> PanelInput:
    """The panel after a run."""
    seen: dict[str, Any] = {
        "status": "idle",
        "setup": recording.setup,
        "diagnosis": diagnose(recording),
        "recordings": (recording,),
        "elapsed_s": recording.duration_s,
        "step_count": len(recording.steps),
        "samples_per_s": 3200.0,
    }
    return PanelInput(**{**seen, **fields})


class Script:
    """A feed that hands out prepared news, one after the other, then nothing new."""

    def __init__(self, *news: News) -> None:
        self._news = list(news)

    def news(self, cursor: Cursor) -> News:
        if self._news:
            return self._news.pop(0)
        empty = starved(steps=1).steps.rows(0, 0)
        return News(cursor, empty, (), reset=False, elapsed_s=1.0, step_count=0, done=False)


def news(steps: Steps, rows: int, reset: bool = False, done: bool = False, generation: int = 0) -> News:
    """News of steps that end at row `rows`."""
    return News(Cursor(generation, rows), steps, (), reset, 1.0, rows, done)


def replaced(steps: Steps, **columns: Any) -> Steps:
    return dataclasses.replace(steps, **columns)
