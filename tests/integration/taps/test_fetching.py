"""Fetches are metered where they run, workers of every start method included, and nothing of it stays."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, _DatasetKind, get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from gpu_doctor.capture import patching
from gpu_doctor.capture.fetch import thread_counters
from gpu_doctor.capture.fetch.book import _persistent
from gpu_doctor.capture.fetch.meter import WorkerMeter, metered
from gpu_doctor.capture.fetch.tally import FIRST_FETCHES, SlotFile
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from gpu_doctor.recording import Fetch
from tests.support.one_tap import on, standing

SEAMS = ((torch_fetch._MapDatasetFetcher, "fetch"), (torch_fetch._IterableDatasetFetcher, "fetch"))
SLEEP_S, COLLATE_S = 0.0005, 0.002


class Slow(Dataset[Any]):
    """Sleeps or computes for every sample."""

    def __init__(self, n: int = 24, spin: bool = False) -> None:
        self.n, self.spin = n, spin

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.spin:
            time.sleep(SLEEP_S)
        else:
            until = time.thread_time() + SLEEP_S
            while time.thread_time() < until:
                pass
        return torch.full((4,), float(index))


class SlowStream(IterableDataset[Any]):
    """The same as a stream, shared out among workers."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        for i in range(24):
            if info is None or i % info.num_workers == info.id:
                time.sleep(SLEEP_S)
                yield torch.zeros(4)


def slow_collate(items: list[torch.Tensor]) -> torch.Tensor:
    """Sleeps before it stacks."""
    time.sleep(COLLATE_S)
    return torch.stack(items)


class Noted:
    """The user's own worker_init_fn: notes that it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, worker: int) -> None:
        (self.folder / str(worker)).touch()


def scratch_files() -> list[Path]:
    """Files that workers write their sums to."""
    return list(Path(tempfile.gettempdir()).glob("gpu_doctor-*.fetches"))


def open_files() -> int:
    """Descriptors that this process has open; 0 where the kernel does not list them."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def fetched(loader: DataLoader[Any], epochs: int = 1) -> Fetch:
    """What was metered while the loader was walked."""
    recorder = Recorder()
    with on(tap, recorder):
        for _ in range(epochs):
            list(loader)
    recording = recorder.close()
    assert len(recording.fetches) == 1
    assert not recording.notes
    return recording.fetches[0]


def test_the_seam_is_restored_and_the_scratch_file_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, seen = standing(*SEAMS), list[str]()
    loader = DataLoader(Slow(), batch_size=8, num_workers=1)
    with on(tap):
        list(loader)
        assert loader.worker_init_fn is None
        assert scratch_files()
        own: Any = iter(DataLoader(Slow(), batch_size=8, collate_fn=lambda items: seen.extend(patching.active())))
        next(own)
        assert "collate_fn" not in " ".join(patching.active()) and "collate_fn" in " ".join(seen)
        assert len(patching.active()) == 3
    assert not patching.active()
    assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))
    assert not scratch_files()


@pytest.mark.parametrize("workers", [0, 2])
def test_wall_and_collate_are_those_of_the_fetch(workers: int) -> None:
    begin = time.perf_counter()
    found = fetched(DataLoader(Slow(), batch_size=8, num_workers=workers, collate_fn=slow_collate), epochs=2)
    elapsed_s = time.perf_counter() - begin
    assert (found.batches, found.workers) == (6, workers)
    assert 6 * (8 * SLEEP_S + COLLATE_S) <= found.wall_s <= elapsed_s * max(workers, 1)
    assert 6 * COLLATE_S <= found.collate_s <= found.wall_s - 6 * 8 * SLEEP_S
    assert found.cpu_s < 0.5 * found.wall_s
    assert found.batch_bytes == 8 * 4 * 4
    assert len(found.walls_s) == 6
    assert found.walls_s.sum() == pytest.approx(found.wall_s)


