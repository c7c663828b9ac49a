"""The trial with batches from memory: what is replayed, what it leaves as it was, and what it refuses."""

from __future__ import annotations

import multiprocessing
from collections import UserDict
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gpu_doctor.capture.describe.loaders import Ordinals, describe
from gpu_doctor.recording import Setup
from gpu_doctor.trials import ceiling, is_bound, knobs, reached
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.knobs.cached_data import KNOB, NOT_SEEN, ONLY_TRIALS
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.replayed_batches import BATCHES
from gpu_doctor.trials.searches import combinations

IDEAL = Effect(settings=knobs.IDEAL_LOADER, speedup=2.0, low=1.9, high=2.1, verdict="faster")


class Counted(Dataset[Any]):
    """Counts how many items are fetched."""

    def __init__(self, length: int = 400) -> None:
        self.length, self.fetched = length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return {"x": torch.full((2,), float(index)), "y": index}


def turned(*loaders: Any, in_trial: bool = True) -> Any:
    """Turns the knob for a loop that trains from these loaders."""
    ordinals = Ordinals()
    setup = Setup(loaders=tuple(describe(one, role="training", ordinal=ordinals.of(one)) for one in loaders))
    return knobs.turned(knobs.IDEAL_LOADER, TrialScope({}, setup, in_trial=in_trial))


def test_a_few_batches_are_fetched_and_repeated_over_epochs_of_the_same_length() -> None:
    data = Counted()
    loader = DataLoader(data, batch_size=4)
    with turned(loader):
        first = [batch["x"][0, 0].item() for batch in loader]
        again = [batch["x"][0, 0].item() for batch in loader]
    assert len(first) == len(again) == 100
    assert data.fetched == 4 * BATCHES and len(set(first)) == BATCHES
    assert first == again
    assert [batch["x"][0, 0].item() for batch in loader][-1] == 396.0, "as it was"


def only_in_workers(worker: int) -> None:
    """Opens what the data set reads from, as `worker_init_fn` does."""
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.opened = True


class Opened(Counted):
    """Can be read from in workers alone."""

    opened = False

    def __getitem__(self, index: int) -> Any:
        assert self.opened
        return super().__getitem__(index)


def test_workers_end_with_the_fetching_and_the_loader_keeps_its_settings() -> None:
    loader = DataLoader(Opened(), batch_size=4, num_workers=2, persistent_workers=True, worker_init_fn=only_in_workers)
    before = {name: id(value) for name, value in vars(loader).items()}
    with turned(loader):
        iterator = iter(loader)
        next(iterator)
        assert not hasattr(iterator, "_workers") and not multiprocessing.active_children()
    assert {name: id(value) for name, value in vars(loader).items()} == before


def test_two_loaders_that_look_alike_keep_their_own_batches() -> None:
    datas = Counted(), Counted()
    first, second = (DataLoader(one, batch_size=4) for one in datas)
    with turned(first, second):
        assert len(list(zip(first, second, strict=True))) == 100
    assert [one.fetched for one in datas] == [4 * BATCHES] * 2


def test_a_loader_that_evaluates_and_looks_like_that_of_the_training_is_left_alone() -> None:
    data, held_out = Counted(), Counted()
    train, evaluate = DataLoader(data, batch_size=4), DataLoader(held_out, batch_size=4)
    loaders = describe(train, role="training"), describe(evaluate, role="evaluation", ordinal=1)
    with knobs.turned(knobs.IDEAL_LOADER, TrialScope({}, Setup(loaders=loaders), in_trial=True)):
        list(train)
        list(evaluate)
    assert (data.fetched, held_out.fetched) == (4 * BATCHES, 400)


def test_a_loop_may_ask_for_gradients_of_its_batches() -> None:
    loader: Any = DataLoader(Counted(16), batch_size=4)
    with turned(loader):
        for _ in range(3):
            for batch in loader:
                assert not batch["x"].requires_grad and batch["x"].grad is None
                batch["x"].requires_grad_().sum().backward()


def test_a_loader_that_evaluates_is_left_alone() -> None:
    data = Counted()
    loader = DataLoader(data, batch_size=4)
    with turned(DataLoader(Counted(8), batch_size=8, shuffle=True)):
        assert len(list(loader)) == 100
    assert data.fetched == 400


def test_a_loop_may_take_entries_out_of_its_batches() -> None:
    loader = DataLoader(Counted(16), batch_size=4)
    with turned(loader):
        labels = [batch.pop("y") for _ in range(4) for batch in loader]
    assert len(labels) == 16


class Pair(NamedTuple):
    x: torch.Tensor
    rest: list[Any]


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2),
        [torch.ones(2), "text", None, 3],
        (torch.ones(2), {"deep": [torch.ones(1)]}),
        Pair(torch.ones(2), [1]),
        UserDict({"x": torch.ones(2), "of": [1, 2]}),
        MappingProxyType({"x": torch.ones(2), "of": [1, 2]}),
        np.ones(3),
    ],
)
def test_batches_keep_their_form(batch: Any) -> None:
    batches: Any = [batch] * 20
    loader: Any = DataLoader(batches, batch_size=None, collate_fn=lambda one: one)
    with turned(loader):
        found = list(loader)
    assert len(found) == 20 and {type(one) for one in found} == {type(batch)}
    assert str(found[-1]) == str(batch)


