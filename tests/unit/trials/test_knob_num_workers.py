"""The knob num_workers: choices, refusals, turned on real loaders and put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.num_workers import KNOB
from gpu_doctor.trials.side_effects.leftover_workers import shut_down

SETUP = Setup(loaders=(LoaderSetup(key="a #0", num_workers=3),), usable_cores=2.0)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


def make(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(10)), batch_size=2, **options)


def items(loader: DataLoader[Any]) -> list[int]:
    return [int(x) for (batch,) in loader for x in batch]


def test_found_and_choices() -> None:
    assert KNOB.found(SETUP) == 3
    assert [choice.value for choice in KNOB.choices(SETUP)] == [0, 1, 2, 3, 4, 8]
    assert KNOB.found(Setup()) is None
    assert all("no DataLoader" in choice.refusal for choice in KNOB.choices(Setup(torch_version="2")))


def test_a_loaders_refusal_is_the_knobs() -> None:
    setup = Setup(loaders=(loaders.describe(DataLoader(Stream()), role="training"),))
    assert "get_worker_info" in KNOB.reason(2, setup)
    assert KNOB.reason(0, setup) == ""
    only_evaluation = Setup(loaders=(loaders.describe(make(), role="evaluation"),))
    assert "no DataLoader" in KNOB.reason(2, only_evaluation)


def test_one_worker_delivers_each_item_of_a_stream_once() -> None:
    stream = DataLoader(Stream(), batch_size=2)
    setup = Setup(loaders=(loaders.describe(stream, role="training"),))
    assert KNOB.reason(1, setup) == "" and "get_worker_info" in KNOB.reason(2, setup)
    with knobs.turned({"num_workers": 1}, TrialScope({**locals()}, setup)):
        assert stream.num_workers == 1 and [int(x) for batch in stream for x in batch] == list(range(10))
    assert stream.num_workers == 0
    crowded = Setup(loaders=(loaders.describe(DataLoader(Stream(), num_workers=2), role="training"),))
    assert "get_worker_info" in KNOB.reason(1, crowded), "fewer workers would be other data than as written"


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


def test_put_back_when_the_loop_raises() -> None:
    loader = make()
    with pytest.raises(KeyError), knobs.turned({"num_workers": 2}, TrialScope({})):
        raise KeyError
    assert loader.num_workers == 0


def test_unknown_knob_names_the_nearest() -> None:
    with (
        pytest.raises(Refused, match=r"Did you mean num_workers\?.*batch_size"),
        knobs.turned({"num_worker": 2}, TrialScope({})),
    ):
        pytest.fail("not reached")


def test_parse_assignments() -> None:
    assert knobs.parse_assignments(["num_workers=4", "amp = bf16"]) == {"num_workers": 4, "amp": "bf16"}
    assert knobs.parse_assignments(["pin_memory=on"]) == {"pin_memory": True}
    for bad, said in (
        (["num_workers"], "KNOB=VALUE"),
        (["num_workers=two"], "whole number"),
        (["num_workers=-1"], "of at least 0"),
        (["batch_size=0"], "of at least 1"),
        (["workers=2"], "knobs are"),
        (["amp=off", "amp=bf16"], "twice"),
        (["pin_memory=maybe"], "True or False"),
    ):
        with pytest.raises(ValueError, match=said):
            knobs.parse_assignments(bad)


def test_allow_asks_before_anything_is_run() -> None:
    setup = Setup(loaders=(loaders.describe(DataLoader(Stream()), role="training"),))
    with pytest.raises(Refused, match="get_worker_info"):
        knobs.allow({"num_workers": 2}, setup)
    with pytest.raises(Refused, match="no knob named"):
        knobs.allow({"nothing": 2}, Setup())
    knobs.allow({"num_workers": 2}, Setup())


def test_with_batch_size_and_prefetch_at_once() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=2)
    setup = Setup(loaders=(loaders.describe(loader, role="training"),))
    was = dict(vars(loader))
    settings = {"prefetch_factor": 4, "batch_size": 5, "num_workers": 1, "persistent_workers": True}
    with knobs.turned(settings, TrialScope({**locals()}, setup)):
        assert (loader.num_workers, loader.prefetch_factor, len(loader)) == (1, 4, 2)
        passes = [[int(x) for (batch,) in loader for x in batch] for _ in range(2)]
        assert passes == [list(range(10))] * 2
        workers = loader._iterator._workers  # type: ignore[union-attr]
    assert vars(loader) == was
    assert not any(worker.is_alive() for worker in workers)
    assert patching.active() == ()


def test_before_any_run_workers_are_turned_rather_than_written_and_a_stream_is_left() -> None:
    cell = "loader = DataLoader(Stream(), batch_size=4)\nfor x in loader:\n    pass\n"
    names = {"DataLoader": DataLoader, "Stream": Stream}
    case = gpu_doctor.case(cell, names)
    assert "num_workers" in case.written({"num_workers": 2}).reasons and case.written({"num_workers": 2}).text == cell
    case.trial({"num_workers": 2}, steps=2, seconds=2, pairs=1)
    assert any("would deliver all items again" in note for note in case.trials[-1][1].notes)
