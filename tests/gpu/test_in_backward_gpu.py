"""Optimizers that step within the backward: on a GPU their hooks run on autograd's own thread.

GPU: not yet run on one. On a CPU tests/unit/capture/taps/test_in_backward.py has autograd make such a thread.
"""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor

STEPS = 60


@pytest.mark.parametrize("loads", [True, False], ids=["loader", "no loader"])
def test_the_loop_keeps_its_thread(loads: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
    optimizers: dict[torch.Tensor, torch.optim.AdamW] = {p: torch.optim.AdamW([p], lr=1e-3) for p in model.parameters()}
    threads: set[int] = set()

    def hook(p: torch.Tensor) -> None:
        threads.add(threading.get_ident())
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    loader = DataLoader(TensorDataset(torch.randn(8 * STEPS, 64)), batch_size=8)
    held = [(torch.randn(8, 64),) for _ in range(STEPS)]
    with gpu_doctor.watch() as run:
        for (x,) in loader if loads else held:
            model(x.to("cuda")).square().mean().backward()
    assert threads and threading.get_ident() not in threads
    assert run.recording is not None
    steps = run.recording.steps
    assert steps.count.sum() == STEPS and (steps.kind == 0).all()
    assert steps.samples[1:].sum() == 8 * (STEPS - 1)
    for phase in ("transfer_s", "forward_s", "backward_s"):
        assert (getattr(steps, phase)[2:] > 0).all(), phase
    assert steps.device_steps.sum() > STEPS // 2
    assert not any("optimizer" in note for note in run.recording.notes)
    assert run.recording.setup.optimizers[:1] == ("AdamW",)
