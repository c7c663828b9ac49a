"""unsupported-architecture: no machine code for the card."""

from __future__ import annotations

from gpu_doctor.diagnosis import diagnose
from tests.support.found import asked, surely
from tests.support.recordings import Loop, on_gpu, read, with_outcome

RULE = "unsupported-architecture"
SAID = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"


def test_sick() -> None:
    recording = with_outcome(on_gpu(steps=2, capability=(6, 1)).recording(), "failed", SAID)
    found = surely(RULE, recording)
    assert found.first and found.risk and "(sm_61)" in found.headline
    assert [one.rule for one in diagnose(recording).findings] == [RULE], "although hardly a step was measured"


def test_what_torchs_build_says() -> None:
    assert surely(RULE, read(on_gpu().recording(), 0, architecture_support=0))


def test_well() -> None:
    assert asked(RULE, read(on_gpu().recording(), 0, architecture_support=2)) is None
    assert asked(RULE, Loop()) is None


def test_code_that_is_translated_at_first_use_runs() -> None:
    assert asked(RULE, read(on_gpu().recording(), 0, architecture_support=1)) is None


def test_another_error_is_not_the_architecture() -> None:
    assert (
        asked(RULE, with_outcome(on_gpu().recording(), "failed", "RuntimeError: CUDA error: device-side assert"))
        is None
    )
