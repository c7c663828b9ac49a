"""Meters the fetch of a batch (all `__getitem__`s and the collate) in the process where it runs, workers included.

A fetch is what a loader's fetcher does for one batch. In the training process it is metered by a wrapper on the
fetchers' `fetch`. Workers are reached through `worker_init_fn`, which torch calls in every worker before it makes its
fetcher, whatever the start method; the loader gets our callable only while its iterator is made. A worker adds up its
seconds in a few doubles of a memory-mapped scratch file: no queue, no lock, nothing to unpickle; the file is removed
with the run.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from torch.utils.data._utils import fetch as torch_fetch

from gpu_doctor.batches import byte_count
from gpu_doctor.patching import Patches
from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import Fetch

RECENT: Final = 60
"""Wall seconds of so many recent fetches are kept per process, for the spread."""
SLOW_FETCH_S: Final = 2e-4
"""From so long on, every fetch is metered in full: two system calls (about 2 us) are then below 1 % of it."""
EVERY: Final = 7
"""Of faster fetches one in so many is metered in full (a prime, so as not to beat with periods in the data)."""
_DOUBLES: Final = 4 + RECENT
_SLOT_BYTES: Final = 8 * _DOUBLES
MOST_SLOTS: Final = 1024
"""Worker processes metered in one run (a slot each; epochs start new workers that add to their id's slot)."""
_FETCHERS: Final = (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher)


class Tally:
    """Running sums of one process' fetches over a writable buffer of doubles: batches, wall, CPU, collate, recent."""

    def __init__(self, buffer: Any, offset: int = 0) -> None:
        self._cells = memoryview(buffer)[offset : offset + _SLOT_BYTES].cast("d")
        self._count = int(self._cells[0])  # a worker of a later epoch goes on where its predecessor stopped
        self.weight = 1
        """For how many fetches the CPU and collate seconds of the next one stand; 0 = they are not measured.

        The CPU clock is a system call: where fetches are fast it is read for one in EVERY of them, which leaves the
        expected sums as they are.
        """

    def add(self, wall_s: float, cpu_s: float = 0.0, collate_s: float = 0.0) -> None:
        """One fetch; CPU and collate seconds times their weight."""
        cells, count = self._cells, self._count
        # Sums last and the count after them: a reader that comes in between is one fetch late.
        cells[4 + count % RECENT] = wall_s
        cells[1] += wall_s
        if cpu_s or collate_s:
            cells[2] += cpu_s
            cells[3] += collate_s
        cells[0] += 1.0
        self._count = count = count + 1
        self.weight = 1 if wall_s >= SLOW_FETCH_S else 0 if count % EVERY else EVERY

    @property
    def sums(self) -> tuple[float, float, float, float]:
        """Batches, wall, CPU and collate seconds."""
        batches, wall, cpu, collate = self._cells[:4].tolist()
        return batches, wall, cpu, collate

    @property
    def recent(self) -> list[float]:
        """Wall seconds of the recent fetches."""
        return list(self._cells[4 : 4 + min(int(self._cells[0]), RECENT)].tolist())


class Meter:
    """Where the fetches of a process go now."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally
        """None = not metered."""


def metered(
    original: Callable[[Any, Any], Any], meter: Meter, cpu_clock: Callable[[], float]
) -> Callable[[Any, Any], Any]:
    """A fetch that is metered into the Tally that stands in `meter` at its time."""

    @functools.wraps(original)
    def fetch(self: Any, index: Any) -> Any:
        __tracebackhide__ = True
        tally = meter.tally
        if tally is None:
            return original(self, index)
        weight = tally.weight
        if not weight:
            begin = time.perf_counter()
            batch = original(self, index)
            tally.add(time.perf_counter() - begin)
            return batch
        collate, collate_s = self.collate_fn, 0.0

        def collate_timed(data: Any) -> Any:
            __tracebackhide__ = True
            nonlocal collate_s
            begin = time.perf_counter()
            try:
                return collate(data)
            finally:
                collate_s = time.perf_counter() - begin

        self.collate_fn = collate_timed
        wall, cpu = time.perf_counter(), cpu_clock()
        try:
            batch = original(self, index)
        finally:
            self.collate_fn = collate
        cpu = cpu_clock() - cpu
        tally.add(time.perf_counter() - wall, cpu * weight, collate_s * weight)
        return batch

    return fetch


class WorkerInit:
    """The `worker_init_fn` of a metered loader: the user's own first, then the meter; picklable for spawn."""

    def __init__(self, user: Callable[[int], None] | None, path: str, first_slot: int) -> None:
        self._user, self._path, self._first_slot = user, path, first_slot

    def __call__(self, worker_id: int) -> None:
        """Runs in the worker."""
        if self._user is not None:
            self._user(worker_id)
        slot = self._first_slot + worker_id
        if slot >= MOST_SLOTS:
            return
        with contextlib.suppress(OSError, ValueError), Path(self._path).open("r+b") as file:
            tally = Tally(mmap.mmap(file.fileno(), 0), slot * _SLOT_BYTES)
            for fetcher in _FETCHERS:
                # A forked worker inherits the training process' wrapper: the meter goes on what is under it.
                plain = getattr(fetcher.fetch, "__wrapped__", fetcher.fetch)
                fetcher.fetch = metered(plain, Meter(tally), time.process_time)  # type: ignore[method-assign]


class FetchBook:
    """The tallies of one run: one for the training process and a slot per worker, for each loader."""

    def __init__(self, recorder: Recorder) -> None:
        self.meter = Meter()
        """Takes the tally of the loader that the training thread is pulling from."""
        self._recorder = recorder
        self._patches = Patches()
        self._own: dict[str, Tally] = {}
        self._slots: dict[str, tuple[int, int]] = {}
        self._bytes: dict[str, list[float]] = {}
        self._next_slot = 0
        self._path = ""
        self._map: mmap.mmap | None = None

    def __enter__(self) -> FetchBook:
        for fetcher in _FETCHERS:
            self._patches.wrap(fetcher, "fetch", lambda plain: metered(plain, self.meter, time.thread_time))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._patches.restore()
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    def own(self, key: str) -> Tally | None:
        """The tally of a loader's fetches in this process; None for a loader without a name."""
        if not key:
            return None
        tally = self._own.get(key)
        if tally is None:
            tally = self._own[key] = Tally(bytearray(_SLOT_BYTES))
        return tally

    @contextmanager
    def metering(self, loader: Any, key: str) -> Iterator[None]:
        """While the loader's iterator is made, its workers are given the meter."""
        workers = int(getattr(loader, "num_workers", 0) or 0)
        if not workers or getattr(loader, "_iterator", None) is not None:
            yield
            return
        try:
            slot = self._slot(key, workers)
        except OSError as error:
            self._recorder.note(f"The workers' fetches could not be metered: {error}")
            yield
            return
        user = loader.worker_init_fn
        object.__setattr__(loader, "worker_init_fn", WorkerInit(user, self._path, slot))
        try:
            yield
        finally:
            object.__setattr__(loader, "worker_init_fn", user)

    def _slot(self, key: str, workers: int) -> int:
        if self._map is None:
            with tempfile.NamedTemporaryFile(prefix="gpu_doctor-", suffix=".fetches", delete=False) as file:
                file.write(struct.pack("d", 0.0) * _DOUBLES * MOST_SLOTS)
                self._path = file.name
            with Path(self._path).open("r+b") as opened:
                self._map = mmap.mmap(opened.fileno(), 0)
        first, reserved = self._slots.get(key, (-1, 0))
        if reserved < workers:
            first = self._next_slot
            self._next_slot += workers
            self._slots[key] = (first, workers)
        return first

    def weigh(self, key: str, batch: Any) -> None:
        """Notes the bytes of a batch (of the first two of each epoch: walking a batch is not free)."""
        sizes = self._bytes.setdefault(key, [])
        if len(sizes) < 64:
            sizes.append(byte_count(batch))

    def fetches(self, workers: Mapping[str, int]) -> tuple[Fetch, ...]:
        """What was metered so far, one Fetch a loader."""
        found = []
        for key in {*self._own, *self._slots}:
            tallies = [self._own[key]] if key in self._own else []
            if key in self._slots and self._map is not None:
                first, count = self._slots[key]
                last = min(first + count, MOST_SLOTS)
                tallies += [Tally(self._map, slot * _SLOT_BYTES) for slot in range(first, last)]
            sums = np.sum([tally.sums for tally in tallies], axis=0) if tallies else np.zeros(4)
            if not sums[0]:
                continue
            sizes = [size for size in self._bytes.get(key, ()) if size == size]
            found.append(
                Fetch(
                    loader=key,
                    workers=workers.get(key, 0),
                    batches=int(sums[0]),
                    wall_s=float(sums[1]),
                    cpu_s=float(sums[2]),
                    collate_s=float(sums[3]),
                    batch_bytes=float(np.mean(sizes)) if sizes else float("nan"),
                    walls_s=np.asarray([wall for tally in tallies for wall in tally.recent]),
                )
            )
        return tuple(found)
