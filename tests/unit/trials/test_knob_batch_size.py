"""The knob batch_size: choices within the dataset, refusals, len() and evaluation loaders while it is turned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.batch_size import KNOB
from gpu_doctor.trials.knobs.knob import Refused, TrialScope

DATA = TensorDataset(torch.arange(100))


def setup_of(loader: DataLoader[Any], *others: DataLoader[Any]) -> Setup:
    found = [loaders.describe(loader, role="training"), *(loaders.describe(one, "evaluation") for one in others)]
    return Setup(loaders=tuple(found))


def test_choices_are_bounded_by_the_dataset() -> None:
    setup = setup_of(DataLoader(DATA, batch_size=16))
    assert KNOB.found(setup) == 16
    assert [choice.value for choice in KNOB.choices(setup)] == [4, 8, 16, 32, 64]
    assert all(not choice.refusal for choice in KNOB.choices(setup))
    assert [choice.value for choice in KNOB.choices(setup_of(DataLoader(DATA, batch_size=1)))] == [1, 2, 4, 8]


def test_refusals() -> None:
    custom = setup_of(DataLoader(DATA, batch_sampler=[[0, 1]]))
    assert KNOB.found(custom) is None
    assert "batch_sampler" in KNOB.choices(custom)[0].refusal
    assert "batch_sampler" in KNOB.reason(4, custom)
    assert "whole batches" in KNOB.reason(4, setup_of(DataLoader(DATA, batch_size=None)))
    assert "100 samples" in KNOB.reason(101, setup_of(DataLoader(DATA, batch_size=8, drop_last=True)))
    assert "no DataLoader" in KNOB.reason(4, Setup(torch_version="2")) and KNOB.reason(4, Setup()) == ""
    assert "no DataLoader" in KNOB.choices(Setup(torch_version="2"))[0].refusal


def test_turned_changes_the_training_loader_and_len_and_leaves_evaluation() -> None:
    weights = WeightedRandomSampler([1.0] * 100, 100, generator=torch.Generator().manual_seed(2))
    train, valid = DataLoader(DATA, batch_size=10, sampler=weights), DataLoader(DATA, batch_size=10)
    setup = setup_of(train, valid)
    was = dict(vars(train))
    with knobs.turned({"batch_size": 50}, TrialScope({**locals()}, setup)):
        model = torch.nn.Linear(1, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, epochs=1, steps_per_epoch=len(train))
        assert schedule.total_steps == 2
        assert [len(batch) for (batch,) in train] == [50, 50]
        assert len(valid) == 10
        again = DataLoader(DATA, batch_size=10, sampler=weights)
        assert (len(again), loaders.describe(again).key) == (2, setup.loaders[0].key)
    assert vars(train) == was
    assert (len(train), len(again)) == (10, 10)


def test_a_custom_batch_sampler_that_trains_is_refused() -> None:
    custom = DataLoader(DATA, batch_sampler=[[0, 1]])
    with (
        pytest.raises(Refused, match="decides the batch size"),
        knobs.turned({"batch_size": 4}, TrialScope({**locals()}, setup_of(custom))),
    ):
        pytest.fail("not reached")


def test_it_says_what_it_changes_and_the_line_to_paste() -> None:
    assert "linear scaling" in KNOB.changes
    assert KNOB.code(512, Setup()) == "DataLoader(..., batch_size=512)"