def test_a_loop_that_changes_its_batches_in_place_is_refused() -> None:
    loader: Any = DataLoader(Counted(), batch_size=4)

    def train() -> None:
        for batch in loader:
            batch["x"] /= 255

    with turned(loader), pytest.raises(Refused, match="in place"):
        train()


def test_a_batch_that_may_carry_state_is_refused_by_its_type() -> None:
    batches: Any = [{"x": iter([1])}] * 4
    loader: Any = DataLoader(batches, batch_size=None)
    with turned(loader), pytest.raises(Refused, match="list_iterator"):
        next(iter(loader))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for index in range(12):
            yield torch.tensor([index])


class Long(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from torch.arange(200)


def test_a_stream_without_a_length_ends_as_it_did_in_the_run_or_goes_on_until_the_budget_ends_it() -> None:
    short: Any = DataLoader(Stream(), batch_size=4)
    with turned(short):
        assert len(list(short)) == 3
    loader: Any = DataLoader(Long(), batch_size=4)
    with turned(loader):
        assert len([batch for _, batch in zip(range(70), loader, strict=False)]) == 70
    seen = replace(describe(loader, role="training"), batches=50)
    with knobs.turned(knobs.IDEAL_LOADER, TrialScope({}, Setup(loaders=(seen,)), in_trial=True)):
        assert len(list(loader)) == 50


class Wrapped(DataLoader[Any]):
    """Its iterators are none of torch's."""

    def _get_iterator(self) -> Any:
        yield from super()._get_iterator()


@pytest.mark.parametrize("make", [DataLoader, Wrapped])
def test_a_loader_that_is_built_anew_each_epoch_fetches_once_whatever_its_iterators_are(make: Any) -> None:
    data = Counted()
    with turned(make(data, batch_size=4)):
        for _ in range(3):
            assert len(list(make(data, batch_size=4))) == 100
    assert data.fetched == 4 * BATCHES


def test_a_loader_without_batches_has_none() -> None:
    loader = DataLoader(Counted(3), batch_size=4, drop_last=True)
    with turned(loader):
        assert list(loader) == []


def test_it_is_for_trials_alone_and_needs_a_run_before() -> None:
    with pytest.raises(Refused) as said, turned(DataLoader(Counted()), in_trial=False):
        pass
    assert str(said.value) == ONLY_TRIALS
    with pytest.raises(Refused) as said, turned():
        pass
    assert str(said.value) == NOT_SEEN


def test_it_is_offered_by_no_list_of_knobs_and_found_by_no_sweep() -> None:
    assert KNOB.name not in knobs.KNOBS and knobs.known("data") is KNOB
    with pytest.raises(ValueError, match="bound"):
        combinations({"data": ["cached"], "num_workers": [0, 2]}, 20)


def trial(speedup: float, spread: float = 1.02, **settings: Any) -> Effect:
    return Effect(settings=settings, speedup=speedup, low=speedup / spread, high=speedup * spread, verdict="faster")


def test_the_newest_measured_trial_of_an_ideal_loader_alone_is_the_ceiling() -> None:
    other = replace(IDEAL, settings={**knobs.IDEAL_LOADER, "amp": "bf16"}, speedup=4.0)
    failed = replace(IDEAL, speedup=None, outcome="failed")
    assert ceiling([IDEAL, replace(IDEAL, speedup=2.2), other, failed]) == replace(IDEAL, speedup=2.2)
    assert ceiling([failed, other, trial(1.5, num_workers=2)]) is None
    assert is_bound(other) and not is_bound(trial(1.5, num_workers=2))


def test_what_a_cure_of_the_input_reaches_is_the_quotient_with_the_errors_of_both() -> None:
    part = reached(trial(1.8, num_workers=4), IDEAL)
    assert part is not None and part.share == pytest.approx(0.9)
    own, ideal = 1.8 / 1.02, 2.1 / 1.9
    assert own / 2.0 > part.low > 0.9 / (1.02 * ideal**0.5) and part.high > 0.9 * ideal**0.5
    assert "90 %" in str(part)


def test_what_is_not_the_input_reaches_nothing_of_the_ceiling() -> None:
    assert reached(trial(1.8, num_workers=4, amp="bf16"), IDEAL) is None
    assert reached(trial(1.8, num_workers=4), None) is None
    assert reached(replace(trial(1.8, num_workers=4), low=None), IDEAL) is None
    assert reached(replace(trial(1.8, num_workers=4), baseline_settings={"amp": "bf16"}), IDEAL) is None


def test_no_share_above_the_ceiling_is_stated() -> None:
    assert "100 %" in str(reached(trial(2.2, 1.3, num_workers=4), IDEAL))
    assert "%" in str(reached(trial(2.2, 1.0001, num_workers=4), replace(IDEAL, low=1.999, high=2.001)))
