"""dense-embedding-gradients: a whole table is written for a few of its rows."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts, OptimizerFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "dense-embedding-gradients"
TABLE = ModelFacts({"cpu": 52_000_000}, tables=("users: Embedding 200000 x 64",), table_elements=12_800_000)
SETUP: dict[str, Any] = {
    "model": TABLE,
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(256,), dtype="int64", device="cpu"),
    "optimizer_facts": (OptimizerFacts("SGD", 4, 12_900_000),),
}
TRAINING = Loop(forward=1.0, backward=10.0, optimizer=9.0, setup=SETUP)


def but(**changes: Any) -> Loop:
    return TRAINING.but(setup={**SETUP, **changes})


def test_sick() -> None:
    found = sick(RULE, TRAINING)
    stepping = 0.45 * 12.8 / 12.9
    assert found.kind == "at-most" and found.cost_share == pytest.approx((1 - 256 / 200_000) * 2 * stepping, rel=0.01)
    assert found.evidence[0] == "users: Embedding 200000 x 64" and "have 256 indices" in found.evidence[1]
    (cure,) = found.prescriptions
    assert cure.code == "nn.Embedding(rows, width, sparse=True)" and "same updates" in cure.changes
    assert top(TRAINING) == RULE


def test_writing_gradients_takes_no_more_than_stepping_by_them_nor_than_the_backward() -> None:
    """Gradients through time are no table's: a long backward changes nothing."""
    long = sick(RULE, TRAINING.but(backward=80.0))
    assert long.cost_share == pytest.approx((1 - 256 / 200_000) * 2 * 0.1 * 12.8 / 12.9, rel=0.01)
    short = sick(RULE, TRAINING.but(backward=1.0))
    assert short.cost_share == pytest.approx((9 * 12.8 / 12.9 + 1) / 11, rel=0.01)


def test_adam_gets_a_namesake_for_the_table() -> None:
    (cure,) = sick(RULE, but(optimizer_facts=(OptimizerFacts("Adam", 4, 12_900_000),))).prescriptions
    assert "SparseAdam" in cure.code and "compare the losses" in cure.changes


def test_well() -> None:
    assert asked(RULE, but(model=ModelFacts({"cpu": 52_000_000}))) is None


def test_a_batch_that_looks_up_much_of_the_table() -> None:
    assert asked(RULE, but(inputs=InputFacts(40, 1, (256, 128), "int64", "cpu"))) is None


def test_a_small_table_costs_nothing() -> None:
    small = ModelFacts({"cpu": 4_000_000}, tables=("words: Embedding 20000 x 4",), table_elements=80_000)
    assert asked(RULE, but(model=small, optimizer_facts=(OptimizerFacts("SGD", 4, 12_900_000),))) is None


def test_what_a_gpu_needs_for_it_is_not_known() -> None:
    assert asked(RULE, on_gpu(setup=SETUP)) is None


def test_inputs_that_are_no_indices_say_nothing() -> None:
    assert asked(RULE, but(inputs=InputFacts(40, 1, (256, 16), "float32", "cpu"))) is None


def test_indices_behind_other_inputs_count() -> None:
    """Of a model of many columns the first tensor is often the dense one."""
    beside = InputFacts(40, 1, (256, 16), "float32", "cpu", indices=256)
    assert sick(RULE, but(inputs=beside)).cost_share == sick(RULE, TRAINING).cost_share
    assert asked(RULE, but(inputs=InputFacts(40, 1, (256, 16), "float32", "cpu", indices=0))) is None
