"""Hears every DataLoader: how long the loop waits in `next`, what each batch holds, how the loader is set up.

`_BaseDataLoaderIter.__next__` is the one seam that every iteration style goes through (for, enumerate, next, zip,
wrappers); the iterator keeps its native type. The fetch itself is metered where it runs, see `fetching`.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.describe import loaders
from gpu_doctor.capture.eventnotes import BACK, DELIVERED
from gpu_doctor.capture.fetch.book import FetchBook
from gpu_doctor.capture.ledger import Pull
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.deliveries import Deliveries
from gpu_doctor.capture.taps.sources import FIRST_FETCHES, Source
from gpu_doctor.capture.taps.tap import TapScope


class Listening:
    """The state of the tap: which iterator is which, which loaders were seen."""

    def __init__(self, scope: TapScope, book: FetchBook) -> None:
        self.scope, self.recorder, self.book = scope, scope.recorder, book
        self.sources: dict[int, Source] = {}
        self.deliveries = Deliveries(self.sources)
        self._keys: dict[int, tuple[weakref.ref[Any], str]] = {}
        """By loader's id, for a class with an `__eq__` of its own has no hash."""
        self.counted: dict[str, list[int]] = {}
        self.alike: dict[str, list[weakref.ref[Any]]] = {}

    def known(self, loader: Any) -> str | None:
        """The loader's name in this run; None if it was not seen yet."""
        ref, key = self._keys.get(id(loader), (None, ""))
        return key if ref is not None and ref() is loader else None

    def key_of(self, loader: Any) -> str:
        """The loader's name in this run; it is described when it is first seen. Empty if that fails."""
        key = self.known(loader)
        if key is None:
            try:
                key = self._describe(loader)
            except Exception as error:
                key = ""
                self.recorder.note(f"The setup of {type(loader).__name__} could not be read: {error}")
            self._keys = {one: known for one, known in self._keys.items() if known[0]() is not None}
            self._keys[id(loader)] = (weakref.ref(loader), key)
        return key

    def _describe(self, loader: Any) -> str:
        # A loader that is built anew each epoch is one loader: it takes the place of its dead predecessor.
        alike = self.alike.setdefault(loaders.key_stem_of(loader), [])
        ordinal = next((i for i, ref in enumerate(alike) if ref() is None), len(alike))
        alike[ordinal : ordinal + 1] = [weakref.ref(loader)]
        self.recorder.meet(loader)
        setup = loaders.describe(loader, role="unknown", ordinal=ordinal)
        self.recorder.loaders.setdefault(setup.key, setup)
        return setup.key

    def role_of(self, key: str) -> str:
        """`training`, `evaluation`, or `unknown`."""
        setup = self.recorder.loaders.get(key)
        return setup.role if setup is not None else "unknown"

    def source_of(self, iterator: Any) -> Source:
        """The Source of an iterator, made now if the iterator did not come through `DataLoader.__iter__`."""
        source = self.sources.get(id(iterator))
        if source is None or source.ref() is not iterator:
            source = self.deliveries.put(Source(iterator, "", None, Pull()))
        return source

    def give_role(self, source: Source) -> None:
        """Writes down what the ledger learned about the loader: trained from, or evaluated."""
        setup = self.recorder.loaders.get(source.key)
        if setup is None or setup.role == "training":
            return
        role = "training" if source.pull.learned else "evaluation" if source.pull.evaluation else setup.role
        if role != setup.role:
            self.recorder.loaders[source.key] = dataclasses.replace(setup, role=role)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Wrappers on `DataLoader.__iter__` and on the iterators' `__next__`."""
    with FetchBook(scope.recorder) as book:
        state = Listening(scope, book)
        known, handed = scope.recorder.loaders, state.deliveries.of
        scope.recorder.fetched = lambda: book.fetches({k: s.num_workers for k, s in known.items()}, handed)
        scope.patches.wrap(DataLoader, "__iter__", functools.partial(_opening, state))
        scope.patches.wrap(_BaseDataLoaderIter, "__next__", functools.partial(_pulling, state))
        try:
            yield
        finally:
            scope.recorder.ledger.asked_no_more()
            scope.recorder.ledger.judge_held()
            for source in state.sources.values():
                state.give_role(source)
            frozen = scope.recorder.fetched()
            scope.recorder.fetched = lambda: frozen


