"""The forecast of two workers against the clock, in programs of frameworks: 2 ms a sample, slept, without workers."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from gpu_doctor.diagnosis.forecast.forecast import forecast
from tests.support.checks import Checks, sick
from tests.support.framework_programs import accelerate, fastai, ignite, lightning, poutyne, skorch, transformers
from tests.support.leftovers import one_thread as one_thread
from tests.support.programs import Program

PROGRAMS: dict[str, Program] = {
    "accelerate": accelerate.program,
    "fastai": fastai.program,
    "ignite": ignite.program,
    "lightning": lightning.program,
    "poutyne": poutyne.program,
    "skorch": skorch.program,
    "transformers": transformers.program,
}
ROUNDS = 2
FIRST = 10
"""Steps that are left out: workers start, and their first batches come late."""


@pytest.mark.alone
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_workers_gain_what_was_forecast(name: str, tmp_path: Path) -> None:
    checks = Checks()
    checks.program = PROGRAMS[name]
    _, case = checks.watched(sick(str(tmp_path)))
    told = forecast(case.diagnosis.vitals, {"num_workers": 2})
    took: dict[int, list[float]] = {0: [], 2: []}
    for _ in range(ROUNDS):
        for workers, seconds in took.items():
            plan = sick(str(tmp_path), workers)
            checks.bare(plan)
            steps = plan.hand.stepped_at[FIRST:]
            seconds.append((steps[-1] - steps[0]) / (len(steps) - 1))
    real = statistics.median(took[0]) / statistics.median(took[2])
    assert told is not None
    assert told.low <= real <= told.high, (told, took)
    assert told.low > 1.0  # an interval so wide that it says nothing would hold no gain too
