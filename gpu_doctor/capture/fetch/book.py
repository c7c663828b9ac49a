"""Measures the fetch of a batch (all `__getitem__`s and the collate) in the process where it runs, workers included.

A fetch is the work of a loader's fetcher for one batch; the meter is patched onto the fetcher's class. It gets into
workers through `worker_init_fn`, which torch calls in every worker before it makes the fetcher, whatever the start
method; the loader has our callable only while its iterator is made. A worker writes its sums into its slot of a
memory-mapped file (see `tally`), which is removed at the run's end. Workers that outlive the run read there that the
run is over, and then fetch without the meter.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from gpu_doctor.capture.describe.batches import byte_count, tensor_count
from gpu_doctor.capture.fetch.meter import Meter, meter_class
from gpu_doctor.capture.fetch.prefetch_queue import ReadyBatches, WorkerStarts
from gpu_doctor.capture.fetch.tally import MOST_SLOTS, SLOT_BYTES, SlotFile, Sums, Tally
from gpu_doctor.capture.fetch.worker_init import WorkerInit
from gpu_doctor.capture.lines.fetch_costs import line_costs
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Fetch, LineCost

MOST_SIZES: Final = 64
"""Most batches per loader whose bytes and tensors are counted."""
_persistent: weakref.WeakKeyDictionary[Any, tuple[SlotFile, int]] = weakref.WeakKeyDictionary()
"""File and first slot of each iterator whose persistent workers have our meter from an earlier run."""


class FetchBook:
    """Collects the tallies of one run: for each loader, one of the training process and one of each worker."""

    def __init__(self, recorder: Recorder, patches: Patches) -> None:
        """Args: recorder: the run's recorder, which gets the line costs of fetches. patches: the run's patches."""
        self.meter = Meter(lambda: recorder.thread, recorder.clock, recorder.fence.broke)
        """Meter of the training process; holds the tally of the loader whose batch is being requested."""
        self._recorder, self._patches = recorder, patches
        self._kinds: set[type] = set()
        """Classes of fetchers that the meter was patched onto."""
        self._own: dict[str, Tally] = {}
        """Tally of each loader that fetches in the training process."""
        self._stocks: dict[str, ReadyBatches] = {}
        self._starts: dict[str, WorkerStarts] = {}
        self._slots: dict[str, list[tuple[SlotFile, int, int]]] = {}
        """Files, first slots and numbers of slots of each loader's workers."""
        self._closed: dict[str, list[Tally]] | None = None
        """Tallies of each loader's workers at the run's end; None before."""
        self._sizes: dict[str, list[tuple[float, int]]] = {}
        self._next_slot = 0
        self._file: SlotFile | None = None
        self._opening: Opening | None = None
        """The newest iterator that is being made."""
        recorder.undo_by(self._undo)
        lines: Callable[[], tuple[LineCost, ...]] = recorder.parts.get("lines", tuple)
        recorder.parts["lines"] = lambda: lines() + self.lines()

    def close(self) -> None:
        """Copies the workers' tallies and removes the file, at the run's end."""
        with contextlib.ExitStack() as ends:  # each callback runs, whatever the others raise
            if self._file is not None:
                stays = any(file is self._file for file, _ in _persistent.values())
                ends.callback(self._file.remove, unmap=not stays)
            ends.callback(self._end_run)
            ends.callback(self.meter.counters.close)
            closed = {key: [file.copy(slot) for file, slot in self._places(key)] for key in self._slots}
            self._closed = closed
        if any(tally.failed for tallies in closed.values() for tally in tallies):
            self._recorder.note("gpu_doctor stopped timing fetches in a worker because of an internal error.")

    def _end_run(self) -> None:
        """Tells the workers, through their files, that the run is over."""
        for file in {file for places in self._slots.values() for file, _, _ in places}:
            file.run_began = 0.0
        self._slots.clear()

    def own(self, key: str, iterator: Any) -> Tally | None:
        """Returns the tally of a loader that fetches in this process, and meters its fetcher; None if workers fetch."""
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if not key or not hasattr(type(fetcher), "fetch"):
            return None
        if type(fetcher) not in self._kinds:
            self._kinds.add(type(fetcher))
            meter_class(self._patches, type(fetcher), self.meter)
        return self._own.setdefault(key, Tally(bytearray(SLOT_BYTES)))

    def stock(self, key: str) -> ReadyBatches | None:
        """Returns the counter of ready batches of a loader; None for a loader without workers or without a key."""
        setup = self._recorder.loaders.get(key)
        return self._stocks.setdefault(key, ReadyBatches()) if setup is not None and setup.num_workers else None

    def opening(self, loader: Any, key: str) -> Opening | None:
        """Returns the context that puts the meter into a loader's new workers; None if no workers are started."""
        workers = int(getattr(loader, "num_workers", 0) or 0)
        staying = getattr(loader, "_iterator", None)
        if workers and staying is not None:
            self._reuse_workers(staying, key, workers)
        elif workers:
            try:
                file, slot = self._slot(key, workers)
                starts = self._starts.setdefault(key, WorkerStarts())
                self._opening = Opening(loader, file, slot, starts, self._recorder.notes)
                return self._opening
            except Exception as error:
                self._recorder.note(f"The fetches in workers could not be timed: {error}")
        return None

    def _undo(self) -> None:
        """Takes our `worker_init_fn` off a loader whose iterator is being made, after an error of our own."""
        if self._opening is not None:
            self._opening.patches.restore()

    def _reuse_workers(self, iterator: Any, key: str, workers: int) -> None:
        """Makes persistent workers of an earlier run measure for this run.

        Clears their slots if the earlier run has ended; does nothing if an entry of this loader has the file already.
        """
        file, slot = _persistent.get(iterator, (None, 0))
        known = self._slots.setdefault(key, [])
        if file is None or any(known_file is file for known_file, _, _ in known):
            return
        if file.run_began == 0.0:
            for worker_slot in range(slot, min(slot + workers, MOST_SLOTS)):
                file.clear(worker_slot)
            file.run_began = time.time()
        known.append((file, slot, workers))

    def _slot(self, key: str, workers: int) -> tuple[SlotFile, int]:
        """Returns the file and the first slot for a loader's workers; makes them if there are none yet."""
        if self._file is None:
            self._file = SlotFile.made()
            self._file.run_began = time.time()
        places = self._slots.setdefault(key, [])
        found = next((first for file, first, count in places if file is self._file and count >= workers), None)
        if found is None:
            found = self._next_slot
            self._next_slot += workers
            places.append((self._file, found, workers))
        return self._file, found

    def _places(self, key: str) -> Iterator[tuple[SlotFile, int]]:
        """Yields file and slot of each worker of a loader."""
        for file, first, count in list(self._slots.get(key, ())):
            for slot in range(first, min(first + count, MOST_SLOTS)):
                yield file, slot

    def _in_workers(self) -> dict[str, list[Tally]]:
        """Returns the tallies of each loader's workers."""
        if self._closed is not None:
            return self._closed
        return {key: [file.tally(slot) for file, slot in self._places(key)] for key in self._slots.copy()}

    def weigh(self, key: str, batch: Any) -> None:
        """Records bytes and tensors of a batch (the first two of each epoch: walking a batch is not free)."""
        sizes = self._sizes.setdefault(key, [])
        if len(sizes) < MOST_SIZES:
            with contextlib.suppress(Exception):  # the batch may be of a class of the user's own
                sizes.append((byte_count(batch), tensor_count(batch)))

    def fetches(self, workers: Mapping[str, int], delivered: Callable[[str], tuple[int, int]]) -> tuple[Fetch, ...]:
        """Returns the measurements so far, one Fetch a loader.

        Args:
            workers: number of workers of each loader.
            delivered: returns, for a loader's key, its batches delivered to the loop and its evaluation passes.
        """
        own, in_workers = self._own.copy(), self._in_workers()
        found = []
        for key in {*own, *in_workers}:
            tallies = [*([own[key]] if key in own else []), *in_workers.get(key, ())]
            sums = Sums(*map(math.fsum, zip(*(tally.sums for tally in tallies), strict=True))) if tallies else None
            if sums is not None and sums.batches:
                found.append(self._fetch(key, workers.get(key, 0), sums, tallies, delivered(key)))
        return tuple(found)

    def _fetch(self, key: str, workers: int, sums: Sums, tallies: list[Tally], delivered: tuple[int, int]) -> Fetch:
        """Returns the Fetch of one loader from its sums, tallies, batch sizes, ready batches and worker starts."""
        sizes = [size for size in self._sizes.get(key, ()) if size[1]]
        stock, starts = self._stocks.get(key), self._starts.get(key)
        ready, ready_after = ReadyBatches().counts if stock is None else stock.counts
        return Fetch(
            loader=key,
            workers=workers,
            batches=int(sums.batches),
            wall_s=sums.wall_s,
            cpu_s=sums.cpu_s,
            collate_s=sums.collate_s,
            collate_cpu_s=sums.collate_cpu_s,
            batch_bytes=float(np.mean([size for size, _ in sizes])) if sizes else float("nan"),
            batch_tensors=float(np.mean([count for _, count in sizes])) if sizes else None,
            walls_s=np.asarray([wall for tally in tallies for wall in tally.recent]),
            queued_s=_known(sums.queued_s),
            read_bytes=_known(sums.read_bytes),
            stored_bytes=_known(sums.stored_bytes),
            stored_s=_known(sums.stored_s),
            delivered=delivered[0],
            passes=delivered[1],
            ready_batches=None if stock is None else stock.ready_batches,
            empty_share=None if stock is None else stock.empty_share,
            ready=ready,
            ready_after=ready_after,
            **({} if starts is None else {name: getattr(starts, name) for name in WorkerStarts.__slots__}),
        )

    def lines(self) -> tuple[LineCost, ...]:
        """Returns the costs of lines in the workers of the training loader, as shares of these workers' fetch time.

        Until the training loader is known, the loader whose workers fetch longest is taken.
        """
        known, in_workers = self._recorder.loaders.copy(), self._in_workers()
        training = [tallies for key, tallies in in_workers.items() if key in known and known[key].role == "training"]
        if not training and in_workers:
            training = [max(in_workers.values(), key=lambda tallies: sum(tally.sums.wall_s for tally in tallies))]
        return line_costs((tally.page, tally.sums.wall_s) for tallies in training for tally in tallies)


