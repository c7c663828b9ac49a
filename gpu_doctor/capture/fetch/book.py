"""Meters the fetch of a batch (all `__getitem__`s and the collate) in the process where it runs, workers included.

A fetch is what a loader's fetcher does for one batch. In the training process the fetcher carries the meter for just
those fetches that are metered: a wrapper that stands there for all of them costs a loop 4 us each. Workers are reached
through `worker_init_fn`, which torch calls in every worker before it makes its fetcher, whatever the start method; the
loader gets our callable only while its iterator is made. What a worker adds up lies in its slot of a memory-mapped file
(see `tally`), which is removed with the run; workers that outlive the run see in it that the run is over, and fetch
bare.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from gpu_doctor.capture.describe.batches import byte_count, tensor_count
from gpu_doctor.capture.fetch.meter import FLOOR, Meter, metered
from gpu_doctor.capture.fetch.prefetch_queue import Edges, Stock
from gpu_doctor.capture.fetch.sums import Sums
from gpu_doctor.capture.fetch.tally import LINES_BYTES, MOST_SLOTS, SLOW_OWN_FETCH_S, TALLY_BYTES, SlotFile, Tally
from gpu_doctor.capture.fetch.worker_init import WorkerInit
from gpu_doctor.capture.lines.fetch_costs import line_costs, with_fetches
from gpu_doctor.capture.lines.fetch_sampler import FetchLines
from gpu_doctor.capture.lines.switch_interval import foreign_threads
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Fetch, LineCost

OWN_PERIOD_S: Final = 0.025
"""Mean seconds between looks at fetches in the training process, at least."""
PATIENCE_S: Final = 1.0
"""So long the run's end waits for a thread of ours that looks."""
_staying: weakref.WeakKeyDictionary[Any, tuple[SlotFile, int]] = weakref.WeakKeyDictionary()
"""Iterators whose persistent workers have our meter from an earlier run -> their file and first slot."""


