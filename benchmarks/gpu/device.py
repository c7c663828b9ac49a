"""Chooses the device that a block works on: the card, or what stands for it in a rehearsal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final
from unittest import mock

import torch

KERNEL_MS: Final = 0.02
LAUNCH_MS: Final = 0.005
"""The simulated device takes so long for a kernel, and the host for its launch."""
CYCLES_A_MS: Final = 1.7e6
"""`torch.cuda._sleep` counts in these."""


@contextlib.contextmanager
def device(rehearse: bool) -> Iterator[str]:
    """Yields the name by which torch knows it. A rehearsal simulates GPU and NVML, and compiles nothing."""
    if not rehearse:
        yield "cuda"
        return
    from tests.support.simulated_cuda import SimulatedCuda
    from tests.support.simulated_device import SimulatedDevice
    from tests.support.stub_nvml import Card, StubNvml

    with SimulatedCuda(SimulatedDevice(real=True), KERNEL_MS, LAUNCH_MS) as here, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(sys.modules, {"pynvml": StubNvml(Card(gpm={1: 50.0, 2: 40.0}))}))
        for place, name, stand_in in (
            (torch, "compile", lambda model=None, **how: model or (lambda made: made)),
            (torch.cuda, "_sleep", lambda cycles: here.launch(cycles / CYCLES_A_MS)),
            (torch.Tensor, "record_stream", lambda *_: None),
        ):
            stack.enter_context(mock.patch.object(place, name, stand_in))
        yield "cuda"
