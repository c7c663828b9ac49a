"""The anatomy of a DataLoader: described, changed in place and put back, refused with a reason."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import sys
import types
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from gpu_doctor.capture.describe import loaders
from gpu_doctor.capture.describe.loader_limits import refusal
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs import loader_change
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.side_effects.leftover_workers import shut_down


class Numbers(torch.utils.data.Dataset[int]):
    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


class OtherInit(DataLoader[int]):
    """A subclass whose `__init__` has another signature and goes on after the base class's."""

    def __init__(self, n: int) -> None:
        super().__init__(Numbers(n), batch_size=4)
        self.seen_workers = self.num_workers


class Endless:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        while True:
            yield from self.inner


def items(loader: Any) -> list[int]:
    return [int(x) for batch in loader for x in batch]


def bits(loader: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(loader).items()}


def test_describe_reads_plain_values() -> None:
    setup = loaders.describe(DataLoader(Numbers(10), batch_size=4, shuffle=True), role="training")
    assert (setup.batch_size, setup.num_workers, setup.batches, setup.dataset_len) == (4, 0, 3, 10)
    assert (setup.dataset, setup.sampler, setup.dataset_kind) == ("Numbers", "RandomSampler", "map")
    assert setup.refusals == {}
    assert setup.key == "Numbers[10] batch 4 RandomSampler #0"


def test_describe_leaves_no_mark_on_an_iterable_loader_and_does_not_fix_the_start_method() -> None:
    class Sized(Stream):
        def __len__(self) -> int:
            return 10

    loader = DataLoader(Sized(), batch_size=4)
    before = bits(loader)
    fixed = multiprocessing.get_start_method(allow_none=True)
    assert loaders.describe(loader).batches == 3
    assert bits(loader) == before
    assert multiprocessing.get_start_method(allow_none=True) == fixed


def test_key_is_stable_while_the_batch_size_is_changed() -> None:
    loader = DataLoader(Numbers(), batch_size=2)
    key = loaders.describe(loader).key
    with loader_change.changed(loader, batch_size=5):
        changed = loaders.describe(loader)
        assert changed.key == key
        assert changed.batch_size == 5
    assert loaders.describe(loader).key == key


def test_changed_in_place_and_back_to_the_bit() -> None:
    loader = DataLoader(Numbers(), batch_size=2)
    before = bits(loader)
    with loader_change.changed(loader, num_workers=2, batch_size=5, pin_memory=False) as same:
        assert same is loader
        assert len(loader) == 2
        assert loader.batch_size == 5
        assert loader.prefetch_factor == 2
        assert items(loader) == list(range(10))
    assert bits(loader) == before
    assert len(loader) == 5


def test_to_no_workers_drops_what_needs_workers() -> None:
    loader = DataLoader(
        Numbers(), num_workers=1, prefetch_factor=4, persistent_workers=True, multiprocessing_context="fork", timeout=9
    )
    before = bits(loader)
    with loader_change.changed(loader, num_workers=0):
        assert (loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (None, False, 0)
        assert loader.multiprocessing_context is None
        assert items(loader) == list(range(10))
    assert bits(loader) == before
    assert loader.multiprocessing_context.get_start_method() == "fork"  # type: ignore[attr-defined]


def test_a_persistent_iterator_is_kept_and_the_one_made_inside_is_stopped() -> None:
    loader = DataLoader(Numbers(), num_workers=1, persistent_workers=True)
    assert items(loader) == list(range(10))
    kept = loader._iterator
    with loader_change.changed(loader, num_workers=2):
        assert items(loader) == list(range(10))
        inside: Any = loader._iterator
        assert len(inside._workers) == 2
    assert loader._iterator is kept
    assert all(not worker.is_alive() for worker in inside._workers)
    assert items(loader) == list(range(10))


def test_a_generator_gives_the_same_order() -> None:
    def order(batch: int | None) -> list[int]:
        loader = DataLoader(Numbers(), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
        if batch is None:
            return items(loader)
        with loader_change.changed(loader, batch_size=batch, num_workers=1):
            return items(loader)

    assert order(5) == order(None) != list(range(10))


def test_an_assignment_of_other_code_is_left_alone() -> None:
    loader = DataLoader(Numbers())
    with loader_change.changed(loader, num_workers=2):
        loader.num_workers = 3
    assert loader.num_workers == 3


def test_changing_reaches_loaders_made_before_and_inside_and_subclasses() -> None:
    before, other = DataLoader(Numbers(), batch_size=4), OtherInit(12)
    was = bits(before), bits(other)
    original = DataLoader.__init__
    with loader_change.changing({"batch_size": 6}, None, lambda *_: None, [before, other]):
        inside, sub = DataLoader(Numbers(), batch_size=4), OtherInit(12)
        assert [len(one) for one in (before, other, inside, sub)] == [2, 2, 2, 2]
    assert [len(one) for one in (before, other, inside, sub)] == [3, 3, 3, 3]
    assert (bits(before), bits(other)) == was
    assert DataLoader.__init__ is original
    assert len(OtherInit(12)) == 3


def test_a_subclass_sees_the_change_right_after_the_base_init() -> None:
    with loader_change.changing({"num_workers": 2}, None, lambda *_: None):
        assert OtherInit(4).seen_workers == 2


def test_a_subclass_that_wraps_the_batch_sampler_keeps_its_wrapper() -> None:
    class Infinite(DataLoader[int]):
        def __init__(self) -> None:
            super().__init__(Numbers(), batch_size=2)
            object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))

    with loader_change.changing({"batch_size": 5}, None, lambda *_: None):
        loader = Infinite()
        assert next(iter(loader)).tolist() == [0, 1, 2, 3, 4]
    assert isinstance(loader.batch_sampler, Endless)


