"""Every way to walk a DataLoader is recorded, the iterators stay what they are, and each loader gets a role."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from gpu_doctor.capture.describe import loaders
from gpu_doctor.capture.events import BATCH, NEXT, OURS
from gpu_doctor.capture.recorder import Recorder, RunEnded
from gpu_doctor.capture.taps.dataloader import tap
from tests.support.one_tap import Ticking, batches, on
from tests.support.simulated_device import Noted


def counted(recorder: Recorder) -> tuple[list[float], int]:
    """Samples of every row, and how many batches."""
    steps = recorder.close().steps
    return steps.samples.tolist(), int(steps.batches.sum())


def by_next(loader: Any) -> None:
    it = iter(loader)
    while next(it, None) is not None:
        pass


WAYS: dict[str, Callable[[Any], object]] = {
    "for": lambda loader: [x for x, _ in loader],
    "enumerate": lambda loader: list(enumerate(loader)),
    "next": by_next,
    "list": list,
    "comprehension": lambda loader: {i: len(b) for i, b in enumerate(loader)},
    "map": lambda loader: list(map(len, loader)),
    "zip": lambda loader: list(zip(loader, range(99), strict=False)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_walk_is_recorded(way: str) -> None:
    recorder = Recorder()
    with on(tap, recorder):
        WAYS[way](batches(20))
    assert counted(recorder) == ([8, 8, 4], 3)


class Twenty(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from torch.arange(20)


def test_a_whole_pass_shows_how_many_batches_a_stream_has() -> None:
    recorder, loader = Recorder(), DataLoader(Twenty(), 8)
    with on(tap, recorder):
        next(iter(loader))
        assert [one.batches for one in recorder.loaders.values()] == [None]
        list(loader)
    assert [one.batches for one in recorder.loaders.values()] == [3]


def test_the_iterator_keeps_its_type_and_methods() -> None:
    with on(tap):
        it = iter(batches(20))
        assert type(it) is _SingleProcessDataLoaderIter
        assert len(it) == 3
        assert iter(it) is it


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (lambda: batches(20, drop_last=True), [8, 8]),
        (lambda: batches(20, shuffle=True), [8, 8, 4]),
        (lambda: DataLoader(Strings(), batch_size=4, collate_fn=list), [4, 4, 2]),
        (lambda: DataLoader(Twenty(), batch_size=8), [8, 8, 4]),
    ],
    ids=["drop_last", "shuffle", "without tensors", "stream"],
)
def test_samples_follow_the_sampler_or_the_tensors_of_a_stream(loader: Any, samples: list[float]) -> None:
    recorder = Recorder()
    with on(tap, recorder):
        list(loader())
    assert counted(recorder)[0] == samples


class Strings(Dataset[str]):
    """Ten samples without a tensor."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, at: int) -> str:
        return str(at)


def several(items: list[list[torch.Tensor]]) -> torch.Tensor:
    """As MONAI's `list_data_collate`: the crops of all items one after the other."""
    return torch.stack([crop for crops in items for crop in crops])


@pytest.mark.parametrize("workers", [0, 1])
def test_crops_are_the_samples_where_an_item_is_several(workers: int) -> None:
    recorder, volumes = Recorder(), [[torch.zeros(1, 5, 5)] * 4] * 5
    with on(tap, recorder):
        loader: DataLoader[Any] = DataLoader(volumes, batch_size=2, collate_fn=several, num_workers=workers)  # type: ignore[arg-type]
        lengths = [float(len(crops)) for crops in loader]
    assert counted(recorder) == (lengths, 3) and lengths == [8.0, 8.0, 4.0]


def test_roles_are_learned() -> None:
    recorder = Recorder()
    told = Noted(recorder)
    train, held_out, unused = batches(20, shuffle=True), batches(16), batches(24)
    with on(tap, recorder):
        for _ in range(2):
            for _x in train:
                told.learns()
            with torch.no_grad():
                list(held_out)
        next(iter(unused))
    roles = {setup.dataset_len: setup.role for setup in recorder.loaders.values()}
    assert roles == {20: "training", 16: "evaluation", 24: "unknown"}


def test_a_loader_that_cannot_be_described_is_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("odd")

    monkeypatch.setattr(loaders, "describe", fail)
    recorder = Recorder()
    with on(tap, recorder):
        list(batches(20))
    assert counted(recorder) == ([8, 8, 4], 3)
    (note,) = recorder.notes
    assert "setup of DataLoader" in note and note.endswith(": odd")


class Broken(Dataset[Any]):
    """Raises on its ninth sample."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise KeyError("user's own")
        return torch.zeros(2)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_passes_with_its_own_traceback(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch waits so long for each worker of an iterator that was left by an exception, with and without a tap.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    recorder = Recorder()
    with on(tap, recorder), pytest.raises(KeyError, match="user's own") as caught:
        list(DataLoader(Broken(), batch_size=8, num_workers=workers))
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise KeyError("user\'s own")' in text
    assert "in __getitem__" in text
    assert caught.value.__context__ is None
    del caught
    gc.collect()


def test_the_end_of_a_run_comes_from_next() -> None:
    recorder = Recorder(max_steps=2)
    told = Noted(recorder)
    seen: list[Any] = []

    def loop() -> None:
        for x, _ in batches(80):
            told.forward(training=False, grad=False, trained=False)
            told.called()
            seen.append(x)

    with on(tap, recorder), pytest.raises(RunEnded):
        loop()
    assert len(seen) == 2


def test_another_threads_loader_is_none_of_the_loops() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        it = iter(batches(40))
        next(it)
        thread = threading.Thread(target=lambda: list(batches(800)))
        thread.start()
        thread.join()
        next(it)
    assert counted(recorder) == ([8, 8], 2)


def test_the_first_pull_is_reported_once_and_may_fail() -> None:
    recorder, calls = Recorder(), []

    def fail() -> None:
        calls.append(1)
        raise ValueError("no")

    with on(tap, recorder) as scope:
        scope.pulled.append(fail)
        list(batches(20))
        list(batches(20))
    assert calls == [1]
    assert recorder.notes == ["The search for models failed: no"]


def test_no_iterator_stays_alive() -> None:
    with on(tap):
        it = iter(batches(20))
        next(it)
        alive = weakref.ref(it)
        del it
        gc.collect()
        assert alive() is None


def test_a_loader_built_anew_is_one_loader_and_two_alike_are_two() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in range(3):
            list(batches(20))
            gc.collect()
        first, second = batches(16), batches(16)
        list(zip(first, second, strict=True))
    assert len(recorder.loaders) == 3


def test_what_metering_a_fetch_takes_is_no_wait_for_data() -> None:
    recorder = Recorder(clock=Ticking())
    with on(tap, recorder):
        recorder.log.due, recorder.log.due_ns = 1_000, 10**18
        iterator = iter(batches(16))
        del recorder.log.events[:]
        next(iterator)
        codes = [code for code, _, _ in recorder.log.events]
        _, now, since = recorder.log.events[codes.index(OURS)]
    assert [code for code in codes if code in (NEXT, OURS, BATCH)] == [NEXT, OURS, BATCH, OURS]
    assert now > since


class OfAnother(IterableDataset[torch.Tensor]):
    """Hands on a part of the batches of another loader."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for x, _ in batches(20):
            yield x[:3]


def test_a_loader_within_a_fetch_gives_no_batches_of_its_own() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in DataLoader(OfAnother(), batch_size=None):
            pass
    assert counted(recorder) == ([3, 3, 3], 3)
