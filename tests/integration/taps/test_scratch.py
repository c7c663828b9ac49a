"""Scratch files of killed runs are taken away by the next, those of living ones never; nothing stays in /dev/shm."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpu_doctor.capture.fetch import scratch
from gpu_doctor.capture.fetch.tally import SlotFile
from gpu_doctor.capture.fetch.thread_counters import ThreadCounters
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from tests.support.one_tap import on
from tests.support.repository import ROOT
from tests.support.simulated_device import Noted

SHARED = Path("/dev/shm")
MAPS = Path("/proc/self/maps")
RUN = """
import time, torch, gpu_doctor
from torch.utils.data import DataLoader, TensorDataset

with gpu_doctor.watch():
    for batch in DataLoader(TensorDataset(torch.zeros(8, 2)), num_workers=1):
        print("running", flush=True)
        time.sleep(120)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for scratch files that no other program uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(folder: Path) -> list[Path]:
    """Scratch files that are there, made to look old."""
    found = sorted(folder.glob(f"{scratch.PREFIX}*{scratch.SUFFIX}"))
    for path in found:
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    return found


@contextmanager
def another_kernel(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the midst of a run whose loader has a worker."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "running\n"
        yield child
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # its worker too
        child.communicate()


def run() -> None:
    """A run of this process with a worker."""
    with on(tap):
        list(DataLoader(Rows(), num_workers=1))


class Rows(Dataset[Any]):
    """Its batches say which process made them."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((100,), os.getpid())


@pytest.mark.skipif(os.name == "nt", reason="processes are killed otherwise there")
def test_the_file_of_a_killed_run_is_removed_by_the_next_and_that_of_a_living_one_is_not(folder: Path) -> None:
    with another_kernel(folder):
        before = left(folder)
        assert len(before) == 1
        run()
        assert left(folder) == before, "another kernel's run goes on"
    deadline = time.monotonic() + 20.0
    assert left(folder) == before, "it was killed: nobody has cleared up"
    while left(folder) and time.monotonic() < deadline:
        run()  # the killed worker may take a moment to go
    assert not left(folder)


def test_a_file_that_is_mapped_is_held_until_the_mapping_goes(folder: Path) -> None:
    file = SlotFile.made()
    (path,) = left(folder)
    scratch.sweep()
    assert path.exists()
    file.run_began = 7.0
    assert SlotFile(str(path)).run_began == 7.0
    del file
    left(folder)
    scratch.sweep()
    assert not path.exists()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is removed that this process has mapped."""
    if not MAPS.exists():
        pytest.skip("this system does not say what is mapped")
    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if str(path) in MAPS.read_text():
            raise PermissionError(13, "the file is in use", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)


@pytest.mark.usefixtures("windows")
def test_where_no_mapped_file_can_be_removed_the_run_removes_it_unmapped(folder: Path) -> None:
    recorder = Recorder()
    with on(tap, recorder):
        list(DataLoader(Rows(), num_workers=1))
    assert not left(folder)
    recording = recorder.close()
    assert not recording.notes
    assert recording.fetches[0].batches == 6


@pytest.mark.usefixtures("windows")
def test_the_file_of_workers_that_stay_is_left_to_the_next_run(folder: Path) -> None:
    loader: Any = DataLoader(Rows(), num_workers=1, persistent_workers=True)
    with on(tap):
        list(loader)
    assert len(left(folder)) == 1
    loader._iterator._shutdown_workers()
    del loader
    gc.collect()
    run()
    assert not left(folder)


def test_a_file_is_removed_whatever_else_fails_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, close = os.getpid(), ThreadCounters.close

    def fails(counters: ThreadCounters) -> None:
        if os.getpid() == here:
            raise OSError("ours")
        close(counters)

    monkeypatch.setattr(ThreadCounters, "close", fails)
    recorder = Recorder()
    with on(tap, recorder):
        list(DataLoader(Rows(), num_workers=1))
    assert not left(folder)
    assert len(recorder.notes) == 1
    assert recorder.close().fetches[0].batches == 6


def test_what_is_young_another_users_or_no_file_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str) -> Path:
        return folder / f"{scratch.PREFIX}{name}{scratch.SUFFIX}"

    named("folder").mkdir()
    (folder / "mine").touch()
    named("link").symlink_to(folder / "mine")
    kept = [named("folder"), named("link")]
    if hasattr(os, "mkfifo"):
        os.mkfifo(named("pipe"))
        kept.append(named("pipe"))
    (folder / f"{scratch.PREFIX}x.other").touch()
    named("old").touch()
    left(folder)
    named("young").touch()
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: -1)
        scratch.sweep()
    assert named("old").exists() or scratch.fcntl is None  # type: ignore[attr-defined]
    scratch.sweep()
    assert not named("old").exists()
    assert all(path.is_symlink() or path.exists() for path in kept)
    assert (folder / "mine").exists() and (folder / f"{scratch.PREFIX}x.other").exists() and named("young").exists()


def test_a_folder_that_cannot_be_read_or_a_file_that_cannot_be_removed_raises_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "no", str(path))

    one, other = scratch.make_file(8), scratch.make_file(8)
    left(folder)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuses)
        scratch.sweep()
    assert Path(one).exists() and Path(other).exists()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    scratch.sweep()


def test_without_locks_no_file_is_taken_to_be_unused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if scratch.fcntl is None:  # type: ignore[attr-defined]
        pytest.skip("no such locks here")

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(scratch.fcntl, "flock", no_locks)  # type: ignore[attr-defined]
    file = SlotFile.made()
    (path,) = left(folder)
    scratch.sweep()
    assert path.exists()
    file.remove(unmap=True)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no /dev/shm here")
def test_a_run_with_workers_leaves_nothing_in_shared_memory() -> None:
    # Batches handed over by name lie there as long as anybody has them: a tap that kept one would leave its entry.
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    workers: set[int] = set()
    seen = 0
    try:
        with on(tap) as scope:
            told = Noted(scope.recorder)
            for _ in range(2):
                for batch in DataLoader(Rows(), batch_size=2, num_workers=2):
                    workers.add(int(batch[0, 0]))
                    seen += len(entries(workers))
                    told.learns()
            del batch
            scope.recorder.close()
            assert seen, "where batches lie while the loop has them"
            # What a worker still held as it ended, torch's own manager of shared memory removes when it hears of that.
            until = time.monotonic() + 5.0
            while entries(workers) and time.monotonic() < until:
                time.sleep(0.02)
            assert not entries(workers)
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


def entries(workers: set[int]) -> list[str]:
    """What these processes have in shared memory, or left there; other programs' is not theirs."""
    return [one.name for one in SHARED.iterdir() if any(f"_{pid}_" in one.name for pid in workers)]
