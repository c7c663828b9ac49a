"""The knobs of loaders, turned on real ones: which loaders are changed, and what these deliver meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import gpu_doctor
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.side_effects.leftover_workers import shut_down


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


def make(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(10)), batch_size=2, **options)


def items(loader: DataLoader[Any]) -> list[int]:
    return [int(x) for (batch,) in loader for x in batch]


def test_turned_delivers_the_same_items_from_two_workers_and_is_put_back() -> None:
    before, kept = make(shuffle=True, generator=torch.Generator().manual_seed(1)), make()
    setup = Setup(loaders=(loaders.describe(before, role="training"), loaders.describe(kept, role="evaluation")))
    was = dict(vars(before))
    expected = items(make(shuffle=True, generator=torch.Generator().manual_seed(1)))
    with knobs.turned({"num_workers": 2}, TrialScope({**locals()}, setup)):
        assert items(before) == expected
        assert (before.num_workers, kept.num_workers) == (2, 0)
        inside = make(shuffle=True)
        iterator: Any = iter(inside)
        assert len(iterator._workers) == 2
        shut_down(iterator)
    assert vars(before) == was
    assert inside.num_workers == 0


def test_a_loader_that_trains_and_cannot_is_refused_before_anything_is_changed() -> None:
    stream, good = DataLoader(Stream()), make()
    found = loaders.describe(stream, role="training")
    setup = Setup(loaders=(loaders.describe(good, role="training"), found))
    with (
        pytest.raises(Refused, match="get_worker_info"),
        knobs.turned({"num_workers": 2}, TrialScope({**locals()}, setup)),
    ):
        pytest.fail("not reached")
    assert good.num_workers == 0


def test_a_refusing_loader_made_inside_ends_the_loop() -> None:
    setup = Setup(loaders=(LoaderSetup(key=loaders.key_stem_of(DataLoader(Stream())) + " #0"),))
    with (
        pytest.raises(Refused, match="get_worker_info"),
        knobs.turned({"num_workers": 2}, TrialScope({**locals()}, setup)),
    ):
        DataLoader(Stream())


def test_without_a_setup_what_cannot_is_noted() -> None:
    stream, good = DataLoader(Stream()), make()
    scope = TrialScope({**locals()})
    with knobs.turned({"num_workers": 2}, scope):
        assert (good.num_workers, stream.num_workers) == (2, 0)
    assert any("get_worker_info" in note for note in scope.notes)


def test_before_any_run_workers_are_turned_rather_than_written_and_a_stream_is_left() -> None:
    cell = "loader = DataLoader(Stream(), batch_size=4)\nfor x in loader:\n    pass\n"
    names = {"DataLoader": DataLoader, "Stream": Stream}
    case = gpu_doctor.case(cell, names)
    assert "num_workers" in case.written({"num_workers": 2}).reasons and case.written({"num_workers": 2}).text == cell
    case.trial({"num_workers": 2}, steps=2, seconds=2, pairs=1)
    assert any("would deliver all items again" in note for note in case.trials[-1][1].notes)


def test_turned_changes_the_training_loader_and_len_and_leaves_evaluation() -> None:
    data = TensorDataset(torch.arange(100))
    weights = WeightedRandomSampler([1.0] * 100, 100, generator=torch.Generator().manual_seed(2))
    train, valid = DataLoader(data, batch_size=10, sampler=weights), DataLoader(data, batch_size=10)
    setup = Setup(loaders=(loaders.describe(train, role="training"), loaders.describe(valid, "evaluation")))
    was = dict(vars(train))
    with knobs.turned({"batch_size": 50}, TrialScope({**locals()}, setup)):
        model = torch.nn.Linear(1, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, epochs=1, steps_per_epoch=len(train))
        assert schedule.total_steps == 2
        assert [len(batch) for (batch,) in train] == [50, 50]
        assert len(valid) == 10
        again = DataLoader(data, batch_size=10, sampler=weights)
        assert (len(again), loaders.describe(again).key) == (2, setup.loaders[0].key)
    assert vars(train) == was
    assert (len(train), len(again)) == (10, 10)


def test_staying_workers_shuffle_otherwise_from_the_second_epoch_on() -> None:
    """torch draws a seed for its workers at the start of every epoch, or once for workers that stay."""

    def orders(stays: bool) -> list[list[int]]:
        torch.manual_seed(0)
        loader = DataLoader(
            TensorDataset(torch.arange(64)), batch_size=64, shuffle=True, num_workers=1, persistent_workers=stays
        )
        return [batch.tolist() for _ in range(2) for (batch,) in loader]

    anew, kept = orders(False), orders(True)
    assert anew[0] == kept[0] and anew[1] != kept[1]