def test_only_and_refused() -> None:
    train, valid = DataLoader(Numbers(), shuffle=True), DataLoader(Numbers())
    owned = DataLoader(Numbers(), batch_sampler=[[0, 1], [2, 3]])
    told: list[Any] = []
    stem = loaders.key_stem_of(train)
    with loader_change.changing(
        {"batch_size": 5}, lambda one: loaders.key_stem_of(one) == stem, lambda *_: told.append(_), [train, valid]
    ):
        assert (train.batch_size, valid.batch_size) == (5, 1)
    assert told == []
    with loader_change.changing({"batch_size": 5}, lambda one: one is owned, lambda *_: told.append(_), [owned]):
        pass
    assert told[0][0] is owned
    assert "batch_sampler" in told[0][1]


def test_giving_up_changes_nothing() -> None:
    good, bad = DataLoader(Numbers()), DataLoader(Numbers(), batch_sampler=[[0]])
    before = bits(good), bits(bad)

    def give_up(loader: Any, reason: str) -> None:
        raise ValueError(reason)

    with pytest.raises(ValueError, match="batch_sampler"):
        with loader_change.changing({"batch_size": 2}, None, give_up, [good, bad]):
            pytest.fail("not reached")
    assert (bits(good), bits(bad)) == before


def test_a_given_plain_batch_sampler_can_be_resized() -> None:
    loader = DataLoader(Numbers(), batch_sampler=BatchSampler(RandomSampler(Numbers()), 2, False))
    assert loaders.describe(loader).batch_size == 2
    with loader_change.changed(loader, batch_size=5):
        assert (len(loader), loader.batch_size) == (2, None)


def test_refusals_of_the_batch_size() -> None:
    assert "yields whole batches" in refusal(DataLoader(Numbers(), batch_size=None), "batch_size")
    dropping = DataLoader(Numbers(10), batch_size=2, drop_last=True)
    assert refusal(dropping, "batch_size", 10) == ""
    assert "10 samples" in refusal(dropping, "batch_size", 11)
    assert refusal(DataLoader(Numbers(10)), "batch_size", 11) == ""


def test_an_iterable_dataset_needs_get_worker_info() -> None:
    plain = DataLoader(Stream())
    assert "get_worker_info" in refusal(plain, "num_workers", 2)
    assert refusal(plain, "num_workers", 1) == ""
    assert "get_worker_info" in loaders.describe(plain).refusals["num_workers"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_no_pickle_carries_what_lives_in_the_notebook(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows spawn workers; on Linux Python 3.14 starts them from a forkserver."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    kind = type("Notebook", (Numbers,), {"__module__": "__main__"})
    spawned = DataLoader(kind(), num_workers=1, multiprocessing_context=method)
    refused = refusal(spawned, "num_workers", 2)
    assert f"Workers start by {method}" in refused and "but dataset is" in refused
    assert refusal(DataLoader(kind()), "num_workers", 2) == ""
    local = DataLoader(Numbers(), num_workers=1, multiprocessing_context=method, collate_fn=lambda batch: batch)
    assert "lambda" in refusal(local, "num_workers", 2)
    assert refusal(local, "num_workers", 0) == ""


def test_a_loader_that_keeps_its_iterator_is_refused() -> None:
    loader = DataLoader(Numbers())
    loader.mine = iter(loader)  # type: ignore[attr-defined]
    assert "running iterator" in refusal(loader, "num_workers", 2)


def test_a_persistent_iterator_in_use_is_refused() -> None:
    loader = DataLoader(Numbers(), num_workers=1, persistent_workers=True)
    running = iter(loader)
    next(running)
    assert "in the middle of" in refusal(loader, "num_workers", 2)
    del running
    assert refusal(loader, "num_workers", 2) == ""
    shut_down(loader._iterator)


def test_loaders_made_inside_are_not_kept_alive() -> None:
    with loader_change.changing({"num_workers": 1}, None, lambda *_: None):
        inside = weakref.ref(DataLoader(Numbers(77)))
        gc.collect()
        assert inside() is None


def test_a_loader_that_no_name_leads_to_is_told_of_when_it_is_iterated() -> None:
    told: list[str] = []
    hidden, known = DataLoader(Numbers(), batch_size=2), DataLoader(Numbers(), batch_size=2)
    with loader_change.changing({"batch_size": 5}, None, lambda _, reason: told.append(reason), [known]):
        copied = copy.copy(known)
        for _epoch in range(2):
            assert [len(list(one)) for one in (hidden, known, copied)] == [5, 2, 2]
    assert told == ["it was made before, and no name leads to it."]
    assert [len(list(one)) for one in (hidden, known)] == [5, 5]


def test_names_lead_to_loaders_of_a_trainer_and_those_that_an_earlier_run_has_iterated() -> None:
    hidden, held, gone = (DataLoader(Numbers(), batch_size=2) for _ in range(3))
    setup = Setup(loaders=(loaders.describe(hidden, role="training"),))
    scope = TrialScope({"trainer": SimpleNamespace(loaders={"train": held})}, setup, met=[weakref.ref(hidden)])
    with knobs.turned({"batch_size": 4}, scope):
        assert [one.batch_size for one in (hidden, held, gone)] == [4, 4, 2]
        with pytest.raises(Refused, match="no name leads to it"):
            iter(gone)
