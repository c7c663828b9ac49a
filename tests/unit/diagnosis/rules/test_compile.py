"""compile: a busy GPU, static shapes, no torch.compile: worth a trial."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "compile"
SETUP: dict[str, Any] = {"model": ModelFacts(), "inputs": InputFacts(looked_at=40, shapes=1, shape=(32, 128))}
BUSY = on_gpu(setup=SETUP)


def test_sick() -> None:
    found = sick(RULE, BUSY)
    assert found.kind == "hint" and found.prescriptions[0].settings == {"compile": True}
    assert found.prescriptions[0].predicted_speedup is None and named(BUSY) == [RULE]


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),  # no model was seen
        BUSY.but(setup={**SETUP, "model": ModelFacts(compiled=True)}),
        BUSY.but(setup={**SETUP, "inputs": InputFacts(looked_at=40, shapes=20, shape=(32, 128))}),
        BUSY.but(capability=(6, 1)),
        BUSY.but(wait=5.0, gpu_gap=5.0),  # starved
        BUSY.but(caught_up=1.0),  # not-compiled
        Loop(setup=SETUP),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
