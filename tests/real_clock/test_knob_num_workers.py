"""The knobs of a loader turned together, with a worker that lives on."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import TrialScope


@pytest.mark.core
def test_with_batch_size_and_prefetch_at_once() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=2)
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    was = dict(vars(loader))
    settings = {"prefetch_factor": 4, "batch_size": 5, "num_workers": 1, "persistent_workers": True}
    with knobs.turned(settings, TrialScope({}, setup)):
        assert (loader.num_workers, loader.prefetch_factor, len(loader)) == (1, 4, 2)
        passes = [[int(x) for (batch,) in loader for x in batch] for _ in range(2)]
        assert passes == [list(range(10))] * 2
        workers = loader._iterator._workers  # type: ignore[union-attr]
    assert vars(loader) == was
    assert not any(worker.is_alive() for worker in workers)
    assert patching.active() == ()
