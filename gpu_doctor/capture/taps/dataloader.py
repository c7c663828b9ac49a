"""Records every DataLoader: how long the loop waits in `next`, the size of each batch, and the loader's setup.

Every style of iteration (for, enumerate, next, zip, wrappers) calls `_BaseDataLoaderIter.__next__`, which is wrapped;
the iterator keeps its own type. The fetch itself is timed where it runs, see `capture/fetch/`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.describe import loaders
from gpu_doctor.capture.events import (
    BATCH,
    BATCH_AT,
    CPU,
    CPU_EVERY_NS,
    EXHAUSTED,
    NEXT,
    NEXT_BLIND,
    OPENED,
    OPENING,
    OURS,
)
from gpu_doctor.capture.fetch.book import FetchBook
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.capture.taps.batch_samples import BatchSamples
from gpu_doctor.capture.taps.deliveries import Deliveries
from gpu_doctor.capture.taps.sources import LoaderSource
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.traffic import addresses
from gpu_doctor.recording.setup import KeptBatches, Padding


class LoaderState:
    """State of the tap: the loaders seen so far and their iterators."""

    def __init__(self, scope: TapScope, book: FetchBook) -> None:
        self.scope, self.recorder, self.book = scope, scope.recorder, book
        self.waiting_thread = 0
        """Id of the thread that waits for a batch, 0 for none. Batches of other loaders that it pulls meanwhile are
        parts of that batch and are not recorded."""
        self.sources: dict[int, LoaderSource] = {}
        """The iterators by their id."""
        self.deliveries = Deliveries(self.sources, self.recorder.step_clock.sources.passes)
        self._keys: dict[int, tuple[weakref.ref[Any], str]] = {}
        """Loader and its name in this run, by the loader's id: a class with its own `__eq__` has no hash."""
        self.sampled: dict[str, BatchSamples] = {}
        """Samples of the batches, by the loader's name."""
        self.ordinals = loaders.Ordinals()

    def known(self, loader: Any) -> str | None:
        """Returns the loader's name in this run, or None if it was not seen yet."""
        ref, key = self._keys.get(id(loader), (None, ""))
        return key if ref is not None and ref() is loader else None

    def key_of(self, loader: Any) -> str:
        """Returns the loader's name in this run; describes the loader the first time. Empty if that fails."""
        key = self.known(loader)
        if key is None:
            try:
                key = self._describe(loader)
            except Exception as error:
                key = ""
                self.recorder.note(f"The setup of {type(loader).__name__} could not be read: {error}")
            self._keys = {number: known for number, known in self._keys.items() if known[0]() is not None}
            self._keys[id(loader)] = (weakref.ref(loader), key)
        return key

    def _describe(self, loader: Any) -> str:
        """Adds the loader's setup to the recording; returns its name."""
        self.recorder.remember(loader)
        setup = loaders.describe(loader, role="unknown", ordinal=self.ordinals.of(loader))
        self.recorder.loaders.setdefault(setup.key, setup)
        return setup.key

    def passed(self, source: LoaderSource) -> None:
        """Stores the number of batches of a loader without a length, after a whole pass over it."""
        setup = self.recorder.loaders.get(source.key)
        if setup is not None and setup.batches is None:
            self.recorder.loaders[source.key] = replace(setup, batches=source.taken)

    def role_of(self, key: str) -> str:
        """Returns the role of a loader: `training`, `evaluation` or `unknown`."""
        setup = self.recorder.loaders.get(key)
        return setup.role if setup is not None else "unknown"

    def source_of(self, iterator: Any) -> LoaderSource:
        """Adds an iterator that was made before the run, and so did not pass through our `DataLoader.__iter__`."""
        source = self.deliveries.put(LoaderSource(iterator, "", None))
        source.sampled = self._samples_of("")
        return source

    def _samples_of(self, key: str) -> BatchSamples:
        """Returns the samples of a loader's batches, which it makes the first time."""
        if key not in self.sampled:
            scope = self.scope
            self.sampled[key] = BatchSamples(self.recorder.note, lambda: scope.namespace)
        return self.sampled[key]

    def opened(self, loader: Any, key: str, iterator: Any) -> LoaderSource | None:
        """Adds the iterator that a loader has just made; returns None if it takes no weak reference.

        The batches of such an iterator are recorded all the same.
        """
        try:
            source = LoaderSource(iterator, key, loader)
        except TypeError:
            return None
        source.tally, source.stock = self.book.own(key, iterator), self.book.stock(key)
        source.sampled = self._samples_of(key)
        return self.deliveries.put(source)

    def padding(self) -> tuple[Padding, ...] | None:
        """Returns the padding in the sampled batches of the first training loader; None without such a loader."""
        sampled = self._first_training_samples()
        return sampled.padding.facts() if sampled is not None else None

    def kept_batches(self) -> KeptBatches | None:
        """Returns how many batches of the first training loader stay alive; None if no sampled batch is old enough.

        Batches of an iterator that was made before the run count if no training loader is known.
        """
        sampled = self._first_training_samples() or self.sampled.get("")
        return sampled.marks.found if sampled is not None else None

    def _first_training_samples(self) -> BatchSamples | None:
        """Returns the samples of the first training loader; None if no training loader was sampled."""
        return next((sampled for key, sampled in self.sampled.copy().items() if self.role_of(key) == "training"), None)


