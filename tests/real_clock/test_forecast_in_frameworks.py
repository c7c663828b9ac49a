"""The forecast of two workers against the clock, in programs of frameworks: 2 ms a sample, slept, without workers."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from gpu_doctor.diagnosis.forecast.forecast import forecast
from tests.external import (
    test_accelerate,
    test_fastai,
    test_ignite,
    test_lightning,
    test_poutyne,
    test_skorch,
    test_transformers,
)
from tests.support.checks import Checks, sick
from tests.support.leftovers import one_thread as one_thread

PROGRAMS: dict[str, type[Checks]] = {
    "accelerate": test_accelerate.TestAccelerate,
    "fastai": test_fastai.TestFastai,
    "ignite": test_ignite.TestIgnite,
    "lightning": test_lightning.TestLightning,
    "poutyne": test_poutyne.TestPoutyne,
    "skorch": test_skorch.TestSkorch,
    "transformers": test_transformers.TestTransformers,
}
ROUNDS = 3


@pytest.mark.alone
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_workers_gain_what_was_forecast(name: str, tmp_path: Path) -> None:
    checks: Any = PROGRAMS[name]()
    _, case = checks.watched(sick(str(tmp_path)))
    told = forecast(case.diagnosis.vitals, {"num_workers": 2})
    took: dict[int, list[float]] = {0: [], 2: []}
    for _ in range(ROUNDS):
        for workers, seconds in took.items():
            begin = time.perf_counter()
            checks.bare(sick(str(tmp_path), workers))
            seconds.append(time.perf_counter() - begin)
    real = statistics.median(took[0]) / statistics.median(took[2])
    assert told is not None
    assert told.low <= real <= told.high, (told, took)
    assert told.low > 1.0  # an interval so wide that it says nothing would hold no gain too
