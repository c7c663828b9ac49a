"""Fetches are metered where they run, workers of every start method included, and nothing of it stays."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_tap import on, standing
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import Fetch
from gpu_doctor.taps.dataloader import tap
from gpu_doctor.taps.fetching import RECENT, Tally

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
    before = standing(*SEAMS)
    loader = DataLoader(Slow(), batch_size=8, num_workers=1)
    with on(tap):
        list(loader)
        assert standing(*SEAMS) != before
        assert loader.worker_init_fn is None
        assert scratch_files()
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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_computes_costs_cpu(workers: int) -> None:
    found = fetched(DataLoader(Slow(spin=True), batch_size=8, num_workers=workers))
    assert found.cpu_s >= 24 * SLEEP_S


@pytest.mark.slow
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


def test_a_tally_keeps_the_recent_ones_and_all_sums() -> None:
    tally = Tally(bytearray(8 * (4 + RECENT)))
    for i in range(RECENT + 5):
        tally.add(float(i), 0.5, 0.25)
    assert tally.sums == (RECENT + 5, sum(range(RECENT + 5)), 0.5 * (RECENT + 5), 0.25 * (RECENT + 5))
    np.testing.assert_array_equal(np.sort(tally.recent), np.arange(5, RECENT + 5))
