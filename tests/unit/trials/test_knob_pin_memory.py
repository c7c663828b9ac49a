"""The knob pin_memory: refused without a GPU, turned on loaders and put back."""

from __future__ import annotations

import dataclasses

import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.pin_memory import KNOB


def test_refused_without_a_gpu() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)))
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    assert KNOB.found(setup) is False
    assert KNOB.reason(True, setup).startswith("No GPU")
    assert [one.refusal for one in KNOB.choices(setup)] == ["", KNOB.reason(True, setup)]
    assert "trains on the CPU" in KNOB.reason(True, dataclasses.replace(setup, devices=(DeviceSetup(0, "T4"),)))
    assert "no DataLoader" in KNOB.reason(True, Setup(torch_version="2"))


def test_turned_on_a_gpu_loop_and_put_back() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)))
    setup = Setup(loaders=(loaders.describe(loader, role="training"),), device="cuda:0")
    assert [choice.refusal for choice in KNOB.choices(setup)] == ["", ""]
    with knobs.turned({"pin_memory": True}, TrialScope({**locals()}, setup)):
        assert loader.pin_memory is True
        assert DataLoader(TensorDataset(torch.zeros(4))).pin_memory is True
    assert loader.pin_memory is False
    assert patching.active() == ()
