"""Changes DataLoaders for a while, and puts them back.

A loader is changed *in place*, on the same object, rather than rebuilt: its identity, `len()`, attributes and type stay
right for schedulers, progress bars, subclasses with another `__init__` and wrappers that hold it. `DataLoader` forbids
some of the assignments, so they go past its `__setattr__`, straight into the instance's dict.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from torch.utils.data import BatchSampler, DataLoader

from gpu_doctor.capture import Patches
from gpu_doctor.capture.describe import MULTIPROCESSING_CONTEXT, AnyLoader, batch_size_of, refusal, written_batch
from gpu_doctor.trials.side_effects.leftover_workers import shut_down

TORCH_PREFETCH: Final = 2
"""prefetch_factor of a loader with workers where none is given (torch.utils.data.DataLoader's default)."""

_MISSING: Final = object()


def apply(loader: AnyLoader, change: Mapping[str, Any]) -> Callable[[], None]:
    """Changes `loader` in place.

    Args:
        loader: any DataLoader or subclass; ask `refusal` first whether it can.
        change: new values of `num_workers`, `batch_size`, `pin_memory`, `prefetch_factor`, `persistent_workers`.

    Returns:
        A function that puts every changed attribute back, unless other code assigned to it in the meantime, and
        stops the workers that a persistent iterator made meanwhile.
    """
    values = vars(loader)
    new = _attributes(loader, change)
    old = {name: values.get(name, _MISSING) for name in new}
    first_batch_change = "batch_size" in change and loader not in written_batch
    if first_batch_change:
        written_batch[loader] = batch_size_of(loader)
    values.update(new)
    held = weakref.ref(loader)

    def undo() -> None:
        """Ends workers started meanwhile, and puts back attributes that nobody else changed since."""
        still = held()
        if still is None:
            return
        now = vars(still)
        made_inside = now.get("_iterator")
        if made_inside is not None and made_inside is not old["_iterator"]:
            shut_down(made_inside)
        for name, value in old.items():
            if name != "_iterator" and now.get(name, _MISSING) is not new[name]:
                continue
            if value is _MISSING:
                now.pop(name, None)
            else:
                now[name] = value
        if first_batch_change:
            written_batch.pop(still, None)

    return undo


@contextmanager
def changed(loader: AnyLoader, **change: Any) -> Iterator[AnyLoader]:
    """`loader`, changed in place for the duration of the context."""
    undo = apply(loader, change)
    try:
        yield loader
    finally:
        undo()


@contextmanager
def changing(
    change: Mapping[str, Any] | Callable[[AnyLoader], Mapping[str, Any]],
    only: Callable[[AnyLoader], bool] | None,
    refused: Callable[[AnyLoader, str], None],
    known: Iterable[AnyLoader] = (),
) -> Iterator[None]:
    """Changes known loaders, and loaders constructed while the context is active, then restores all.

    Args:
        change: change as for `apply`, or a function that returns it for a loader.
        only: returns True for the loaders to change; None for all.
        refused: called with every loader that cannot be changed and the reason; it may raise to give up. For known
            loaders it is called before anything is changed.
        known: loaders made before. For an older loader that is not among them, `refused` is called when it is iterated.
    """
    changes = _Changes(change, only, refused)
    patches = Patches()
    try:
        changes.apply_to(known)
        del known  # the loaders may be freed meanwhile
        patches.wrap(DataLoader, "__init__", changes.constructing)
        patches.wrap(DataLoader, "__iter__", changes.iterating)
        yield
    finally:
        patches.restore()
        changes.undo()


class _Changes:
    """The loaders that `changing` has changed, and those that it leaves as they are."""

    def __init__(
        self,
        change: Mapping[str, Any] | Callable[[AnyLoader], Mapping[str, Any]],
        only: Callable[[AnyLoader], bool] | None,
        refused: Callable[[AnyLoader, str], None],
    ) -> None:
        """Changes nothing yet; the arguments are those of `changing`."""
        self._change, self._only, self._refused = change, only, refused
        self._undos: weakref.WeakKeyDictionary[AnyLoader, Callable[[], None]] = weakref.WeakKeyDictionary()
        self._unchanged: list[weakref.ref[AnyLoader]] = []

    def apply_to(self, known: Iterable[AnyLoader]) -> None:
        """Changes the loaders that can be changed, after all of them were checked."""
        possible = [(loader, self._possible(loader)) for loader in known]
        self._unchanged += [weakref.ref(loader) for loader, can in possible if not can]
        for loader, can in possible:
            if can:
                self._undos[loader] = apply(loader, self._wanted(loader))

    def undo(self) -> None:
        """Restores every changed loader that still exists."""
        for undo in list(self._undos.values()):
            undo()

    def constructing(self, original: Callable[..., None]) -> Callable[..., None]:
        """Returns a constructor that also changes the new loader, if that is possible."""

        @functools.wraps(original)
        def init(loader: AnyLoader, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            if loader in self._undos:
                return
            if self._possible(loader):
                self._undos[loader] = apply(loader, self._wanted(loader))
            else:
                self._unchanged.append(weakref.ref(loader))

        return init

    def iterating(self, original: Callable[[AnyLoader], Any]) -> Callable[[AnyLoader], Any]:
        """Returns an `__iter__` that first refuses an older loader that no name leads to."""

        @functools.wraps(original)
        def __iter__(loader: AnyLoader) -> Any:
            known = loader in self._undos or any(loader is ref() for ref in self._unchanged)
            if not known and (self._only is None or self._only(loader)) and not self._as_wanted(loader):
                self._unchanged.append(weakref.ref(loader))
                self._refused(loader, "it was made before, and no name leads to it.")
            return original(loader)

        return __iter__

    def _wanted(self, loader: AnyLoader) -> Mapping[str, Any]:
        """Returns the change for a loader."""
        return self._change(loader) if callable(self._change) else self._change

    def _as_wanted(self, loader: AnyLoader) -> bool:
        """True if a loader has the wanted values already."""
        return all(getattr(loader, knob, None) == value for knob, value in self._wanted(loader).items())

    def _possible(self, loader: AnyLoader) -> bool:
        """True if a loader is to be changed and can be; reports the reason to `refused` if it cannot."""
        if self._only is not None and not self._only(loader):
            return False
        for knob, value in self._wanted(loader).items():
            reason = refusal(loader, knob, value)
            if reason:
                self._refused(loader, reason)
                return False
        return True


def _attributes(loader: AnyLoader, change: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the instance attributes for a change, with those that torch requires beside them."""
    # An iterator of persistent workers would go on with the old settings: a new one is made by the next iter().
    new: dict[str, Any] = {"_iterator": None}
    if "num_workers" in change:
        workers = int(change["num_workers"])
        new["num_workers"] = workers
        if workers == 0:
            new.update(
                {"prefetch_factor": None, "persistent_workers": False, MULTIPROCESSING_CONTEXT: None, "timeout": 0}
            )
        elif loader.prefetch_factor is None:
            new["prefetch_factor"] = TORCH_PREFETCH
    for name in ("prefetch_factor", "persistent_workers", "pin_memory"):
        if name in change:
            new[name] = change[name]
    if "batch_size" in change:
        size = int(change["batch_size"])
        before: Any = loader.batch_sampler
        new["batch_sampler"] = BatchSampler(before.sampler, size, before.drop_last)
        if loader.batch_size is not None:
            new["batch_size"] = size
    return new
