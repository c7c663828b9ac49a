"""small-batch: room in memory, time on the GPU."""

from __future__ import annotations

import pytest

from tests.support.found import asked, sick
from tests.support.recordings import PINNED, Loop, on_gpu

RULE = "small-batch"
SMALL = on_gpu(gpu_util=50.0, peak_share=0.3, caught_up=0.6)


def test_sick() -> None:
    found = sick(RULE, SMALL)
    assert found.cost_share == pytest.approx(0.6 / 2, abs=0.02), "a step for two batches, of the steps that ran dry"
    assert "up to" in found.headline
    cure = found.prescriptions[0]
    assert cure.settings == {"batch_size": 64}
    assert cure.safety.value == "changes-training" and "learning rate" in cure.changes
    assert sick(RULE, SMALL.but(peak_share=0.05)).prescriptions[0].settings == {"batch_size": 128}


def test_a_high_utilisation_figure_of_nvml_is_no_busy_gpu() -> None:
    assert sick(RULE, SMALL.but(gpu_util=99.0)).cost_share == sick(RULE, SMALL).cost_share


@pytest.mark.parametrize("loop", [on_gpu(), SMALL.but(peak_share=0.7), SMALL.but(caught_up=0)])
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_loop_that_waits_for_data_would_wait_longer() -> None:
    assert asked(RULE, SMALL.but(wait=5.0, gpu_gap=5.0)) is None


def test_a_small_data_set_would_have_no_steps_left() -> None:
    assert asked(RULE, SMALL.but(loader={**PINNED, "dataset_len": 500})) is None


def test_copies_and_evaluation_take_as_long_with_another_batch() -> None:
    assert sick(RULE, SMALL.but(evaluation=5.0)).cost_share == pytest.approx(0.3 * 2 / 3, abs=0.01)


def test_a_loader_whose_batches_the_knob_cannot_change_is_left_to_the_hand() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "Its own sampler makes the batches."}}
    cure = sick(RULE, SMALL.but(loader=refusing)).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand" and "batch_size=64" in cure.code
    assert "makes the batches" in cure.text
