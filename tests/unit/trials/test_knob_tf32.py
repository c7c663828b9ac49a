"""The knob tf32: offered on cards that have it, refused elsewhere with the reason, turned and put back."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.tf32 import KNOB
from gpu_doctor.trials.matmul_precision import precisions

A100 = Setup(
    device="cuda:0",
    devices=(DeviceSetup(0, "NVIDIA A100", capability=(8, 0)),),
    dtype="float32",
    flags={"matmul_precision": "highest"},
)


def switches() -> tuple[Any, ...]:
    newer = [getattr(torch.backends.cuda.matmul, "fp32_precision", ""), torch.backends.cudnn.allow_tf32]
    return torch.get_float32_matmul_precision(), *newer


def test_found_and_choices() -> None:
    assert KNOB.found(A100) is False
    assert KNOB.found(dataclasses.replace(A100, flags={"matmul_precision": "high"})) is True
    assert KNOB.found(Setup()) is None
    assert [(one.value, one.refusal) for one in KNOB.choices(A100)] == [(False, ""), (True, "")]
    assert KNOB.safety.value == "changes-training" and KNOB.changes


def test_refused_where_there_is_none() -> None:
    t4 = dataclasses.replace(A100, devices=(DeviceSetup(0, "Tesla T4", capability=(7, 5)),))
    refused = KNOB.reason(True, t4)
    assert refused.startswith("Tesla T4 (compute capability 7.5) has no TF32") and "8.0 or more" in refused
    assert "trains on the CPU" in KNOB.reason(True, Setup(torch_version="2", flags=A100.flags))
    assert "on mps" in KNOB.reason(True, dataclasses.replace(A100, device="mps"))
    assert "bfloat16" in KNOB.reason(True, dataclasses.replace(A100, dtype="bfloat16"))


@pytest.mark.parametrize("fails", [False, True])
def test_turned_and_put_back(fails: bool) -> None:
    before = switches()
    with pytest.raises(RuntimeError, match="of the loop") if fails else nullcontext():
        with knobs.turned({"tf32": True}, TrialScope({}, A100)):
            assert switches()[::2] == ("high", True)
            if fails:
                raise RuntimeError("of the loop")
    assert switches() == before


def test_switched_off_where_the_user_has_it_on() -> None:
    own = dataclasses.replace(A100, flags={"matmul_precision": "high"})
    with knobs.turned({"tf32": False}, TrialScope({}, own)):
        assert switches()[::2] == ("highest", False)


def test_with_no_run_yet_the_card_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    before = switches()
    with pytest.raises(Refused, match="No GPU"), knobs.turned({"tf32": True}, TrialScope({})):
        pytest.fail("not reached")
    cards = [DeviceSetup(0, "Tesla T4", capability=(7, 5)), DeviceSetup(1, "unknown")]
    monkeypatch.setattr("gpu_doctor.trials.knobs.tf32.cuda_available", lambda: None)
    monkeypatch.setattr("gpu_doctor.trials.knobs.tf32.cuda_devices", lambda: cards)
    with pytest.raises(Refused, match="Tesla T4"), knobs.turned({"tf32": True}, TrialScope({})):
        pytest.fail("not reached")
    assert switches() == before
    cards[0] = DeviceSetup(0, "NVIDIA H100", capability=(9, 0))
    with knobs.turned({"tf32": True}, TrialScope({})):
        assert switches()[::2] == ("high", True)
    assert switches() == before


def test_torchs_newer_names_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def untold() -> str:
        raise RuntimeError(
            "mix of the legacy and new APIs"
        )  # what torch 2.13 says after matmul.fp32_precision = "tf32"

    monkeypatch.setattr(torch, "get_float32_matmul_precision", untold)
    with pytest.raises(Refused, match="newer names"), knobs.turned({"tf32": True}, TrialScope({}, A100)):
        pytest.fail("not reached")


def test_code() -> None:
    assert 'set_float32_matmul_precision("high")' in KNOB.code(True, A100)
    for value in (True, False):
        compile(KNOB.code(value, A100), "<code>", "exec")


def test_the_code_that_sets_another_precision_itself_is_told() -> None:
    before, scope = precisions(), TrialScope({}, A100)
    with knobs.turned({"tf32": True}, scope):
        torch.set_float32_matmul_precision("highest")
    assert precisions() == before and len(scope.notes) == 1
