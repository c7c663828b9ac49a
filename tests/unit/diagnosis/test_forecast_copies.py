"""Copies to the GPU forecast: at most all of the time in which it waits for them. GPU: recordings, none run."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import BAND
from gpu_doctor.recording import Settings
from tests.support.recordings import Loop, on_gpu

PAGEABLE = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, workers=4, loader={"num_workers": 4})
"""The GPU waits 5 ms of 15 for copies."""


def test_a_gain_lies_between_nothing_and_all_exposed_copies() -> None:
    found = forecast(PAGEABLE.vitals(), {"pin_memory": True})
    assert found is not None
    assert 1.0 < found.speedup < 1.5
    assert found.low < 1.0 and found.high >= 1.5 * (1.0 + BAND)


def test_what_is_hidden_behind_the_gpu_gains_nothing() -> None:
    found = forecast(PAGEABLE.but(gpu_gap=0.05, gpu_work=14.95).vitals(), {"pin_memory": True})
    assert found is None or found.speedup < 1.01


@pytest.mark.parametrize(
    ("loop", "settings"),
    [
        (Loop(transfer=5.0), {"pin_memory": True}),  # no GPU is invented
        (PAGEABLE.but(pageable=0.0), {"pin_memory": True}),  # nothing to pin
        (PAGEABLE.but(workers=0, loader={}), {"pin_memory": True}),  # the loop itself would have to pin
        (PAGEABLE, {"pin_memory": True, "prefetch_factor": 8}),
        (PAGEABLE, {"pin_memory": True, "num_workers": 8}),
        (PAGEABLE, {"pin_memory": False}),
    ],
)
def test_what_cannot_be_known_is_none(loop: Loop, settings: Settings) -> None:
    assert forecast(loop.vitals(), settings) is None
