"""Chooses the device that a block works on: the card, or what stands for it in a rehearsal."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any, Final
from unittest import mock

KERNEL_MS: Final = 0.02
LAUNCH_MS: Final = 0.005
"""The simulated device takes so long for a kernel, and the host for its launch."""
CYCLES_A_MS: Final = 1.7e6
"""`torch.cuda._sleep` counts in these."""


@contextlib.contextmanager
def device(rehearse: bool) -> Iterator[str]:
    """Yields the name by which torch knows it. A rehearsal compiles nothing, since that takes long."""
    if not rehearse:
        yield "cuda"
        return
    import torch

    real: Any = torch.compile

    def interpreted(model: Any = None, *, mode: str = "", **how: Any) -> Any:
        return real(model, **{**how, "backend": "eager"})

    stub = importlib.import_module("tests.support.stub_nvml")
    nvml = {"pynvml": stub.StubNvml(stub.Card(gpm={1: 50.0, 2: 40.0}))}
    with mock.patch.object(torch, "compile", interpreted), mock.patch.dict(sys.modules, nvml):
        with _simulated(torch.cuda) as name:
            yield name


@contextlib.contextmanager
def _simulated(cuda: Any) -> Iterator[str]:
    """torch finds a simulated GPU; where there is none, the CPU stands in."""
    try:
        simulated = importlib.import_module("tests.support.simulated_cuda").SimulatedCuda
    except ImportError:
        yield "cpu"
        return
    clocked = importlib.import_module("tests.support.simulated_device").SimulatedDevice(real=True)
    with simulated(clocked, KERNEL_MS, LAUNCH_MS) as here:
        with mock.patch.object(cuda, "_sleep", lambda cycles: here.launch(cycles / CYCLES_A_MS)):
            yield "cuda"
