"""Meters the fetch of a batch (all `__getitem__`s and the collate) in the process where it runs, workers included.

A fetch is what a loader's fetcher does for one batch: its class carries the meter. Workers are reached through
`worker_init_fn`, which torch calls in every worker before it makes its fetcher, whatever the start method; the loader
gets our callable only while its iterator is made. What a worker adds up lies in its slot of a memory-mapped file (see
`tally`), which is removed with the run; workers that outlive the run see in it that the run is over, and fetch bare.
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
from gpu_doctor.capture.fetch.prefetch_queue import Edges, Stock
from gpu_doctor.capture.fetch.tally import MOST_SLOTS, SLOT_BYTES, SlotFile, Sums, Tally
from gpu_doctor.capture.fetch.worker_init import WorkerInit
from gpu_doctor.capture.lines.fetch_costs import line_costs
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Fetch, LineCost

MOST_SIZES: Final = 64
_staying: weakref.WeakKeyDictionary[Any, tuple[SlotFile, int]] = weakref.WeakKeyDictionary()
"""Iterators whose persistent workers have our meter from an earlier run -> their file and first slot."""


class FetchBook:
    """The tallies of one run: one for the training process and a slot per worker, for each loader."""

    def __init__(self, recorder: Recorder, patches: Patches) -> None:
        """Args: recorder: of the run, which gets the lines of its fetches. patches: of the run."""
        self.meter = Meter(lambda: recorder.thread, recorder.clock, recorder.fence.broke)
        """Takes the tally of the loader that the training thread is pulling from."""
        self._recorder, self._patches = recorder, patches
        self._kinds: set[type] = set()
        """Classes of fetchers that carry the meter."""
        self._own: dict[str, Tally] = {}
        self._stocks: dict[str, Stock] = {}
        self._edges: dict[str, Edges] = {}
        self._slots: dict[str, list[tuple[SlotFile, int, int]]] = {}
        """By loader: file, first slot, slots."""
        self._closed: dict[str, list[Tally]] | None = None
        """What the workers' slots held when the run ended."""
        self._sizes: dict[str, list[tuple[float, int]]] = {}
        self._next_slot = 0
        self._file: SlotFile | None = None
        self._opening: Opening | None = None
        """The newest one."""
        recorder.undo_by(self._undo)
        lines: Callable[[], tuple[LineCost, ...]] = recorder.parts.get("lines", tuple)
        recorder.parts["lines"] = lambda: lines() + self.lines()

    def close(self) -> None:
        """The run is over: keeps what was measured, and leaves no file."""
        with contextlib.ExitStack() as ends:  # each is done, whatever the others raise
            if self._file is not None:
                stays = any(file is self._file for file, _ in _staying.values())
                ends.callback(self._file.remove, unmap=not stays)
            ends.callback(self._end_generation)
            ends.callback(self.meter.counters.close)
            closed = {key: [file.copy(slot) for file, slot in self._places(key)] for key in self._slots}
            self._closed = closed
        if any(tally.failed for tallies in closed.values() for tally in tallies):
            self._recorder.note("gpu_doctor stopped timing fetches in a worker because of an internal error.")

    def _end_generation(self) -> None:
        for file in {file for places in self._slots.values() for file, _, _ in places}:
            file.generation = 0.0
        self._slots.clear()

    def own(self, key: str, iterator: Any) -> Tally | None:
        """The tally of a loader's fetches in this process, whose fetcher gets the meter; None where workers fetch."""
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if not key or not hasattr(type(fetcher), "fetch"):
            return None
        if type(fetcher) not in self._kinds:
            self._kinds.add(type(fetcher))
            meter_class(self._patches, type(fetcher), self.meter)
        return self._own.setdefault(key, Tally(bytearray(SLOT_BYTES)))

    def stock(self, key: str) -> Stock | None:
        """What lies ready where a loader's workers fetch; None for a loader without workers, or without a name."""
        setup = self._recorder.loaders.get(key)
        return self._stocks.setdefault(key, Stock()) if setup is not None and setup.num_workers else None

    def opening(self, loader: Any, key: str) -> Opening | None:
        """The loader's iterator is about to be made; None where it starts no workers."""
        workers = int(getattr(loader, "num_workers", 0) or 0)
        staying = getattr(loader, "_iterator", None)
        if workers and staying is not None:
            self._go_on(staying, key, workers)
        elif workers:
            try:
                file, slot = self._slot(key, workers)
                edges = self._edges.setdefault(key, Edges())
                self._opening = Opening(loader, file, slot, edges, self._recorder.notes)
                return self._opening
            except Exception as error:
                self._recorder.note(f"The fetches in workers could not be timed: {error}")
        return None

    def _undo(self) -> None:
        """Something of ours has failed: nothing stands on a loader whose iterator is being made."""
        if self._opening is not None:
            self._opening.patches.restore()

    def _go_on(self, iterator: Any, key: str, workers: int) -> None:
        """Workers that stayed from an earlier run meter for this one."""
        file, slot = _staying.get(iterator, (None, 0))
        known = self._slots.setdefault(key, [])
        if file is None or any(one is file for one, _, _ in known):
            return
        if file.generation == 0.0:
            for one in range(slot, min(slot + workers, MOST_SLOTS)):
                file.clear(one)
            file.generation = time.time()
        known.append((file, slot, workers))

    def _slot(self, key: str, workers: int) -> tuple[SlotFile, int]:
        if self._file is None:
            self._file = SlotFile.made()
            self._file.generation = time.time()
        places = self._slots.setdefault(key, [])
        found = next((first for file, first, count in places if file is self._file and count >= workers), None)
        if found is None:
            found = self._next_slot
            self._next_slot += workers
            places.append((self._file, found, workers))
        return self._file, found

    def _places(self, key: str) -> Iterator[tuple[SlotFile, int]]:
        for file, first, count in list(self._slots.get(key, ())):
            for slot in range(first, min(first + count, MOST_SLOTS)):
                yield file, slot

    def _in_workers(self) -> dict[str, list[Tally]]:
        """The tallies of each loader's workers."""
        if self._closed is not None:
            return self._closed
        return {key: [file.tally(slot) for file, slot in self._places(key)] for key in self._slots.copy()}

    def weigh(self, key: str, batch: Any) -> None:
        """Notes bytes and tensors of a batch (of the first two of each epoch: walking a batch is not free)."""
        sizes = self._sizes.setdefault(key, [])
        if len(sizes) < MOST_SIZES:
            with contextlib.suppress(Exception):  # the batch may be of a class of the user's own
                sizes.append((byte_count(batch), tensor_count(batch)))

    def fetches(self, workers: Mapping[str, int], handed: Callable[[str], tuple[int, int]]) -> tuple[Fetch, ...]:
        """What was metered so far, one Fetch a loader.

        Args:
            workers: how many each loader has.
            handed: batches that one has handed to the loop, and evaluation passes.
        """
        own, far = self._own.copy(), self._in_workers()
        found = []
        for key in {*own, *far}:
            tallies = [*([own[key]] if key in own else []), *far.get(key, ())]
            sums = Sums(*map(math.fsum, zip(*(tally.sums for tally in tallies), strict=True))) if tallies else None
            if sums is not None and sums.batches:
                found.append(self._fetch(key, workers.get(key, 0), sums, tallies, handed(key)))
        return tuple(found)

    def _fetch(self, key: str, workers: int, sums: Sums, tallies: list[Tally], handed: tuple[int, int]) -> Fetch:
        sizes = [size for size in self._sizes.get(key, ()) if size[1]]
        stock, edges = self._stocks.get(key), self._edges.get(key)
        ready, ready_after = Stock().looks if stock is None else stock.looks
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
            delivered=handed[0],
            passes=handed[1],
            ready_batches=None if stock is None else stock.ready_batches,
            empty_share=None if stock is None else stock.empty_share,
            ready=ready,
            ready_after=ready_after,
            **({} if edges is None else {name: getattr(edges, name) for name in Edges.__slots__}),
        )

    def lines(self) -> tuple[LineCost, ...]:
        """The dear lines inside the workers of the loader that is trained from (of the busiest one until it is known).

        Their shares are of these workers' fetch time.
        """
        known, far = self._recorder.loaders.copy(), self._in_workers()
        training = [tallies for key, tallies in far.items() if key in known and known[key].role == "training"]
        if not training and far:
            training = [max(far.values(), key=lambda tallies: sum(one.sums.wall_s for one in tallies))]
        return line_costs((one.page, one.sums.wall_s) for tallies in training for one in tallies)


class Opening:
    """While a loader's iterator is made, its workers are given the meter."""

    def __init__(self, loader: Any, file: SlotFile, slot: int, edges: Edges, notes: list[str]) -> None:
        """Args: loader: its own `worker_init_fn` runs first. file, slot: for the workers. edges, notes: of the run."""
        self.edges = edges
        self._loader, self._place = loader, (file, slot)
        self.patches = Patches(notes)
        self.patches.wrap(loader, "worker_init_fn", lambda user: WorkerInit(user, file.path, slot))
        self._began = time.perf_counter()

    def end(self, is_made: bool) -> None:
        """The iterator was made, or could not be."""
        seconds = time.perf_counter() - self._began
        self.patches.restore()
        if is_made:
            self.edges.started(seconds)
        loader, self._loader = self._loader, None  # which lives no longer for us
        made = getattr(loader, "_iterator", None)
        if made is not None:
            _staying[made] = self._place


def _known(counted: float) -> float | None:
    """None where the kernel does not count."""
    return None if math.isnan(counted) else counted
