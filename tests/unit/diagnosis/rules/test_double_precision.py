"""double-precision: float64 where float32 would do, priced only where the arithmetic takes its time."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "double-precision"
DOUBLES: dict[str, Any] = {
    "dtype": "float64",
    "parameters": 450_000,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(64, 256), dtype="float64"),
    "model": ModelFacts({"cpu": 8_000_000}, {"float64": 8_000_000}),
}
COMPUTING = Loop(forward=4.0, backward=8.0, optimizer=1.0, setup=DOUBLES)
"""12 of these 13 ms are forward and backward."""


def test_sick() -> None:
    found = sick(RULE, COMPUTING)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.5 * 12 / 13, rel=0.01)
    assert "8 MiB of 8 MiB" in found.evidence[0] and "half of it" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "model.float()" in cure.code and cure.changes and cure.predicted_speedup is None
    assert top(COMPUTING) == RULE


def test_on_a_gpu_all_that_it_computes() -> None:
    busy = on_gpu(setup={**DOUBLES, "model": ModelFacts({"cuda:0": 8_000_000}, {"float64": 8_000_000})})
    assert sick(RULE, busy).cost_share == pytest.approx(1.0, abs=0.01)
    assert "full-precision" not in named(busy) and "tf32-off" not in named(busy)
    assert RULE not in named(busy.but(caught_up=1.0, gpu_util=40.0))  # it waits for launches


def test_well() -> None:
    single = {**DOUBLES, "dtype": "float32", "model": ModelFacts({"cpu": 4_000_000}, {"float32": 4_000_000})}
    assert asked(RULE, COMPUTING.but(setup=single)) is None


def test_a_loop_that_waits_for_its_data_gains_nothing() -> None:
    assert RULE not in named(COMPUTING.but(wait=130.0, setup={**DOUBLES, "parameters": 225_000}))


def test_what_lies_in_the_same_seconds_is_told_once() -> None:
    """The dearest of the state; gradients of the backward and a teacher's forward are apart."""
    unfrozen = ModelFacts({"cpu": 8 << 20}, {"float64": 8 << 20}, unstepped=5, unstepped_place="a", spared_share=1.0)
    both = COMPUTING.but(setup={**DOUBLES, "model": unfrozen})
    assert named(both)[:1] == ["unused-gradients"] and RULE not in named(both)
