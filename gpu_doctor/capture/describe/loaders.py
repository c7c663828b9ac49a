"""The anatomy of a DataLoader: read its setup, change it in place for a while, or refuse with a reason.

A loader is changed *in place*, on the same object, rather than rebuilt: its identity, `len()`, attributes and type stay
right for schedulers, progress bars, subclasses with another `__init__` and wrappers that hold it. `DataLoader` forbids
some of the assignments, so they go past its `__setattr__`, straight into the instance's dict.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, Final, TypeAlias

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from gpu_doctor.loader_limits import KNOBS_ON_LOADERS, MULTIPROCESSING_CONTEXT, refusal, start_method_of
from gpu_doctor.patching import Patches
from gpu_doctor.recording import LoaderSetup
from gpu_doctor.workerthreads import WorkerThreads

AnyLoader: TypeAlias = "DataLoader[Any]"

TORCH_PREFETCH: Final = 2
"""prefetch_factor of a loader with workers where none is given (torch.utils.data.DataLoader's default)."""

_MISSING: Final = object()
_written_batch: weakref.WeakKeyDictionary[AnyLoader, int | None] = weakref.WeakKeyDictionary()


def describe(loader: AnyLoader, role: str = "unknown", ordinal: int = 0) -> LoaderSetup:
    """How `loader` is set up right now, as plain values.

    Args:
        loader: the loader to read; nothing of it is changed and no sample is fetched.
        role: `training`, `evaluation` or `unknown`.
        ordinal: tells loaders apart that are alike in everything else; 0 for the first.

    Returns:
        The setup. Its `key` is made from the batch size *as written*, so a trial of another batch size keeps the key.
    """
    values = vars(loader)
    dataset = values.get("dataset")
    iterable = issubclass(type(dataset), IterableDataset)
    samples = length_of(dataset)
    collate = values.get("collate_fn")
    return LoaderSetup(
        key=f"{key_stem_of(loader)} #{ordinal}",
        role=role,
        num_workers=int(loader.num_workers),
        batch_size=batch_size_of(loader),
        pin_memory=bool(loader.pin_memory),
        prefetch_factor=None if loader.prefetch_factor is None else int(loader.prefetch_factor),
        persistent_workers=bool(loader.persistent_workers),
        drop_last=bool(_drops_last(loader)),
        sampler=_sampler_name(loader),
        dataset=type(dataset).__name__,
        dataset_kind="iterable" if iterable else "map",
        dataset_len=samples,
        batches=_batches(loader, samples) if iterable else length_of(loader),
        collate=str(getattr(collate, "__qualname__", type(collate).__name__)),
        start_method=start_method_of(loader),
        loader_type=type(loader).__name__,
        refusals={knob: said for knob in KNOBS_ON_LOADERS if (said := refusal(loader, knob))},
    )


def key_stem_of(loader: AnyLoader) -> str:
    """The part of `LoaderSetup.key` before the ordinal: the same for the same loader in every run of a cell."""
    dataset = vars(loader).get("dataset")
    samples = length_of(dataset)
    batch = _written_batch[loader] if loader in _written_batch else batch_size_of(loader)
    size = "?" if samples is None else str(samples)
    return f"{type(dataset).__name__}[{size}] batch {batch} {_sampler_name(loader)}"


def key_stem(key: str) -> str:
    """`key` of a `LoaderSetup` without its ordinal, to be compared with `key_stem_of`."""
    return key.rpartition(" #")[0] or key


def batch_size_of(loader: AnyLoader) -> int | None:
    """Samples per batch, also where a plain `BatchSampler` was given; None where something else owns the batches."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    sampler = vars(loader).get("batch_sampler")
    return int(sampler.batch_size) if type(sampler) is BatchSampler else None


def length_of(sized: Any) -> int | None:
    """`len(sized)`, None where it has none or does not tell."""
    try:
        return len(sized)
    except Exception:
        return None


def alive() -> list[AnyLoader]:
    """Every DataLoader of this process, by one scan (the type is asked, since `isinstance` wakes lazy proxies)."""
    return [one for one in gc.get_objects() if issubclass(type(one), DataLoader) and "dataset" in vars(one)]


def apply(loader: AnyLoader, change: Mapping[str, Any]) -> Callable[[], None]:
    """Changes `loader` in place.

    Args:
        loader: any DataLoader or subclass; ask `refusal` first whether it can.
        change: new values of `num_workers`, `batch_size`, `pin_memory`, `prefetch_factor`, `persistent_workers`,
            `worker_threads`.

    Returns:
        A function that puts every changed attribute back, unless other code assigned to it in the meantime, and
        stops the workers that a persistent iterator made meanwhile.
    """
    values = vars(loader)
    new = _attributes(loader, change)
    old = {name: values.get(name, _MISSING) for name in new}
    first_batch_change = "batch_size" in change and loader not in _written_batch
    if first_batch_change:
        _written_batch[loader] = batch_size_of(loader)
    values.update(new)
    held = weakref.ref(loader)

    def undo() -> None:
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
            _written_batch.pop(still, None)

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
) -> Iterator[None]:
    """Changes all loaders: those alive now, and those constructed while the context is active; then puts all back.

    Args:
        change: as for `apply`, or what gives it for one loader.
        only: which loaders are meant; None = all.
        refused: is told of every loader meant that cannot, with the reason; it may raise to give up. Nothing has
            been changed yet when it is told of a loader that was alive before.
    """
    undos: weakref.WeakKeyDictionary[AnyLoader, Callable[[], None]] = weakref.WeakKeyDictionary()

    def wanted(loader: AnyLoader) -> Mapping[str, Any]:
        return change(loader) if callable(change) else change

    def can(loader: AnyLoader) -> bool:
        if only is not None and not only(loader):
            return False
        for knob, value in wanted(loader).items():
            said = refusal(loader, knob, value)
            if said:
                refused(loader, said)
                return False
        return True

    def make(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(self: AnyLoader, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if self not in undos and can(self):
                undos[self] = apply(self, wanted(self))

        return init

    meant = [loader for loader in alive() if can(loader)]
    patches = Patches()
    try:
        for loader in meant:
            undos[loader] = apply(loader, wanted(loader))
        del meant
        patches.wrap(DataLoader, "__init__", make)
        yield
    finally:
        patches.restore()
        for undo in list(undos.values()):
            undo()


def shut_down(iterator: Any) -> None:
    """Stops the worker processes of a DataLoader iterator, if it has any."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()


def _attributes(loader: AnyLoader, change: Mapping[str, Any]) -> dict[str, Any]:
    """The instance attributes that `change` comes to, with those that torch wants to go along."""
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
    if change.get("worker_threads"):
        new["worker_init_fn"] = WorkerThreads(int(change["worker_threads"]), loader.worker_init_fn)
    if "batch_size" in change:
        size = int(change["batch_size"])
        before: Any = loader.batch_sampler
        new["batch_sampler"] = BatchSampler(before.sampler, size, before.drop_last)
        if loader.batch_size is not None:
            new["batch_size"] = size
    return new


def _sampler_name(loader: AnyLoader) -> str:
    values = vars(loader)
    batch_sampler = values.get("batch_sampler")
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return type(batch_sampler).__name__
    return type(getattr(batch_sampler, "sampler", values.get("sampler"))).__name__


def _drops_last(loader: AnyLoader) -> bool:
    return bool(loader.drop_last or getattr(vars(loader).get("batch_sampler"), "drop_last", False))


def _batches(loader: AnyLoader, samples: int | None) -> int | None:
    """Batches of an iterable-style loader; its own `len()` would leave a mark that later makes torch warn."""
    if samples is None or loader.batch_size is None:
        return samples
    return samples // loader.batch_size if loader.drop_last else ceil(samples / loader.batch_size)