def tap(scope: TapScope) -> None:
    """Wraps `DataLoader.__iter__` and the `__next__` of its iterators."""
    recorder, book = scope.recorder, FetchBook(scope.recorder, scope.patches)
    state = LoaderState(scope, book)
    known, delivered = recorder.loaders, state.deliveries.of
    recorder.parts["fetches"] = lambda: book.fetches({k: s.num_workers for k, s in known.items()}, delivered)

    def over() -> None:
        book.close()
        recorder.parts.freeze("fetches")

    scope.at_end(over)
    scope.add_fact("padding", state.padding)
    scope.add_fact("kept_batches", state.kept_batches)
    scope.patches.wrap(DataLoader, "__iter__", functools.partial(_opening, state))
    scope.patches.wrap(_BaseDataLoaderIter, "__next__", functools.partial(_pulling, state))


def _opening(state: LoaderState, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps `DataLoader.__iter__`: records how long it takes and adds the iterator to the state."""
    recorder, log, clock = state.recorder, state.recorder.log, state.recorder.clock

    def begins(loader: Any) -> Any:
        """Records the begin, searches for new models, and names the loader; None for a call that is not recorded."""
        if (get_ident() != log.thread and not recorder.adopt()) or get_ident() == state.waiting_thread:
            return None
        if log.marker is not None:
            log.mark(OPENING)
        log.note((OPENING, clock(), (not torch.is_grad_enabled(), state.known(loader) or None)))
        state.scope.pulled.notify(recorder.note, "The search for models failed")
        state.scope.pulled.clear()
        key = state.key_of(loader)
        return loader, key, state.book.opening(loader, key)

    def made(token: Any, iterator: Any) -> None:
        """Adds the iterator and its start-up time to the state, and records the end."""
        now, (loader, key, starting) = clock(), token  # our own work from here on is no part of the opening
        if starting is not None:
            starting.end(is_made=True)
        source = state.opened(loader, key, iterator)
        if source is not None and starting is not None:
            source.starts = starting.starts
        opened(now, None if source is None else source.pulled)

    def raised(token: Any, error: BaseException) -> None:
        if token[2] is not None:
            token[2].end(is_made=False)
        opened(clock(), None)

    def opened(now: int, pulled: Pulled | None) -> None:
        if get_ident() == log.thread:
            if log.marker is not None:
                log.mark(OPENED)
            log.note((OPENED, now, pulled))

    return recorder.fence.around(original, begins, made, raised)


def _pulling(state: LoaderState, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps the iterators' `__next__`: records the wait for each batch, its number of samples, and its fetch.

    Before the original call it records the request; after it, the batch, its number of samples, and a sample of it if
    one is due.

    The code of `fence.py` is written out here: every step passes through, and each further call would slow it down.
    """
    recorder, book, sources = state.recorder, state.book, state.sources
    log, meter, broke, grad_enabled = recorder.log, book.meter, recorder.fence.broke, torch.is_grad_enabled
    note, clock, events, accelerated = log.note, log.clock, log.events, state.scope.accelerated

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        __tracebackhide__ = True
        source = None
        try:
            thread = get_ident()
            if (thread == log.thread or recorder.adopt()) and thread != state.waiting_thread:
                source = sources.get(id(self))
                if source is None or source.ref() is not self:
                    source = state.source_of(self)
                if log.marker is not None:
                    log.mark(NEXT)
                source.requested_ns = now = clock()
                if now >= log.cpu_due_ns:
                    log.cpu_due_ns = now + CPU_EVERY_NS
                    note((CPU, now, log.cpu_clock()))
                log.steps += 1
                note((NEXT if grad_enabled() else NEXT_BLIND, now, source.pulled))
                if now >= log.due_ns or len(events) >= log.due:
                    recorder.fold(now)
                if log.ending:
                    note((EXHAUSTED, clock(), None))
                    recorder.check_end()
                if (tally := source.tally) is not None:
                    if tally.to_skip <= 0:  # else this fetch is not sampled: the meter stays off
                        meter.tally = tally
                elif source.stock is not None:
                    source.stock.count(self, first=not source.taken)
        except BaseException as error:
            source = None
            broke(error)
        if source is None:
            return original(self)
        state.waiting_thread = thread
        try:
            batch = original(self)
        except BaseException as raised:
            state.waiting_thread = 0
            try:
                failed(source, raised)
            except BaseException as error:
                broke(error)
            raise
        state.waiting_thread = 0
        try:
            now, taken = clock(), source.taken
            samples = source.full if 0 < taken < source.whole else source.samples(batch)
            source.taken = taken + 1
            mine = thread == log.thread  # else another thread turned out to be the one that trains
            if meter.tally is not None:
                if (own_ns := meter.off()) and mine:
                    log.own_ns += own_ns  # the part of the wait for this batch that was our own work
                    note((OURS, now, now - own_ns))
            elif (tally := source.tally) is not None and tally.to_skip > 0:
                tally.to_skip -= 1  # here, not at the request: one at the end of a pass has no fetch
            if mine:
                log.pulled = True
                if log.marker is not None:
                    log.mark(BATCH)
                note((BATCH, now, samples))
                if accelerated:
                    note((BATCH_AT, clock(), addresses(batch)))
            sampled = source.sampled
            if sampled is not None:
                sampled.remaining -= 1
                if sampled.remaining < 0 or taken < 2:
                    sample(source, batch, now)
                    if mine:
                        log.ours(now)
        except BaseException as error:
            broke(error)
        return batch

    def sample(source: LoaderSource, batch: Any, now: int) -> None:
        """Weighs one of the first two batches, and samples a batch that is due; it was delivered at `now`."""
        if source.taken < 3:
            if source.starts is not None and source.taken == 1:
                source.starts.began((now - source.requested_ns) * 1e-9)
            book.weigh(source.key, batch)
        if source.sampled is not None and source.sampled.remaining < 0:
            source.sampled.add(batch)

    def failed(source: LoaderSource, error: BaseException) -> None:
        """Records that `__next__` raised: the iterator is exhausted, or its fetch failed."""
        if source.tally is not None:
            meter.off()
        now = clock()
        source.ended(error, (now - source.requested_ns) * 1e-9)
        if isinstance(error, StopIteration):
            state.passed(source)
        if get_ident() == log.thread:
            if log.marker is not None:
                log.mark(EXHAUSTED)
            note((EXHAUSTED, clock(), None))

    return __next__
