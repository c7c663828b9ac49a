"""What stands around the loop is written down at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from gpu_doctor.capture import patching
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.environment import accelerated, switches, tap
from gpu_doctor.machine.cuda import cuda_devices
from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.trials.knobs import KNOBS
from gpu_doctor.trials.matmul_precision import precisions, put_back
from tests.support.one_tap import on


def test_the_surroundings_are_noted_and_nothing_is_patched() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        assert patching.active() == ()
    setup = recorder.setup()
    assert setup.torch_version == torch.__version__
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


class Asked(dict[str, Any]):
    """Flags that note which of them somebody asked for."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        super().__init__(flags)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def test_every_flag_that_a_knob_looks_for_is_recorded() -> None:
    flags = Asked(switches())
    card = DeviceSetup(0, "NVIDIA A100", capability=(8, 0))
    setup = Setup(torch_version=torch.__version__, device="cuda:0", devices=(card,), flags=flags)
    for knob in KNOBS.values():
        knob.found(setup)
        knob.choices(setup)
    assert {"matmul_precision", "cudnn_benchmark"} <= flags.names
    assert flags.names <= switches().keys(), "`found` would never see what is not recorded"


def test_a_machine_without_a_device_says_so() -> None:
    if not torch.cuda.is_available():
        assert cuda_devices() == ()
        assert accelerated() == bool(torch.backends.mps.is_available())


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has no newer switch")
def test_the_newer_switch_for_tf32_is_no_hindrance() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert switches()["matmul_precision"] == "high"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
