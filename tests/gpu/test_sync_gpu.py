"""Real waits of the host for the device: each is counted, timed and found in its line, and none is added by us.

GPU: not yet run on one.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.device_truth import runtime_waits
from tests.support.turns import scaled

BUSY_S = 0.010
STEPS = 250
CELL = """
for (x,) in loader:
    x = x.to("cuda")
    optimizer.zero_grad()
    out = model(x)
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    torch.cuda._sleep(cycles)
    {}
"""
WAITS = {
    "item": "loss.item()",
    "float": "float(loss)",
    "cpu": "out.detach().cpu()",
    "to cpu": 'out.detach().to("cpu")',
    "tolist": "out.detach().tolist()",
    "bool": "bool(loss > 0)",
    "nonzero": "(out.detach() > 0).nonzero()",
    "print": "repr(loss)",
    "synchronize": "torch.cuda.synchronize()",
    "stream": "torch.cuda.current_stream().synchronize()",
}


def cycles_for(wanted_s: float) -> int:
    """So many cycles the device sleeps for so long."""
    cycles = 10_000_000
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        cycles = scaled(cycles, begin.elapsed_time(end) * 1e-3, wanted_s)
    return cycles


def space(steps: int = STEPS) -> dict[str, Any]:
    """Names of the cell."""
    model = nn.Linear(32, 4).cuda()
    return {
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3),
        "loader": DataLoader(TensorDataset(torch.randn(8 * steps, 32)), batch_size=8),
        "cycles": cycles_for(BUSY_S),
    }


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_counted_timed_and_found(name: str) -> None:
    case = gpu_doctor.case(CELL.format(WAITS[name]), space())
    recording = case.run()
    steps = recording.steps.rows(10)
    assert recording.steps.count.sum() == STEPS
    assert (steps.syncs == 1).all(), steps.syncs
    # The sleep, and what little the device had left to do before it.
    assert 0.85 * BUSY_S < float(np.median(steps.sync_s)) < 1.5 * BUSY_S
    assert float(np.median(steps.wall_s - steps.sync_s)) < 0.5 * BUSY_S
    vitals = measure(recording)
    assert vitals.sync_share is not None and vitals.sync_share > 0.7
    waits = [one for one in vitals.lines if one.phase == "sync"]
    assert waits and waits[0].text.strip() == WAITS[name] and waits[0].share > 0.5


def test_a_loop_that_never_waits_has_no_waits() -> None:
    recording = gpu_doctor.case(CELL.format("pass"), space()).run()
    # Its copies come from pageable memory: they wait for the device, and are transfers.
    assert recording.steps.syncs.sum() == 0 and recording.steps.sync_s.sum() == 0.0
    assert recording.steps.transfers.sum() == STEPS and recording.steps.pageable.sum() == STEPS
    assert float(np.median(recording.steps.transfer_s[10:])) > 0.5 * BUSY_S


class Training:
    """A loop that never has to wait for its device, unless it reads its loss."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batches = [torch.randn(16, 64).pin_memory() for _ in range(300)]
        self.run()  # what is set up once may wait

    def run(self, reads: bool = False) -> None:
        """Trains on each batch once."""
        for (batch,) in DataLoader(TensorDataset(torch.arange(len(self.batches))), batch_size=1):
            x = self.batches[int(batch)].to("cuda", non_blocking=True)
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            if reads:
                loss.item()


def test_we_add_no_wait_torch_would_tell_of() -> None:
    training, before = Training(), torch.cuda.get_sync_debug_mode()
    torch.cuda.synchronize()
    with gpu_doctor.watch() as run:
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match="synchroniz"):  # it would be told
                torch.ones((), device="cuda").item()
            training.run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    assert run.recording is not None
    # One of ours that raised would have been taken off with a note.
    assert not [note for note in run.recording.notes if "failed" in note or "could not" in note]
    assert run.recording.steps.count.sum() == len(training.batches)
    assert run.recording.steps.device_steps.sum() > 20


def waits_in(training: Training, reads: bool, watched: bool) -> dict[str, int]:
    """The driver's waits during the loop; what we read at a run's end, the losses, comes after it."""
    kineto = profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU])
    torch.cuda.synchronize()
    with gpu_doctor.watch() if watched else nullcontext():
        kineto.start()
        training.run(reads)
        kineto.stop()
    return runtime_waits(kineto.events(), DeviceType.CUDA)


def test_the_driver_hears_of_no_more_waits_with_us() -> None:
    training = Training()
    reading = waits_in(training, reads=True, watched=False)
    assert sum(reading.values()) >= len(training.batches), "waits are not seen at all"
    assert waits_in(training, reads=True, watched=True) == reading
    assert waits_in(training, reads=False, watched=True) == waits_in(training, reads=False, watched=False)
