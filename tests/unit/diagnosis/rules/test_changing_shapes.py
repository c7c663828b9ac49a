"""changing-shapes: the first step with each new shape is slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop

RULE = "changing-shapes"
INPUTS = InputFacts(looked_at=100, shapes=30, shape=(32, 128), new_shape_steps=29, new_shape_s=0.4)
NET = ModelFacts(convolutions=3, compiled=True)
SICK = Loop(setup={"inputs": INPUTS, "model": NET, "flags": {"cudnn_benchmark": True}})


def with_inputs(**changes: float) -> Loop:
    return Loop(setup={"inputs": replace(INPUTS, **changes)})  # type: ignore[arg-type]


def test_sick() -> None:
    found = sick(RULE, SICK)  # 1.02 s in all
    assert found.cost_share == pytest.approx(0.4 / 1.02, rel=0.01)
    assert found.kind == "lost"
    assert [one.safety.value for one in found.prescriptions] == ["by-hand"] * 3
    assert "dynamic=True" in found.prescriptions[1].code and "benchmark" in found.prescriptions[2].code
    assert top(SICK) == RULE


def test_convolutions_of_volumes_are_timed_anew_too() -> None:
    volumes = SICK.but(setup={**SICK.setup, "model": ModelFacts(compiled=True), "layers": {"Conv3d": 9}})
    assert "benchmark" in sick(RULE, volumes).prescriptions[2].code


def test_only_cures_that_fit_are_prescribed() -> None:
    assert len(sick(RULE, with_inputs()).prescriptions) == 1


def test_well() -> None:
    assert asked(RULE, Loop()) is None  # nobody looked
    assert asked(RULE, with_inputs(shapes=2, new_shape_steps=1)) is None


def test_shapes_that_change_and_cost_nothing() -> None:
    assert asked(RULE, with_inputs(new_shape_s=0.0)) is None
    assert RULE not in named(with_inputs(new_shape_s=0.01))


def test_nothing_to_compare_is_no_cost() -> None:
    assert asked(RULE, with_inputs(new_shape_s=float("nan"))) is None


def test_buckets_that_have_all_been_seen() -> None:
    assert asked(RULE, with_inputs(new_late=2)) is None
    assert sick(RULE, with_inputs(new_late=7)).cost_share > 0.3
