"""The knob prefetch_factor: needs workers, is turned and put back."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.prefetch_factor import KNOB


def test_turned_and_put_back() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=1)
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    assert KNOB.found(setup) == 2
    assert [choice.value for choice in KNOB.choices(setup)] == [1, 2, 4, 8, 16]
    with knobs.turned({"prefetch_factor": 8}, TrialScope({**locals()}, setup)):
        assert loader.prefetch_factor == 8
        assert len(list(loader)) == 4
    assert loader.prefetch_factor == 2
    assert patching.active() == ()


def test_needs_workers_unless_they_are_turned_on_too() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)))
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    with (
        pytest.raises(Refused, match="num_workers above 0"),
        knobs.turned({"prefetch_factor": 8}, TrialScope({**locals()}, setup)),
    ):
        pytest.fail("not reached")
    with knobs.turned({"prefetch_factor": 8, "num_workers": 1}, TrialScope({**locals()}, setup)):
        assert (loader.num_workers, loader.prefetch_factor) == (1, 8)
    assert loader.prefetch_factor is None


def test_parsed() -> None:
    assert KNOB.parsed("4") == 4
    with pytest.raises(ValueError, match="of at least 1"):
        KNOB.parsed("0")
