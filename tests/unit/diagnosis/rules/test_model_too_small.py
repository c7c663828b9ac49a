"""model-too-small: launch-bound although the batch is large, with next to no arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "model-too-small"


def setup(shape: tuple[int, ...] = (4096, 16)) -> dict[str, Any]:
    return {"parameters": 1000, "inputs": InputFacts(looked_at=40, shapes=1, shape=shape, dtype="float32")}


TINY = on_gpu(batch=4096, caught_up=1.0, gpu_util=20.0, setup=setup())


def test_sick() -> None:
    found = sick(RULE, TINY)
    assert found.cost_share == pytest.approx(1.0, abs=0.01)
    assert not found.prescriptions[0].settings and "fine" in found.prescriptions[0].text
    assert RULE in named(TINY) and "launch-bound" not in named(TINY)


def test_compiling_is_the_second_cure_where_it_is_not_done_yet() -> None:
    bare = TINY.but(setup={**setup(), "model": ModelFacts()})
    assert sick(RULE, bare).prescriptions[1].settings == {"compile": True}
    assert "not-compiled" not in named(bare)
    assert "reduce-overhead" in sick(RULE, bare.but(settings={"compile": True})).prescriptions[1].code


@pytest.mark.parametrize(
    "loop",
    [
        TINY.but(gpu_util=95.0, caught_up=0.0),  # the GPU is busy
        TINY.but(setup={}),  # nobody looked
        Loop(batch=4096, setup=setup()),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_small_batch_can_grow_first() -> None:
    small = TINY.but(batch=32, setup=setup((32, 16)))
    assert asked(RULE, small) is None
    assert "small-batch" in named(small) and RULE not in named(small)


def test_a_batch_that_holds_the_whole_data_set_cannot_grow() -> None:
    whole = TINY.but(batch=150, steps_per_epoch=1, setup=setup((150, 4)))
    assert RULE in named(whole)
