"""launch-bound: the queue never fills."""

from __future__ import annotations

import pytest
from found import asked, named, sick, top
from recordings import PINNED, on_gpu

from gpu_doctor.facts import ModelFacts

RULE = "launch-bound"
SMALL = on_gpu(gpu_util=40.0, queue_empty=1.0, tensor_active=0.0, peak_share=0.02)


def test_sick() -> None:
    found = sick(RULE, SMALL)
    assert found.cost_share == pytest.approx(0.6)
    assert found.prescriptions[0].safety.value == "changes-training"
    assert top(SMALL) == RULE
    # full precision and the small batch are the same symptom: one cause first
    assert named(SMALL) == [RULE]


def test_well() -> None:
    assert asked(RULE, on_gpu()) is None


def test_a_loop_that_waits_for_data_also_empties_its_queue() -> None:
    starving = on_gpu(
        wait=20.0, gpu_gap=20.0, gpu_work=10.0, gpu_util=33.0, queue_empty=1.0, workers=4, fetch=120.0, fetch_cpu=10.0
    )
    assert top(starving) == "too-few-workers"
    assert RULE not in named(starving)


def test_syncs_that_empty_the_queue_are_another_rule() -> None:
    assert asked(RULE, SMALL.but(sync=3.0)) is None


def test_it_costs_no_more_than_the_host_spends_on_launching() -> None:
    # The host launches for 3 ms of 10, then 7 ms of Python: the GPU is idle for 80 %, of which 70 are Python's.
    python = SMALL.but(forward=1.0, backward=1.0, optimizer=1.0, other=7.0, gpu_gap=7.0, gpu_work=3.0, gpu_util=20.0)
    assert sick(RULE, python).cost_share == pytest.approx(0.1)
    assert top(python) == "slow-python"


def test_a_full_queue_with_a_low_utilisation_figure() -> None:
    assert asked(RULE, SMALL.but(queue_empty=0.1)) is None


def test_a_batch_that_the_knob_cannot_change_is_left_to_the_hand() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "A custom batch_sampler owns the batches."}}
    cure = sick(RULE, SMALL.but(loader=refusing)).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand"
    assert "owns the batches" in cure.text and "batch_size=128" in cure.code


def test_a_small_data_set_would_have_no_steps_left() -> None:
    found = sick(RULE, SMALL.but(loader={**PINNED, "dataset_len": 1000}))
    assert ["batch" in one.text for one in found.prescriptions] == [False]
    assert "torch.compile(model)" in found.prescriptions[0].code
    compiled = SMALL.but(setup={"model": ModelFacts(compiled=True)}, loader={**PINNED, "dataset_len": 1000})
    assert "CUDA graphs" in sick(RULE, compiled).prescriptions[0].text
