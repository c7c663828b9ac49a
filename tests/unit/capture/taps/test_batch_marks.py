"""Batches that stay alive are reported with the object that holds them, and no loop that forgets them is."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import batch_marks, listening
from gpu_doctor.recording.setup import KeptBatches

STEPS = 80


class Made(Dataset[Any]):
    """Samples that are made when they are asked for."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, at: int) -> Any:
        return torch.full((8,), float(at)), at


class Stored(Dataset[Any]):
    """Whole batches that the dataset holds, or views of one tensor that it holds."""

    def __init__(self, views: bool) -> None:
        whole = torch.rand(STEPS, 4, 8)
        self.rows: Any = whole if views else list(whole.clone().unbind())

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, at: int) -> Any:
        return self.rows[at]


class Memory:
    """A replay memory without a bound."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def add(self, batch: Any) -> None:
        self.rows.append({"batch": batch})


def trained(batches: Iterable[Any], keep: Callable[[Any], Any] = lambda batch: None, **names: Any) -> KeptBatches:
    """What is reported of a loop over some batches that stores what it likes."""
    recorder, model = Recorder(), torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with listening(recorder, {"batches": batches, "model": model, **names}, accelerated=False):
        for batch in itertools.islice(batches, STEPS):
            optimizer.zero_grad()
            x = batch[0] if isinstance(batch, list) else batch
            model(x).sum().backward()
            optimizer.step()
            keep(batch)
        del batch, x
    found = recorder.close().setup.kept_batches
    assert found is not None and recorder.notes == []
    return found


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(Made(), batch_size=4, **options)


def test_cycle_keeps_every_batch() -> None:
    found = trained(itertools.cycle(loader()))
    assert found.every and (found.keeper, found.kind) == ("batches", "itertools.cycle")
    assert found.followed >= 10 and found.batch_bytes == 4 * 8 * 4 + 4 * 8


def test_an_iterator_around_a_cycle_leads_to_it() -> None:
    found = trained(map(list, zip(itertools.cycle(DataLoader(Stored(views=True), batch_size=None)))))
    assert found.every and found.keeper == "batches"


@pytest.mark.parametrize("kind", [list, dict, deque, Memory])
def test_containers_of_the_cell(kind: Any) -> None:
    kept = kind()
    add = {list: "append", deque: "append", Memory: "add"}.get(kind)
    found = trained(loader(), getattr(kept, add) if add else lambda batch: kept.update({len(kept): batch}), kept=kept)
    assert found.every and found.keeper == ("kept.rows" if kind is Memory else "kept")
    assert found.kind.rpartition(".")[2] == ("list" if kind is Memory else kind.__name__)


def test_the_object_that_holds_them_may_have_no_name() -> None:
    kept: list[Any] = []
    found = trained(loader(), kept.append)
    assert found.every and (found.keeper == "") is (sys.version_info < (3, 13))


@pytest.mark.parametrize("batches", [loader(), DataLoader(Stored(views=True), batch_size=None)])
def test_a_loop_that_forgets_them_or_views_of_what_the_dataset_holds(batches: DataLoader[Any]) -> None:
    assert trained(batches).alive == 0


@pytest.mark.parametrize("bound", [10, 1000])
def test_a_deque_with_a_bound_forgets(bound: int) -> None:
    kept: deque[Any] = deque(maxlen=bound)
    found = trained(loader(), kept.append, kept=kept)
    assert (found.alive, found.bounded) == ((0, False) if bound == 10 else (found.followed, True))


def test_batches_that_the_dataset_holds_itself_are_alive() -> None:
    assert trained(DataLoader(Stored(views=False), batch_size=None)).every


def test_a_large_namespace_is_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_marks, "MOST_VISITED", 50)
    kept: list[Any] = []
    found = trained(loader(), kept.append, large=[[0] * 1000] * 1000, kept=kept)
    assert found.every and found.keeper == ""
