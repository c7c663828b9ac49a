"""double-precision: float64 where float32 would do, priced only where the arithmetic takes its time."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick, surely, top
from tests.support.recordings import Loop, on_gpu, zipped

RULE = "double-precision"
DOUBLES: dict[str, Any] = {
    "dtype": "float64",
    "parameters": 450_000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(64, 256), dtype="float64"),
    "model": ModelFacts({"cpu": 8_000_000}, {"float64": 8_000_000}),
}
OPERATIONS = {"graph_operations": 60}
COMPUTING = Loop(forward=4.0, backward=8.0, optimizer=1.0, setup=DOUBLES)
"""12 of these 13 ms are forward and backward."""


def test_sick() -> None:
    found = sick(RULE, COMPUTING)
    assert found.cost_share == pytest.approx(0.5 * 12 / 13, rel=0.01)
    assert "8 MiB of 8 MiB" in found.evidence[0] and "measure it" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "model.float()" in cure.code and cure.changes and cure.predicted_speedup is None
    assert top(COMPUTING) == RULE


def test_on_a_gpu_half_of_what_it_computes_at_least() -> None:
    busy = on_gpu(setup={**DOUBLES, "model": ModelFacts({"cuda:0": 8_000_000}, {"float64": 8_000_000})})
    assert sick(RULE, busy).cost_share == pytest.approx(0.5, abs=0.01)
    assert "full-precision" not in named(busy) and "tf32-off" not in named(busy)
    assert RULE not in named(busy.but(caught_up=1.0, gpu_util=40.0))  # it waits for launches


def test_two_loaders_in_one_step_are_no_two_forwards() -> None:
    small = COMPUTING.but(setup={**DOUBLES, **OPERATIONS})
    assert surely(RULE, zipped(small.recording())).cost_share == pytest.approx(sick(RULE, small).cost_share)


def test_well() -> None:
    single = {**DOUBLES, "dtype": "float32", "model": ModelFacts({"cpu": 4_000_000}, {"float32": 4_000_000})}
    assert asked(RULE, COMPUTING.but(setup=single)) is None


def test_a_small_model_in_several_rounds_is_mostly_operations() -> None:
    """How much these take was timed for one backward alone: its few numbers tell that they are no matter."""
    few = {**DOUBLES, "parameters": 1_600, "inputs": InputFacts(40, 1, (1, 16), "float64")}
    assert asked(RULE, COMPUTING.but(setup=few)) is None


def test_a_loop_that_waits_for_its_data_gains_nothing() -> None:
    assert RULE not in named(COMPUTING.but(wait=130.0, setup={**DOUBLES, "parameters": 225_000}))
