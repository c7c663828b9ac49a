"""Starting workers, their first batch and their end are timed apart, in every way that an epoch can go."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from gpu_doctor.recording import Fetch
from tests.support.one_tap import batches, on
from tests.support.simulated_device import Noted

EPOCHS = 2
START_S, FIRST_S, END_S = 0.03, 0.05, 0.04


def late(worker: int) -> None:
    """A worker that needs a while before its first batch."""
    time.sleep(FIRST_S)


@pytest.fixture
def slow_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that take long to start and to end."""
    start, end = _MultiProcessingDataLoaderIter.__init__, _MultiProcessingDataLoaderIter._shutdown_workers

    def slow_start(self: Any, loader: Any) -> None:
        time.sleep(START_S)
        start(self, loader)

    def slow_end(self: Any) -> None:
        if not self._shutdown:
            time.sleep(END_S)
        end(self)

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "__init__", slow_start)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", slow_end)


def walked(loader: DataLoader[Any], steps: bool = False, most: int = 99) -> tuple[Fetch, Recorder]:
    """What was noted while a loop took at most so many batches an epoch."""
    recorder = Recorder()
    told = Noted(recorder)
    with on(tap, recorder):
        for _ in range(EPOCHS):
            for number, _batch in enumerate(loader, 1):
                if steps:
                    told.learns()
                if number == most:
                    break
    recording = recorder.close()
    assert not recording.notes
    return recording.fetches[0], recorder


@pytest.mark.usefixtures("slow_edges")
@pytest.mark.parametrize("steps", [True, False])
def test_the_parts_of_an_edge_are_timed_in_steps_and_without(steps: bool) -> None:
    begin = time.perf_counter()
    found, recorder = walked(batches(160, num_workers=1, worker_init_fn=late), steps)
    elapsed_s = time.perf_counter() - begin
    assert recorder.step_clock.trains == steps
    assert (found.starts, found.ends) == (EPOCHS, EPOCHS)
    parts = found.start_s or 0.0, found.first_s or 0.0, found.end_s or 0.0
    # A worker begins before `iter(loader)` returns: some of its delay is over when the loop first asks.
    for part, least in zip(parts, (START_S, FIRST_S / 2, END_S), strict=True):
        assert part >= 0.99 * EPOCHS * least
    assert sum(parts) <= elapsed_s


@pytest.mark.usefixtures("slow_edges")
def test_workers_that_stay_start_once_and_do_not_end() -> None:
    loader = batches(160, num_workers=1, persistent_workers=True)
    found, _ = walked(loader)
    assert (found.starts, found.ends, found.end_s) == (1, 0, 0.0)
    assert (found.start_s or 0.0) >= START_S
    del loader


@pytest.mark.usefixtures("slow_edges")
def test_an_epoch_that_is_left_early_has_no_end() -> None:
    found, _ = walked(batches(160, num_workers=1), most=3)
    assert (found.starts, found.ends) == (EPOCHS, 0)


def test_asking_an_iterator_at_its_end_again_is_no_further_end() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        it = iter(batches(16, num_workers=1))
        for _ in range(5):
            next(it, None)
    assert recorder.close().fetches[0].ends == 1


def test_without_workers_there_is_nothing_to_time() -> None:
    found, _ = walked(batches(160))
    assert (found.starts, found.start_s, found.first_s, found.ends, found.end_s) == (None,) * 5


def test_a_worker_that_fails_has_not_ended_the_epoch() -> None:
    def fail(samples: Any) -> torch.Tensor:
        raise ValueError("user's")

    recorder = Recorder()
    with on(tap, recorder):
        it: Any = iter(batches(16, num_workers=1, collate_fn=fail))
        with pytest.raises(ValueError, match="user's"):
            next(it)
        it._shutdown_workers()
        edges = recorder.so_far().fetches
    assert not edges or edges[0].ends == 0
