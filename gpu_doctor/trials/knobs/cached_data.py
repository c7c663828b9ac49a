"""Knob `data`: a few batches from memory in the place of the loader, which gives the loop's ceiling.

No loader can be faster than one whose batches are there already, so that the measured speed bounds what any cure of the
input can give. It is no way to train: only trials turn it, and no plan, sweep or code has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.cell import Edits, NotPlaced
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import meant
from gpu_doctor.trials.knobs.knob import Choice, Knob, Refused, TrialScope, choice
from gpu_doctor.trials.knobs.loader import NO_LOADER

AS_WRITTEN, CACHED = "as written", "cached"
NO_LINES: Final = "data=cached repeats a few batches to measure a bound: there is no line to paste."
ONLY_TRIALS: Final = (
    "data=cached trains on a few batches again and again: try it as a trial, such as case.trial({'data': 'cached'})."
)
NOT_SEEN: Final = "No run has told which loaders the loop trains from: run the cell once."


class CachedData(Knob):
    """See `Knob`."""

    name = "data"
    label = "ideal loader"
    safety = Safety.CHANGES_TRAINING
    changes = "The same few batches are repeated: the speed is a bound for any loader, and the training means nothing."
    bounds_only = True

    def found(self, setup: Setup) -> SettingValue | None:
        """See `Knob`."""
        return AS_WRITTEN if meant(setup) else None

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        return choice(self, AS_WRITTEN, AS_WRITTEN, setup), choice(self, CACHED, "batches from memory", setup)

    def parsed(self, text: str) -> str:
        """See `Knob`."""
        if text.strip() not in (AS_WRITTEN, CACHED):
            raise ValueError(f"data takes {CACHED!r} or {AS_WRITTEN!r}, such as data={CACHED}.")
        return text.strip()

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            return ""
        return "" if meant(setup) else NO_LOADER

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`: each loader that trains fetches a few batches when it is first iterated, and repeats them."""
        if not scope.in_trial:
            raise Refused(ONLY_TRIALS)
        if not meant(scope.setup):
            raise Refused(NOT_SEEN)
        with _replaying(scope.setup):
            yield

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        return f"# {NO_LINES}"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        raise NotPlaced(NO_LINES)


@contextmanager
def _replaying(setup: Setup) -> Iterator[None]:
    """Has the loaders that train deliver batches from memory, whenever they are iterated.

    They fetch them as they would for the loop, by workers where they have these, and keep every attribute. The workers
    end with the fetching. A loader that is built anew each epoch gets the batches of its dead predecessor.
    """
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    from gpu_doctor.capture import Patches
    from gpu_doctor.capture.describe import loaders
    from gpu_doctor.trials.knobs.loader_change import changed
    from gpu_doctor.trials.knobs.replayed_batches import Replayed, replayed
    from gpu_doctor.trials.side_effects.leftover_workers import shut_down

    pull = _BaseDataLoaderIter.__next__  # as it is before the run's taps: to fill the memory is no part of the loop
    stems = {loader.stem for loader in meant(setup)}
    others = {loader.key for loader in setup.loaders} - {loader.key for loader in meant(setup)}
    lengths = {loader.key: loader.batches for loader in setup.loaders}
    ordinals, held = loaders.Ordinals(), dict[str, Replayed]()

    def iterate(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wraps `__iter__`: the loaders meant fetch a pass once, and give it again from memory."""

        @functools.wraps(original)
        def __iter__(self: Any) -> Any:
            if loaders.key_stem_of(self) not in stems:
                return original(self)
            key = loaders.key_of(self, ordinals.of(self))
            if key in others:
                return original(self)
            if key not in held:
                with changed(self, persistent_workers=False):
                    fetch = original(self)
                    try:
                        held[key] = replayed(self, fetch, pull, lengths.get(key))
                    finally:
                        shut_down(fetch)
            return held[key].iterator()

        return __iter__

    patches = Patches()
    try:
        patches.wrap(DataLoader, "__iter__", iterate)
        yield
    finally:
        patches.restore()


KNOB = CachedData()
