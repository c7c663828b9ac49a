"""The knob persistent_workers: needs workers, keeps them between epochs, and stops them afterwards."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.persistent_workers import KNOB


def test_needs_workers() -> None:
    setup = Setup(loaders=(loaders.describe(DataLoader(TensorDataset(torch.zeros(4))), role="training"),))
    assert "num_workers above 0" in KNOB.reason(True, setup)
    with_workers = dataclasses.replace(setup.loaders[0], num_workers=2)
    assert KNOB.reason(True, Setup(loaders=(with_workers,))) == ""
    assert KNOB.found(setup) is False


def test_the_same_workers_serve_two_epochs_and_are_stopped_afterwards() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=1)
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    was = dict(vars(loader))
    with knobs.turned({"persistent_workers": True}, TrialScope({**locals()}, setup)):
        list(loader)
        first: Any = loader._iterator
        list(loader)
        assert loader._iterator is first
    assert vars(loader) == was
    assert not any(worker.is_alive() for worker in first._workers)  # type: ignore[union-attr]
    assert patching.active() == ()


def test_what_it_says_of_the_shuffle_is_so() -> None:
    """torch draws a seed for its workers at the start of every epoch, or once for workers that stay."""

    def orders(stays: bool) -> list[list[int]]:
        torch.manual_seed(0)
        loader = DataLoader(
            TensorDataset(torch.arange(64)), batch_size=64, shuffle=True, num_workers=1, persistent_workers=stays
        )
        return [batch.tolist() for _ in range(2) for (batch,) in loader]

    anew, kept = orders(False), orders(True)
    assert anew[0] == kept[0] and anew[1] != kept[1]
    assert "From the second epoch on, shuffling" in KNOB.changes
