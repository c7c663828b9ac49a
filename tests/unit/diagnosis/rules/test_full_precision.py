"""full-precision: float32 products on a GPU with tensor cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis import Safety, diagnose
from gpu_doctor.trials.candidates import moves
from tests.support.found import asked, sick, surely, top
from tests.support.recordings import Loop, on_gpu

RULE = "full-precision"
FLOAT32 = on_gpu(tensor_active=0.0)


def test_sick() -> None:
    found = sick(RULE, FLOAT32)
    assert found.kind == "hint" and found.cost_share is None and "worth a trial" in found.headline
    cure = found.prescriptions[0]
    assert cure.settings == {"amp": "bf16"} and cure.safety.value == "changes-training" and cure.changes
    assert cure.predicted_speedup is None  # measure it
    assert top(FLOAT32) == RULE


def test_a_card_without_bfloat16_gets_float16_with_a_scaler() -> None:
    cure = sick(RULE, FLOAT32.but(capability=(7, 5))).prescriptions[0]
    assert cure.settings == {"amp": "fp16"} and cure.text.endswith("and a gradient scaler")
    assert "scaler.scale(loss).backward()" in cure.code and "scaler.update()" in cure.code


def test_predictions_need_no_scaler() -> None:
    predicts = FLOAT32.but(capability=(7, 5), backward=0.0, optimizer=0.0, setup={"optimizers": ()})
    cure = sick(RULE, predicts).prescriptions[0]
    assert "caler" not in cure.text + cure.code and "torch.float16" in cure.code and "results" in cure.changes


def test_a_look_up_makes_no_product() -> None:
    assert asked(RULE, FLOAT32.but(setup={"layers": {"Embedding": 2}})) is None
    assert "3 layers" in sick(RULE, FLOAT32.but(setup={"layers": {"Embedding": 2, "Linear": 3}})).evidence[0]


@pytest.mark.parametrize("kind", ["ConvTranspose2d", "Bilinear"])
def test_other_layers_that_multiply_count_too(kind: str) -> None:
    """A decoder of transposed convolutions alone, say."""
    assert "4 layers" in surely(RULE, FLOAT32.but(setup={"layers": {kind: 4}})).evidence[0]


def test_the_optimizers_seconds_are_no_products() -> None:
    recording = FLOAT32.recording()
    count = len(recording.steps)
    phases = {"gpu_forward_s": 2e-3, "gpu_backward_s": 4e-3, "gpu_optimizer_s": 4e-3}  # of 10 ms
    steps = replace(recording.steps, **{name: np.full(count, value) for name, value in phases.items()})
    assert "60 %" in surely(RULE, replace(recording, steps=steps)).evidence[1]
    few = replace(recording.steps, gpu_forward_s=np.full(count, 1e-4), gpu_backward_s=np.full(count, 2e-4))
    assert asked(RULE, replace(recording, steps=few)) is None, "3 % of the time: nobody would notice"


CONVOLVES = {"layers": {"Conv2d": 53, "Linear": 1}}


def test_convolutions_run_in_tf32_already() -> None:
    found = sick(RULE, FLOAT32.but(setup=CONVOLVES))
    assert found.headline.startswith("TF32 on ")
    assert sick(RULE, on_gpu(tensor_active=40.0, setup=CONVOLVES)).headline == found.headline, "by tensor cores"
    assert [one.settings for one in found.prescriptions] == [{"amp": "bf16"}], "TF32 is no advice then"


def test_convolutions_that_are_kept_from_tf32_run_in_full_precision() -> None:
    forbidden = FLOAT32.but(setup={**CONVOLVES, "flags": {"cudnn_tf32": False, "matmul_precision": "highest"}})
    found = sick(RULE, forbidden)
    assert found.headline.startswith("Full precision on ")
    assert found.prescriptions[1].code == "torch.backends.cudnn.allow_tf32 = True"
    assert sick(RULE, FLOAT32.but(setup=CONVOLVES, capability=(7, 5))).headline.startswith("Full precision on ")


def test_products_that_the_loop_lets_run_in_tf32() -> None:
    found = sick(RULE, FLOAT32.but(setup={"flags": {"matmul_precision": "high"}}))
    assert found.headline.startswith("TF32 on ")


def test_a_hint_says_no_share_and_is_no_answer() -> None:
    alone = diagnose(FLOAT32.recording())
    assert not alone.findings and [one.rule for one in alone.hints] == [RULE]
    assert alone.verdict.startswith("Compute-bound: 100 %") and "trial" not in alone.verdict
    assert "%" not in alone.hints[0].headline
    syncing = diagnose(FLOAT32.but(sync=8.0, syncs=1.0, gpu_gap=4.0, gpu_work=14.0).recording())
    assert [one.rule for one in syncing.findings] == ["host-sync"] and syncing.hints[0].rule == RULE
    assert syncing.verdict == syncing.findings[0].headline


def test_a_starved_gpu_is_told_nothing_about_kernels() -> None:
    assert asked(RULE, FLOAT32.but(wait=5.0, gpu_gap=5.0, workers=4, fetch=1.0)) is None


def test_a_hint_is_tried_where_changes_of_the_training_are_allowed() -> None:
    found = diagnose(FLOAT32.recording())
    settings = [one.settings for one in moves(found, {Safety.SAFE, Safety.CHANGES_TRAINING}, {}, ())]
    assert {"amp": "bf16"} in settings


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),  # tensor cores are active
        FLOAT32.but(setup={"autocast": "bfloat16"}),
        FLOAT32.but(setup={"dtype": "bfloat16"}),
        FLOAT32.but(capability=(6, 1)),
        FLOAT32.but(setup={"layers": {"ReLU": 3}}),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_queue_that_runs_dry_gains_nothing_from_faster_products() -> None:
    assert asked(RULE, FLOAT32.but(caught_up=1.0)) is None
