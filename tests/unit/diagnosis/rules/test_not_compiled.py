"""not-compiled: launches one by one, static shapes, no torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import PINNED, Loop, on_gpu

RULE = "not-compiled"
INPUTS = InputFacts(looked_at=40, shapes=1, shape=(32, 128))
BARE = ModelFacts(device_bytes={"cuda:0": 1000})


def launching(model: ModelFacts = BARE, inputs: InputFacts = INPUTS, **changes: Any) -> Loop:
    setup = {"model": model, "inputs": inputs}
    loop = on_gpu(gpu_util=40.0, caught_up=1.0, tensor_active=0.0, peak_share=0.02, setup=setup)
    return loop.but(**changes)


def test_sick() -> None:
    found = sick(RULE, launching())
    assert found.cost_share == pytest.approx(1.0, abs=0.01)
    cure = found.prescriptions[0]
    assert cure.settings == {"compile": True} and cure.safety.value == "safe"
    assert cure.predicted_speedup is None  # measure it
    assert "always 32 x 128" in found.evidence[1]
    assert found.prescriptions[1].settings == {"batch_size": 128}
    # launch-bound, full precision and the small batch are the same symptom: one cause first
    assert named(launching()) == [RULE]


def test_a_last_batch_is_no_change() -> None:
    assert sick(RULE, launching(inputs=InputFacts(looked_at=40, shapes=2, shape=(32, 128))))


def test_well() -> None:
    assert asked(RULE, on_gpu()) is None
    assert asked(RULE, launching(caught_up=0.1)) is None


def test_a_high_utilisation_figure_of_nvml_is_no_busy_gpu() -> None:
    assert sick(RULE, launching(gpu_util=99.0))


def test_what_is_compiled_already() -> None:
    assert asked(RULE, launching(ModelFacts(device_bytes={"cuda:0": 1000}, compiled=True))) is None
    assert asked(RULE, launching(settings={"compile": True})) is None


def test_changing_shapes_would_compile_again_and_again() -> None:
    assert asked(RULE, launching(inputs=InputFacts(looked_at=40, shapes=20, shape=(32, 128)))) is None


def test_waits_do_not_hide_what_launching_takes() -> None:
    assert sick(RULE, launching(sync=3.0)).cost_share == pytest.approx(10 / 13, abs=0.01)


def test_an_old_card_has_no_triton() -> None:
    assert asked(RULE, launching(capability=(6, 1))) is None


def test_a_batch_that_the_knob_cannot_change_is_left_to_the_hand() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "Your batch_sampler decides the batch size."}}
    cure = sick(RULE, launching().but(loader=refusing)).prescriptions[1]
    assert not cure.settings and cure.safety.value == "by-hand"
    assert "decides the batch size" in cure.text and "batch_size=128" in cure.code


def test_a_small_data_set_would_have_no_steps_left() -> None:
    found = sick(RULE, launching().but(loader={**PINNED, "dataset_len": 1000}))
    assert ["batch" in one.text for one in found.prescriptions] == [False]


def test_the_larger_batch_is_predicted_as_launch_bound_does() -> None:
    compiling, larger = sick(RULE, launching()).prescriptions
    assert compiling.predicted_speedup is None
    assert larger == sick("launch-bound", launching()).prescriptions[0]
    assert larger.predicted_low and larger.predicted_speedup and larger.predicted_speedup > 1.5
