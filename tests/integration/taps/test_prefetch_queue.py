"""Batches that lie ready are counted in torch's own iterator: of starved loops and full ones, in steps and without."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gpu_doctor.capture.fetch.prefetch_queue import FEWEST_REQUESTS, MOST_COUNTS, ReadyBatches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Setup, Steps
from tests.support.one_tap import on
from tests.support.simulated_device import Noted

BATCHES, WORKERS = 60, 2
AHEAD = 2
"""torch's default prefetch_factor."""
LATE_S = 0.01


class Told(Dataset[Any]):
    """Says in shared memory how many samples were fetched, and fetches late what it is told to wait for."""

    def __init__(self, late: bool = False) -> None:
        self.late, self.fetched, self.taken = late, torch.zeros(WORKERS).share_memory_(), torch.zeros(1).share_memory_()

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.late:
            while self.taken[0] < index:  # the loop is about to ask for it
                time.sleep(0.001)
            time.sleep(LATE_S)
        self.fetched[index % WORKERS] += 1
        return torch.zeros(2)


class Stream(IterableDataset[Any]):
    """The same without a length."""

    def __init__(self, rows: Told) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return (self.rows[index] for index in range(BATCHES))


def walked(data: Any, wait: Any = lambda done: None, steps: bool = True, **options: Any) -> tuple[Fetch, Recorder]:
    """What was counted while a loop took all batches; `wait` is what it does with each."""
    recorder = Recorder()
    told = Noted(recorder)
    with on(tap, recorder):
        for done, _ in enumerate(DataLoader(data, batch_size=1, **options), 1):
            if steps:
                told.learns()
            wait(done)
    recording = recorder.close()
    assert not recording.notes
    return recording.fetches[0], recorder


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_a_starved_loop_finds_nothing_ready(steps: bool, stream: bool) -> None:
    data = Told(late=True)
    found, recorder = walked(Stream(data) if stream else data, data.taken.fill_, steps, num_workers=1)
    assert recorder.step_clock.trains == steps
    assert found.empty_share is not None and found.ready_batches is not None
    assert found.empty_share > 0.8
    assert found.ready_batches < 0.2


@pytest.mark.parametrize("steps", [True, False])
def test_a_slow_loop_finds_all_that_is_fetched_ahead(steps: bool) -> None:
    data = Told()

    def until_fetched(done: int) -> None:
        while data.fetched.sum() < min(done + WORKERS * AHEAD, BATCHES):
            time.sleep(0.001)
        time.sleep(0.005)  # the last one is put into the queue after it was counted

    found, recorder = walked(data, until_fetched, steps, num_workers=WORKERS)
    assert recorder.step_clock.trains == steps
    assert found.empty_share is not None and found.ready_batches is not None
    assert found.empty_share < 0.1, "neither the first ask nor the one that ends the epoch counts"
    assert WORKERS * AHEAD - 1 < found.ready_batches <= WORKERS * AHEAD
    assert found.ready.max() <= WORKERS * AHEAD and found.ready_after[:3].tolist() == [1, 2, 3]


def test_without_workers_nothing_is_counted() -> None:
    found, _ = walked(Told())
    assert (found.ready_batches, found.empty_share) == (None, None)


class Unknown(SimpleNamespace):
    """An iterator whose insides are others."""


def inside(queued: int, early: int, outstanding: int) -> Any:
    """An iterator with so many batches in its queue, taken out of it before their turn, and not yet fetched."""
    tasks = {i: (0, "batch") if i < early else (0,) for i in range(early + outstanding)}
    ahead = {"_prefetch_factor": 2, "_num_workers": WORKERS}
    return Unknown(_data_queue=SimpleNamespace(qsize=lambda: queued), _task_info=tasks, **ahead)


def test_too_few_looks_say_nothing_and_neither_edge_of_an_epoch_counts() -> None:
    stock = ReadyBatches()
    for _ in range(FEWEST_REQUESTS // 2):
        stock.count(inside(queued=1, early=2, outstanding=2), first=False)
    assert (stock.ready_batches, stock.empty_share) == (None, None)
    for _ in range(FEWEST_REQUESTS // 2):
        stock.count(inside(0, 0, 4), first=False)
    assert (stock.ready_batches, stock.empty_share) == (1.5, 0.5)
    stock.count(inside(0, 0, 4), first=True)
    stock.count(inside(0, 0, 0), first=False)  # the one that ends the epoch
    assert (stock.ready_batches, stock.empty_share) == (1.5, 0.5)


def test_the_first_looks_are_kept_with_their_place() -> None:
    stock = ReadyBatches()
    for queued, first in ((9, True), (3, False), (2, False), (9, True), (0, False)):
        stock.count(inside(queued, 0, 4), first)
    ready, after = stock.counts
    assert (ready.tolist(), after.tolist()) == ([3, 2, 0], [1, 2, 3])
    for _ in range(MOST_COUNTS):
        stock.count(inside(1, 0, 4), first=False)
    assert len(stock.counts[0]) == len(stock.counts[1]) == MOST_COUNTS


def test_what_lies_ready_once_nothing_is_left_to_fetch_is_not_kept() -> None:
    """At an epoch's end the stock runs out, whoever binds."""
    stock = ReadyBatches()
    stock.count(inside(queued=1, early=1, outstanding=3), first=False)
    for left in (3, 2, 1):
        stock.count(inside(queued=left, early=0, outstanding=left), first=False)
    assert [one.tolist() for one in stock.counts] == [[2], [1]]


def refuses() -> int:
    """A queue on macOS."""
    raise NotImplementedError


@pytest.mark.parametrize("odd", [Unknown(), Unknown(_task_info={0: (0,)}, _data_queue=SimpleNamespace(qsize=refuses))])
def test_an_iterator_that_does_not_tell_is_not_measured(odd: Any) -> None:
    stock = ReadyBatches()
    for _ in range(2 * FEWEST_REQUESTS):
        stock.count(inside(1, 0, 3), first=False)
    stock.count(odd, first=False)
    assert (stock.ready_batches, stock.empty_share) == (None, None)


def test_loaders_that_are_pulled_in_turn_are_weighed_by_their_batches() -> None:
    fetches = tuple(
        Fetch(key, 2, batches, 1.0, 1.0, 0.0, 8.0, torch.ones(1).numpy(), ready_batches=ready, empty_share=empty)
        for key, batches, ready, empty in (("a", 30, 4.0, 0.0), ("b", 20, 1.0, 0.5))
    )
    setup = Setup(loaders=(LoaderSetup("a", role="training", num_workers=2), LoaderSetup("b", num_workers=2)))
    steps = Steps.of(wall_s=[0.1] * 30, samples=[8.0] * 30, batches=[2.0] * 30, data_wait_s=[0.01] * 30)
    vitals = measure(Recording(steps=steps, setup=setup, fetches=fetches))
    assert vitals.ready_batches == pytest.approx((30 * 4.0 + 20 * 1.0) / 50)
    assert vitals.empty_share == pytest.approx(0.2)
