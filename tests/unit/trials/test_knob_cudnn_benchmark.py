"""The knob cudnn_benchmark: offered where cuDNN convolves, turned and put back."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import pytest
import torch

from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.cudnn_benchmark import KNOB
from gpu_doctor.trials.knobs.knob import Refused, TrialScope

RESNET = Setup(device="cuda:0", layers={"Conv2d": 53, "Linear": 1}, flags={"cudnn_benchmark": False})


def test_found_and_refused() -> None:
    assert KNOB.found(RESNET) is False and KNOB.found(Setup()) is None
    assert KNOB.reason(True, RESNET) == ""
    assert "no convolutions" in KNOB.reason(True, dataclasses.replace(RESNET, layers={"Linear": 3}))
    assert "does not train on a CUDA device" in KNOB.reason(True, dataclasses.replace(RESNET, device="cpu"))
    assert [one.value for one in KNOB.choices(RESNET)] == [False, True]


@pytest.mark.parametrize("fails", [False, True])
def test_turned_and_put_back(fails: bool) -> None:
    assert torch.backends.cudnn.benchmark is False
    with pytest.raises(RuntimeError, match="of the loop") if fails else nullcontext():
        with knobs.turned({"cudnn_benchmark": True}, TrialScope({}, RESNET)):
            assert torch.backends.cudnn.benchmark is True
            if fails:
                raise RuntimeError("of the loop")
    assert torch.backends.cudnn.benchmark is False


def test_with_no_run_yet_a_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.knobs.cudnn_benchmark.cuda_available", lambda: False)
    with pytest.raises(Refused, match="No GPU"), knobs.turned({"cudnn_benchmark": True}, TrialScope({})):
        pytest.fail("not reached")


@pytest.mark.parametrize("own", [True, False])
def test_the_code_that_sets_another_value_itself_is_told(own: bool) -> None:
    scope = TrialScope({}, RESNET)
    with knobs.turned({"cudnn_benchmark": True}, scope):
        torch.backends.cudnn.benchmark = own
    assert torch.backends.cudnn.benchmark is False and len(scope.notes) == (not own)