class FetchBook:
    """The tallies of one run: one for the training process and a slot per worker, for each loader."""

    def __init__(self, recorder: Recorder) -> None:
        self.meter = Meter(lambda: recorder.thread)
        """Takes the tally of the loader that the training thread is pulling from."""
        self.meter.on_error = recorder.fence.broke
        self._recorder = recorder
        self._metered: dict[type, Callable[[Any, Any], Any]] = {}
        self._own: dict[str, Tally] = {}
        self._stocks: dict[str, Stock] = {}
        self._edges: dict[str, Edges] = {}
        self._slots: dict[str, list[tuple[SlotFile, int, int]]] = {}
        self._sizes: dict[str, list[tuple[float, int]]] = {}
        self._next_slot = 0
        self._file: SlotFile | None = None

    def __enter__(self) -> FetchBook:
        parts = self._recorder.parts
        before: Callable[[], tuple[LineCost, ...]] = parts.get("lines", tuple)
        parts["lines"] = lambda: self._with_own(before()) + self.lines()
        return self

    def __exit__(self, *raised: object) -> None:
        self.meter.counters.close()
        for tally in self._own.values():
            if tally.lines is not None:
                tally.lines.stop(PATIENCE_S)
        self._recorder.parts.freeze("lines")
        if any(file.tally(slot).failed for key in self._slots for file, slot in self._worker_slots(key)):
            self._recorder.note("gpu_doctor stopped timing fetches in a worker because of an error of its own.")
        for file in {file for places in self._slots.values() for file, _, _ in places}:
            file.generation = 0.0
        if self._file is not None:
            self._file.remove()

    def meter_on(self, iterator: Any) -> Any:
        """Puts the meter on an iterator's fetcher, for one fetch in this process; None where it has none that takes it.

        `meter_off` takes it off again: the fetcher holds itself by it.
        """
        fetcher = vars(iterator).get("_dataset_fetcher")
        own = getattr(fetcher, "__dict__", None)
        if own is None or "fetch" in own or not hasattr(fetcher, "fetch"):
            return None
        kind = type(fetcher)
        fetch = self._metered.get(kind)
        if fetch is None:
            fetch = self._metered[kind] = metered(kind.fetch, self.meter, time.thread_time)
        own["fetch"] = functools.partial(fetch, fetcher)
        return fetcher

    def meter_off(self, fetcher: Any) -> None:
        """The fetch has ended."""
        self.meter.tally = None
        vars(fetcher).pop("fetch", None)

    def own(self, key: str) -> Tally | None:
        """The tally of a loader's fetches in this process; None for a loader without a name."""
        if not key:
            return None
        tally = self._own.get(key)
        if tally is None:
            tally = self._own[key] = Tally(bytearray(TALLY_BYTES), slow_s=SLOW_OWN_FETCH_S)
        setup = self._recorder.loaders.get(key)
        if setup is not None and not setup.num_workers and tally.lines is None:
            tally.lines = FetchLines(memoryview(bytearray(LINES_BYTES)), FLOOR, foreign_threads(), OWN_PERIOD_S)
            self._recorder.cost.add_thread(lambda lines=tally.lines: lines.cpu_s)  # type: ignore[misc]
        return tally

    def stock(self, key: str) -> Stock | None:
        """What lies ready where a loader's workers fetch; None for a loader without workers, or without a name."""
        setup = self._recorder.loaders.get(key)
        return self._stocks.setdefault(key, Stock()) if setup is not None and setup.num_workers else None

    @contextmanager
    def metering(self, loader: Any, key: str) -> Iterator[Edges | None]:
        """While the loader's iterator is made, its workers are given the meter; None where none are started."""
        workers = int(getattr(loader, "num_workers", 0) or 0)
        staying = getattr(loader, "_iterator", None)
        if not workers or staying is not None:
            if workers:
                self._go_on(staying, key, workers)
            yield None
            return
        try:
            file, slot = self._slot(key, workers)
        except OSError as error:
            self._recorder.note(f"The fetches in workers could not be timed: {error}")
            yield None
            return
        user, edges = loader.worker_init_fn, self._edges.setdefault(key, Edges())
        object.__setattr__(loader, "worker_init_fn", WorkerInit(user, file.path, slot))
        began = time.perf_counter()
        try:
            yield edges
        finally:
            object.__setattr__(loader, "worker_init_fn", user)
        edges.started(time.perf_counter() - began)
        made = getattr(loader, "_iterator", None)
        if made is not None:
            _staying[made] = file, slot

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

    def _worker_slots(self, key: str) -> Iterator[tuple[SlotFile, int]]:
        for file, first, count in list(self._slots.get(key, ())):
            for slot in range(first, min(first + count, MOST_SLOTS)):
                yield file, slot

    def weigh(self, key: str, batch: Any) -> None:
        """Notes bytes and tensors of a batch (of the first two of each epoch: walking a batch is not free)."""
        sizes = self._sizes.setdefault(key, [])
        if len(sizes) < 64:
            with contextlib.suppress(Exception):  # the batch may be of a class of the user's own
                sizes.append((byte_count(batch), tensor_count(batch)))

    def fetches(self, workers: Mapping[str, int], handed: Callable[[str], tuple[int, int]]) -> tuple[Fetch, ...]:
        """What was metered so far, one Fetch a loader.

        Args:
            workers: how many each loader has.
            handed: batches that one has handed to the loop, and evaluation passes.
        """
        found = []
        for key in {*self._own.copy(), *self._slots.copy()}:
            tallies = [self._own[key]] if key in self._own else []
            tallies += [file.tally(slot) for file, slot in self._worker_slots(key)]
            rows = [tally.sums for tally in tallies]
            sums = Sums(*(math.fsum(column) for column in zip(*rows, strict=True))) if rows else None
            if sums is None or not sums.batches:
                continue
            sizes = [size for size in self._sizes.get(key, ()) if size[1]]
            (delivered, passes), stock, edges = handed(key), self._stocks.get(key), self._edges.get(key)
            looks = Stock().looks if stock is None else stock.looks
            found.append(
                Fetch(
                    loader=key,
                    workers=workers.get(key, 0),
                    batches=int(sums.batches),
                    wall_s=sums.wall_s,
                    cpu_s=_of_all(sums.cpu_s, sums.wall_s, sums.timed_wall_s) or 0.0,
                    collate_s=_of_all(sums.collate_s, sums.wall_s, sums.timed_wall_s) or 0.0,
                    collate_cpu_s=_of_all(sums.collate_cpu_s, sums.wall_s, sums.timed_wall_s),
                    batch_bytes=float(np.mean([size for size, _ in sizes])) if sizes else float("nan"),
                    batch_tensors=float(np.mean([count for _, count in sizes])) if sizes else None,
                    walls_s=np.asarray([wall for tally in tallies for wall in tally.recent]),
                    queued_s=_of_all(sums.queued_s, sums.wall_s, sums.counted_wall_s)
                    if sums.counted_stand_for_all
                    else _of_all(sums.queued_s, sums.batches, sums.counted),
                    read_bytes=_of_all(sums.read_bytes, sums.batches, sums.counted),
                    stored_bytes=_of_all(sums.stored_bytes, sums.batches, sums.counted),
                    stored_s=_of_all(sums.stored_s, sums.wall_s, sums.counted_wall_s),
                    delivered=delivered,
                    passes=passes,
                    ready_batches=None if stock is None else stock.ready_batches,
                    empty_share=None if stock is None else stock.empty_share,
                    ready=looks[0],
                    ready_after=looks[1],
                    **({} if edges is None else {name: getattr(edges, name) for name in Edges.__slots__}),
                )
            )
        return tuple(found)

    def _with_own(self, lines: tuple[LineCost, ...]) -> tuple[LineCost, ...]:
        """The poller's line costs, with those of this process' own fetches in the place of what it says of them."""
        training = {key for key, setup in self._recorder.loaders.copy().items() if setup.role == "training"}
        tallies = [tally for key, tally in self._own.copy().items() if key in training]
        pages = [(tally.lines.page, tally.sums) for tally in tallies if tally.lines is not None]
        if not pages:
            return lines
        steps = self._recorder.table.steps()
        wait_s, wall_s = float(np.nansum(steps.data_wait_s)), float(np.nansum(steps.wall_s))
        return with_fetches(lines, line_costs(pages, in_worker=False), wait_s, wall_s)

    def lines(self) -> tuple[LineCost, ...]:
        """The dear lines inside the workers of the loader that is trained from (of the busiest one until it is known).

        Their shares are of these workers' fetch time.
        """
        known = self._recorder.loaders.copy()
        keys = [key for key in self._slots.copy() if key in known and known[key].role == "training"]
        return line_costs(
            (
                (file.page(slot), file.tally(slot).sums)
                for key in keys or self._busiest()
                for file, slot in self._worker_slots(key)
            ),
            in_worker=True,
        )

    def _busiest(self) -> list[str]:
        seconds = {
            key: sum(file.tally(slot).sums.wall_s for file, slot in self._worker_slots(key))
            for key in self._slots.copy()
        }
        return [max(seconds, key=lambda key: seconds[key])] if seconds else []


def _of_all(counted: float, whole: float, part: float) -> float | None:
    """A sum over some fetches scaled to all of them; None where nothing was counted."""
    return counted * whole / part if part > 0 and not math.isnan(counted) else None
