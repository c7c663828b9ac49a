"""What stands around the loop is written down at once."""

from __future__ import annotations

import platform
import re

import pytest
import torch

from gpu_doctor.capture import patching
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.environment import accelerated, devices, switches, tap
from gpu_doctor.trials.matmul_precision import precisions, put_back
from tests.support.one_tap import on
from tests.support.repository import ROOT


def test_the_surroundings_are_noted_and_nothing_is_patched() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        assert patching.active() == ()
    setup = recorder.setup()
    assert setup.torch_version == torch.__version__
    assert setup.python_version == platform.python_version()
    assert setup.torch_threads == torch.get_num_threads()
    assert setup.start_method in ("fork", "spawn", "forkserver")
    assert setup.flags == switches()


def test_switches_are_read_and_not_turned() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert switches()["matmul_precision"] == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert switches()["matmul_precision"] == before
    assert all(isinstance(value, (str, bool, int)) for value in switches().values())


def test_whether_convolutions_may_run_in_tf32_is_read_by_either_name() -> None:
    kept = precisions()
    try:
        assert switches()["cudnn_tf32"] is True, "torch's default"
        torch.backends.cudnn.allow_tf32 = False
        assert switches()["cudnn_tf32"] is False
        torch.backends.cudnn.allow_tf32 = True
        if hasattr(torch.backends.cudnn, "conv"):
            torch.backends.cudnn.conv.fp32_precision = "ieee"
            assert switches()["cudnn_tf32"] is False, "where torch refuses to say it by the older name"
    finally:
        put_back(kept)
    assert switches()["cudnn_tf32"] is True


def test_every_flag_that_a_knob_looks_for_is_recorded() -> None:
    knobs = sorted((ROOT / "gpu_doctor" / "trials" / "knobs").rglob("*.py"))
    wanted = {name for one in knobs for name in re.findall(r"flags\.get\(\"(\w+)\"", one.read_text(encoding="utf-8"))}
    assert wanted
    of_a_model_or_a_card = {"model_names", "bf16_native"}
    missing = wanted - switches().keys() - of_a_model_or_a_card
    assert not missing, f"capture/taps/environment.py does not record {missing}: `found` would never see them"


def test_a_machine_without_a_device_says_so() -> None:
    if not torch.cuda.is_available():
        assert devices() == ()
        assert accelerated() == bool(torch.backends.mps.is_available())


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has no newer switch")
def test_the_newer_switch_for_tf32_is_no_hindrance() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert switches()["matmul_precision"] == "high"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