class Opening:
    """Puts the meter into a loader's workers while the loader's iterator is made."""

    def __init__(self, loader: Any, file: SlotFile, slot: int, starts: WorkerStarts, notes: list[str]) -> None:
        """Replaces the loader's `worker_init_fn` by ours, which calls the loader's own first.

        Args:
            loader: the loader.
            file: slot file of the workers.
            slot: first slot of the workers.
            starts: counter of the loader's worker starts.
            notes: list for sentences for the footer.
        """
        self.starts = starts
        self._loader, self._place = loader, (file, slot)
        self.patches = Patches(notes)
        self.patches.wrap(loader, "worker_init_fn", lambda user: WorkerInit(user, file.path, slot))
        self._began = time.perf_counter()

    def end(self, is_made: bool) -> None:
        """Restores the loader, and counts the workers' start if the iterator was made."""
        seconds = time.perf_counter() - self._began
        self.patches.restore()
        if is_made:
            self.starts.started(seconds)
        loader, self._loader = self._loader, None  # do not keep the loader alive
        made = getattr(loader, "_iterator", None)
        if made is not None:
            _persistent[made] = self._place


def _known(counted: float) -> float | None:
    """Returns a counter's value, None if it is NaN because the kernel does not count it."""
    return None if math.isnan(counted) else counted
