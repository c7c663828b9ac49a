"""sync-on-every-microbatch: a replicated model accumulates without no_sync()."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording.setup import World
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, with_more, zipped

RULE = "sync-on-every-microbatch"


def accumulating(batches: float = 4.0, **known: object) -> Loop:
    """Steps of 10 ms with so many micro-batches, of which each reduction leaves 1 ms unhidden."""
    figures = {"reduce_s": 0.0015, "reduce_hidden_s": 0.0005, "replicated": True, **known}
    loop = Loop(setup={"world": World(2, 0, **figures)})  # type: ignore[arg-type]
    steps = loop.recording().steps
    return with_more(loop, steps=replace(steps, batches=np.full(len(steps), batches)), chores=())


def test_sick() -> None:
    found = sick(RULE, accumulating())
    assert found.cost_share == pytest.approx(0.3, rel=0.02)
    assert "no_sync()" in found.prescriptions[0].code
    assert RULE in named(accumulating())
    assert "communication-bound" not in named(accumulating())


def test_well() -> None:
    assert asked(RULE, accumulating(unsynced=300)) is None


def test_one_batch_a_step_needs_its_reduction() -> None:
    assert asked(RULE, accumulating(batches=1.0)) is None


def test_one_backward_on_the_batches_of_two_loaders_reduces_once() -> None:
    assert asked(RULE, zipped(accumulating(batches=1.0).recording())) is None
    assert asked(RULE, zipped(accumulating(batches=2.0).recording())) is not None


def test_reducing_that_is_hidden_costs_nothing() -> None:
    assert asked(RULE, accumulating(reduce_hidden_s=0.0015)) is None


def test_a_model_that_is_not_replicated_reduces_nothing() -> None:
    assert asked(RULE, accumulating(replicated=False)) is None


def test_where_the_reducing_was_not_timed_nothing_is_said() -> None:
    assert asked(RULE, accumulating(reduce_s=float("nan"))) is None
