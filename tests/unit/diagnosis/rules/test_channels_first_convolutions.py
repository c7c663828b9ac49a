"""channels-first-convolutions: half precision on tensors stored channels first."""

from __future__ import annotations

from typing import Any

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "channels-first-convolutions"


def images(stored: int = 0, **changes: Any) -> Loop:
    model = ModelFacts(convolutions=53, channels_last=stored)
    setup = {"model": model, "autocast": "bfloat16", "layers": {"Conv2d": 53}}
    return on_gpu(setup={**setup, **changes})


def test_sick() -> None:
    found = sick(RULE, images())
    assert found.kind == "hint"
    cure = found.prescriptions[0]
    assert cure.settings == {"channels_last": True} and cure.safety.value == "safe"
    assert cure.predicted_speedup is None  # measure it
    assert top(images()) == RULE


def test_half_precision_weights() -> None:
    assert sick(RULE, images(autocast="", dtype="float16"))


def test_well() -> None:
    assert asked(RULE, on_gpu()) is None
    assert asked(RULE, images(stored=53)) is None


def test_images_that_are_stored_channels_last_take_the_network_along() -> None:
    assert asked(RULE, images(inputs=InputFacts(looked_at=20, channels_last=True))) is None


def test_full_precision_gains_by_something_else() -> None:
    assert asked(RULE, images(autocast="")) is None


def test_a_network_without_convolutions() -> None:
    assert asked(RULE, images(model=ModelFacts())) is None


def test_one_convolution_beside_many_products() -> None:
    transformer = images(model=ModelFacts(convolutions=1), layers={"Conv2d": 1, "Linear": 49})
    assert asked(RULE, transformer) is None
    assert asked(RULE, images(layers={"Conv2d": 53, "Linear": 1})) is not None


def test_convolutions_of_another_dimension_have_no_such_layout() -> None:
    assert asked(RULE, images(model=ModelFacts(convolutions=2), layers={"Conv1d": 20, "Conv2d": 2})) is None
    assert asked(RULE, images(model=ModelFacts(), layers={"Conv3d": 20})) is None


def test_an_empty_queue_gains_nothing() -> None:
    assert asked(RULE, images().but(caught_up=1.0)) is None