def _opening(state: Listening, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    recorder, ledger = state.recorder, state.recorder.ledger

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        __tracebackhide__ = True
        if get_ident() != recorder.thread and not recorder.adopt():
            return original(self)
        role = state.role_of(state.known(self) or "")
        before = ledger.opening(not torch.is_grad_enabled() or role == "evaluation")
        try:
            _hear_first_pull(state.scope, recorder)
            key = state.key_of(self)
            role = state.role_of(key)
            with state.book.metering(self, key) as edges:
                iterator = original(self)
        finally:
            if get_ident() == recorder.thread:
                ledger.opened(before)
        try:
            old = state.sources.get(id(iterator))
            if old is not None:
                state.give_role(old)
            pull = Pull(state.counted.setdefault(key, [0]), learned=role == "training")
            pull.evaluation = role == "evaluation" and ledger.trains
            own, stock = state.book.own(key), state.book.stock(key)
            source = state.deliveries.put(Source(iterator, key, self, pull, own, stock))
            source.edges = edges
        except TypeError:  # an iterator that takes no weak reference is still heard, by its batches alone
            pass
        return iterator

    return __iter__


def _pulling(state: Listening, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    recorder, ledger, book, sources = state.recorder, state.recorder.ledger, state.book, state.sources
    meter = book.meter
    grad_enabled = torch.is_grad_enabled
    steady, pulse, clock = ledger.steady, ledger.pulse, ledger.clock
    codes, code, stamp = steady.notes.codes, steady.notes.codes.append, steady.notes.times.append
    sampled, stepped, told_step = steady.notes.samples.append, steady.rests.steps.qsize, steady.rests.steps.get_nowait

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        __tracebackhide__ = True
        key = id(self)
        if pulse.iterator != key or get_ident() != pulse.thread:
            return told(self)
        # In the loop's rhythm a note of the ask and of the batch is enough.
        source: Source = sources[key]
        pull, now = source.pull, clock()
        stamp(now)
        if pulse.resting:  # as SteadySteps._ask, without a call
            left = pulse.left - 1
            if stepped() != (left == 0):
                steady.stop()
            elif left:
                pulse.left = left
            else:
                told_step()
                pulse.left = pulse.batches
                pulse.count += 1
                if pulse.count >= pulse.due_count or now >= pulse.due_ns:
                    steady.block_ended()
        else:
            code(pull if grad_enabled() else (pull,))
            if codes == pulse.pattern:  # as SteadySteps.step, without a call
                codes.clear()
                pulse.count += 1
                if pulse.count >= pulse.due_count or now >= pulse.due_ns:
                    steady.block_ended()
            elif len(codes) >= pulse.events:
                steady.stop()
        if pulse.ending:
            ledger.ended(BACK)
            recorder.check_end()
        fetcher = None
        source.unmetered -= 1
        if source.unmetered < 0:
            source.unmetered = source.skipped(pulse.resting)
            source.look(self)
            fetcher = book.meter_on(self)
            meter.tally = None if fetcher is None else source.tally
        try:
            batch = original(self)
        except BaseException as error:
            ledger.ended(BACK)
            source.ended(error, (ledger.mark - now) * 1e-9)
            state.give_role(source)
            raise
        finally:
            if fetcher is not None:
                book.meter_off(fetcher)
        if pulse.iterator == key:
            samples = source.full if pull.delivered < source.whole else source.samples(batch)
            pull.delivered += 1
            sampled(samples)
            if pulse.taking:
                code(DELIVERED)
            stamp(clock())
        else:
            ledger.delivered(pull, source.samples(batch), BACK)
        return batch

    def told(self: Any) -> Any:
        """Any other pull: the ledger is told of it."""
        __tracebackhide__ = True
        if get_ident() != pulse.thread and not recorder.adopt():
            return original(self)
        source = sources.get(id(self))
        if source is None or source.ref() is not self:
            source = state.source_of(self)
        pull = source.pull
        before = ledger.ask(pull, grad_enabled())
        if recorder.ending:
            ledger.ended(before)
            recorder.check_end()
        if source.stock is not None:
            source.look(self)
        fetcher = None
        source.unmetered -= 1
        if source.unmetered < 0:
            source.unmetered = source.skipped(first=FIRST_FETCHES)
            fetcher = book.meter_on(self)
            meter.tally = None if fetcher is None else source.tally
        asked_s = perf_counter()
        try:
            batch = original(self)
        except BaseException as error:
            source.ended(error, perf_counter() - asked_s)
            if get_ident() == recorder.thread:
                ledger.ended(before)
            state.give_role(source)
            raise
        finally:
            if fetcher is not None:
                book.meter_off(fetcher)
        if get_ident() != recorder.thread:  # another thread turned out to be the one that trains
            return batch
        samples = source.samples(batch)
        if pull.delivered < 2:  # what we do before `next` returns is part of the wait for it
            if source.edges is not None and not pull.delivered:
                source.edges.began(perf_counter() - asked_s)
            state.give_role(source)
            book.weigh(source.key, batch)
        ledger.delivered(pull, samples, before)
        return batch

    return __next__


def _hear_first_pull(scope: TapScope, recorder: Recorder) -> None:
    while scope.pulled:
        hear = scope.pulled.pop(0)
        try:
            hear()
        except Exception as error:
            recorder.note(f"The search for models failed: {error}")
