"""checkpoint-stall: torch.save in the loop."""

from __future__ import annotations

import types

import pytest

from gpu_doctor.diagnosis.rules.host.own_python import BY_CLOCK
from tests.support.found import asked, named
from tests.support.recordings import Loop, calling, on_gpu

RULE = "checkpoint-stall"
SAVING = Loop(other=5.0)


def test_sick() -> None:
    recording = calling(SAVING, "checkpoint", 0.3, 10, 4e6)
    finding = asked(RULE, recording)
    assert finding is not None and finding.cost_share == pytest.approx(0.3) and finding.kind == "lost"
    assert any("10 times in 100 steps" in one and "391 KiB" in one for one in finding.evidence)
    assert any("line 9" in one for one in finding.evidence)
    for one in finding.prescriptions:
        compile(one.code, RULE, "exec")
    assert named(recording)[0] == RULE
    assert asked(RULE, calling(on_gpu(), "checkpoint", 0.1, 2)) is not None, "a GPU stands still too"


def test_what_is_pasted_runs() -> None:
    saved: list[str] = []
    torch = types.SimpleNamespace(save=lambda state, path: saved.append(path))
    exec(BY_CLOCK, {"torch": torch, "state": {}, "path": "x.pt"})
    assert not saved, "the clock has just been started"


def test_the_same_seconds_are_not_billed_to_python_as_well() -> None:
    assert "slow-python" not in named(calling(SAVING, "checkpoint", 5 / 15, 10))
    assert "slow-python" in named(calling(Loop(other=10.0), "checkpoint", 0.1, 10))


@pytest.mark.parametrize(
    ("kind", "share", "calls"),
    [("checkpoint", 0.03, 2), ("collect-garbage", 0.3, 10), ("checkpoint", 0.3, 1)],
    ids=["cheap", "no checkpoint", "one does not tell how often they come"],
)
def test_well(kind: str, share: float, calls: int) -> None:
    assert asked(RULE, calling(SAVING, kind, share, calls)) is None
    assert asked(RULE, Loop().recording()) is None
