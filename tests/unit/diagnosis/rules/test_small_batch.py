"""small-batch: launch-bound, with room in memory."""

from __future__ import annotations

import pytest

from tests.support.found import asked, named, sick
from tests.support.recordings import PINNED, Loop, on_gpu, with_outcome

RULE = "small-batch"
SMALL = on_gpu(gpu_util=50.0, peak_share=0.3, caught_up=1.0)


def test_sick() -> None:
    found = sick(RULE, SMALL)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1.0, abs=0.02)
    cure = found.prescriptions[0]
    assert cure.settings == {"batch_size": 128}
    assert cure.safety.value == "changes-training" and "learning rate" in cure.changes
    assert named(SMALL) == [RULE]


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        SMALL.but(peak_share=0.7),
        SMALL.but(caught_up=0.6),
        SMALL.but(wait=5.0, gpu_gap=5.0),  # it would wait longer
        SMALL.but(loader={**PINNED, "dataset_len": 500}),  # no steps would be left
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_no_larger_batch_after_a_run_that_memory_did_not_suffice_for() -> None:
    assert asked(RULE, with_outcome(SMALL.recording(), "out-of-memory", "CUDA out of memory")) is None


def test_a_loader_whose_batches_the_knob_cannot_change_is_left_to_the_hand() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "Its own sampler makes the batches."}}
    cure = sick(RULE, SMALL.but(loader=refusing)).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand" and "batch_size=128" in cure.code
    assert "makes the batches" in cure.text