def computing_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    end = time.thread_time() + COLLATE_S
    while time.thread_time() < end:
        pass
    return torch.stack(samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_that_computes_is_told_from_one_that_waits(workers: int) -> None:
    asleep, busy = (
        fetched(DataLoader(Slow(), batch_size=8, num_workers=workers, collate_fn=how))
        for how in (slow_collate, computing_collate)
    )
    assert asleep.collate_cpu_s is not None and busy.collate_cpu_s is not None
    assert asleep.collate_cpu_s < 0.5 * asleep.collate_s
    assert 3 * COLLATE_S <= busy.collate_cpu_s <= busy.cpu_s
    assert busy.collate_cpu_s <= busy.collate_s + 1e-3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_computes_costs_cpu(workers: int) -> None:
    found = fetched(DataLoader(Slow(spin=True), batch_size=8, num_workers=workers))
    assert found.cpu_s >= 24 * SLEEP_S


@pytest.mark.parametrize("method", [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()])
def test_workers_of_other_start_methods_are_metered(method: str) -> None:
    found = fetched(DataLoader(Slow(16), batch_size=8, num_workers=1, multiprocessing_context=method))
    assert found.batches == 2
    assert found.wall_s > 16 * SLEEP_S


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_metered(workers: int) -> None:
    found = fetched(DataLoader(SlowStream(), batch_size=4, num_workers=workers))
    assert found.batches >= 6
    assert found.wall_s >= 24 * SLEEP_S


def test_persistent_workers_add_up_over_epochs() -> None:
    found = fetched(DataLoader(Slow(), batch_size=8, num_workers=2, persistent_workers=True), epochs=3)
    assert found.batches == 9


def test_the_users_worker_init_runs_and_stays(tmp_path: Path) -> None:
    own = Noted(tmp_path)
    loader = DataLoader(Slow(), batch_size=8, num_workers=2, worker_init_fn=own)
    assert fetched(loader).batches == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert loader.worker_init_fn is own


def test_two_loaders_are_told_apart() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in zip(
            DataLoader(Slow(24), batch_size=8), DataLoader(Slow(12), batch_size=4, num_workers=1), strict=True
        ):
            pass
    found = {one.loader.split("]")[0]: (one.batches, one.batch_bytes) for one in recorder.close().fetches}
    assert found == {"Slow[24": (3, 128), "Slow[12": (3, 64)}


def test_batches_are_the_same_with_and_without() -> None:
    def walk() -> list[torch.Tensor]:
        torch.manual_seed(0)
        return list(DataLoader(Slow(), batch_size=8, shuffle=True, num_workers=2, collate_fn=slow_collate))

    plain = walk()
    with on(tap):
        heard = walk()
    assert all(torch.equal(one, other) for one, other in zip(plain, heard, strict=True))


def test_a_collate_that_raises_leaves_the_fetcher_as_it_was() -> None:
    def fail(items: Any) -> Any:
        raise ValueError("user's")

    with on(tap):
        it: Any = iter(DataLoader(Slow(), batch_size=8, collate_fn=fail))
        with pytest.raises(ValueError, match="user's"):
            next(it)
        assert it._dataset_fetcher.collate_fn is fail


class Batched(Slow):
    """Gives whole batches."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        time.sleep(SLEEP_S * len(indices))
        return [torch.zeros(4) for _ in indices]


class OwnFetcher(torch_fetch._MapDatasetFetcher):
    """A fetcher of somebody else's, with a `fetch` of its own."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        time.sleep(SLEEP_S)
        return super().fetch(possibly_batched_index)


def own_fetcher(kind: Any, dataset: Any, *rest: Any) -> Any:
    """What a library puts in the place of torch's maker of fetchers."""
    return OwnFetcher(dataset, *rest)


@pytest.mark.parametrize("workers", [0, 1])
def test_whole_batches_and_loaders_without_batches_are_metered(workers: int) -> None:
    whole = fetched(DataLoader(Batched(), batch_size=8, num_workers=workers))
    assert (whole.batches, whole.wall_s >= 24 * SLEEP_S) == (3, True)
    single = fetched(DataLoader(Slow(), batch_size=None, num_workers=workers))
    assert FIRST_FETCHES <= single.batches <= 24
    assert single.wall_s >= single.batches * SLEEP_S


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fetcher_of_somebody_elses_is_metered_once(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_DatasetKind, "create_fetcher", staticmethod(own_fetcher))
    before = standing((OwnFetcher, "fetch"), (_DatasetKind, "create_fetcher"))
    found = fetched(DataLoader(Slow(), batch_size=8, num_workers=workers))
    assert found.batches == 3
    assert found.wall_s >= 3 * SLEEP_S + 24 * SLEEP_S
    after = standing((OwnFetcher, "fetch"), (_DatasetKind, "create_fetcher"))
    assert all(now is then for now, then in zip(after, before, strict=True))


def test_a_loader_inside_a_dataset_is_not_counted_twice() -> None:
    class Outer(Slow):
        def __getitem__(self, index: int) -> torch.Tensor:
            return next(iter(DataLoader(Slow(1), batch_size=1)))

    recorder = Recorder()
    with on(tap, recorder):
        list(DataLoader(Outer(4), batch_size=2))
    found = {one.loader.split("[")[0]: one for one in recorder.close().fetches}
    assert found["Outer"].batches == 2


def test_workers_that_stay_meter_no_more_after_the_run_and_again_in_the_next() -> None:
    loader = DataLoader(Slow(), batch_size=8, num_workers=1, persistent_workers=True)
    try:
        assert fetched(loader).batches == 3
        file, slot = list(_persistent.values())[-1]  # other tests' loaders may not be collected yet
        assert file.run_began == 0.0
        list(loader)  # bare
        assert file.tally(slot).sums.batches == 3
        again = fetched(loader)
        assert again.batches == 3
        assert 24 * SLEEP_S <= again.wall_s < 1.0
        assert file.run_began == 0.0
    finally:
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_run_leaves_no_thread_no_interval_and_no_open_file(workers: int) -> None:
    fetched(DataLoader(Slow(), batch_size=8, num_workers=workers))  # what Python and torch open once
    gc.collect()
    descriptors = open_files()
    before = sys.getswitchinterval()
    fetched(DataLoader(Slow(), batch_size=8, num_workers=workers))
    assert sys.getswitchinterval() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpu_doctor")]
    gc.collect()  # the mapped file
    assert open_files() <= descriptors


@pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="the kernel counts no bytes here")
@pytest.mark.parametrize("workers", [0, 1])
def test_bytes_read_and_queueing_are_those_of_the_fetch(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(bytes(24 * 100_000))
    found = fetched(DataLoader(Files(path), batch_size=8, num_workers=workers))
    assert found.read_bytes == pytest.approx(24 * 100_000, rel=0.02)
    assert found.stored_bytes is not None and found.stored_bytes < 24 * 100_000  # written just now: in the page cache
    assert found.queued_s is not None and 0.0 <= found.queued_s <= found.wall_s


class Files(Slow):
    """Reads a piece of a file for every sample."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLEEP_S)
        with self.path.open("rb", buffering=0) as file:
            file.seek(index * 100_000)
            return torch.zeros(4) + len(file.read(100_000))


def test_where_the_kernel_counts_nothing_it_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_counters, "_opened", lambda path: -1)
    monkeypatch.setattr(thread_counters, "getrusage", None)
    found = fetched(DataLoader(Slow(), batch_size=8))
    assert (found.queued_s, found.read_bytes, found.stored_bytes, found.stored_s) == (None, None, None, None)
    assert found.batches == 3


@contextmanager
def in_worker(plain: Callable[[Any, Any], Any]) -> Iterator[tuple[Any, SlotFile]]:
    """A fetch as a worker meters it, and the file of its slot."""
    file = SlotFile.made()
    file.run_began = 1.0
    meter = WorkerMeter(file, 0)
    try:
        yield metered(plain, meter), file
    finally:
        file.run_began = 0.0
        meter.begins(None)  # which stops what looks at the lines
        file.remove(unmap=False)


def test_a_fetch_inside_of_a_fetch_or_one_that_raises_is_none_of_its_own() -> None:
    bodies = 0

    def plain(fetcher: Any, index: Any) -> Any:
        nonlocal bodies
        bodies += 1
        if index == "raises":
            raise KeyError(index)
        return fetch(fetcher, "inner") if index == "nested" else index

    with in_worker(plain) as (fetch, file):
        for _ in range(FIRST_FETCHES - 1):
            assert fetch(None, "nested") == "inner"
            with pytest.raises(KeyError):
                fetch(None, "raises")
        assert file.tally(0).sums.batches == len(file.tally(0).recent) == FIRST_FETCHES - 1
        assert bodies == 3 * (FIRST_FETCHES - 1)
        file.run_began = 0.0
        assert fetch(None, 1) == 1
        assert file.tally(0).sums.batches == FIRST_FETCHES - 1
        file.clear(0)
        file.run_began = 2.0
        assert fetch(None, 1) == 1
        assert file.tally(0).sums.batches == 1


def test_an_error_of_ours_in_a_worker_ends_the_metering_and_is_noted() -> None:
    class Odd:
        """A fetcher that takes no other collate function."""

        collate_fn = property(lambda self: list)

    with in_worker(lambda fetcher, index: index) as (fetch, file):
        assert [fetch(Odd(), i) for i in range(3)] == [0, 1, 2]
        assert file.tally(0).failed and not file.tally(0).sums.batches
