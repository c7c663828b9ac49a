"""Describes a DataLoader's setup as plain values, with a key that identifies the loader in every run of the cell."""

from __future__ import annotations

import weakref
from math import ceil
from typing import Any, Final, TypeAlias

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from gpu_doctor.capture.describe.loader_limits import KNOBS_ON_LOADERS, refusal, start_method_of
from gpu_doctor.recording import LoaderSetup

AnyLoader: TypeAlias = "DataLoader[Any]"

written_batch: Final[weakref.WeakKeyDictionary[AnyLoader, int | None]] = weakref.WeakKeyDictionary()
"""Batch size as the user wrote it, of loaders that a trial has changed: the loader's key stays the same."""


class Ordinals:
    """Numbers the loaders whose keys have the same stem, in the order in which a run uses them."""

    def __init__(self) -> None:
        """Starts without loaders."""
        self._alike: dict[str, list[weakref.ref[Any]]] = {}

    def of(self, loader: AnyLoader) -> int:
        """Returns the ordinal of a loader, 0 for the first of its stem.

        A loader that is built anew each epoch counts as one loader: it gets the ordinal of its dead predecessor.
        """
        alike = self._alike.setdefault(key_stem_of(loader), [])
        known = next((i for i, ref in enumerate(alike) if ref() is loader), None)
        if known is not None:
            return known
        free = next((i for i, ref in enumerate(alike) if ref() is None), len(alike))
        alike[free : free + 1] = [weakref.ref(loader)]
        return free


def key_of(loader: AnyLoader, ordinal: int) -> str:
    """Returns the `LoaderSetup.key` of a loader."""
    return f"{key_stem_of(loader)} #{ordinal}"


def describe(loader: AnyLoader, role: str = "unknown", ordinal: int = 0) -> LoaderSetup:
    """Describes how `loader` is set up now, as plain values.

    Args:
        loader: the loader to read; it is not changed, and no sample is fetched.
        role: `training`, `evaluation` or `unknown`.
        ordinal: number among loaders with the same key stem, from 0.

    Returns:
        The setup. Its `key` is made from the batch size *as written*, so a trial of another batch size keeps the key.
    """
    values = vars(loader)
    dataset = values.get("dataset")
    iterable = issubclass(type(dataset), IterableDataset)
    samples = length_of(dataset)
    collate = values.get("collate_fn")
    return LoaderSetup(
        key=key_of(loader, ordinal),
        role=role,
        num_workers=int(loader.num_workers),
        batch_size=batch_size_of(loader),
        pin_memory=bool(loader.pin_memory),
        prefetch_factor=None if loader.prefetch_factor is None else int(loader.prefetch_factor),
        persistent_workers=bool(loader.persistent_workers),
        drop_last=bool(loader.drop_last or getattr(values.get("batch_sampler"), "drop_last", False)),
        sampler=_sampler_name(loader),
        dataset=type(dataset).__name__,
        dataset_kind="iterable" if iterable else "map",
        dataset_len=samples,
        batches=_batches(loader, samples) if iterable else length_of(loader),
        collate=str(getattr(collate, "__qualname__", type(collate).__name__)),
        start_method=start_method_of(loader),
        refusals={knob: said for knob in KNOBS_ON_LOADERS if (said := refusal(loader, knob))},
    )


def key_stem_of(loader: AnyLoader) -> str:
    """Returns the part of `LoaderSetup.key` before the ordinal: the same for a loader in every run of a cell."""
    dataset = vars(loader).get("dataset")
    samples = length_of(dataset)
    batch = written_batch[loader] if loader in written_batch else batch_size_of(loader)
    size = "?" if samples is None else str(samples)
    return f"{type(dataset).__name__}[{size}] batch {batch} {_sampler_name(loader)}"


def batch_size_of(loader: AnyLoader) -> int | None:
    """Returns the samples per batch, also from a plain `BatchSampler`; None if other code decides the batches."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    sampler = vars(loader).get("batch_sampler")
    return int(sampler.batch_size) if type(sampler) is BatchSampler else None


def length_of(sized: Any) -> int | None:
    """Returns `len(sized)`, or None if that fails."""
    try:
        return len(sized)
    except Exception:
        return None


def _sampler_name(loader: AnyLoader) -> str:
    """Returns the class name of the user's batch sampler, else of the sampler."""
    values = vars(loader)
    batch_sampler = values.get("batch_sampler")
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return type(batch_sampler).__name__
    return type(getattr(batch_sampler, "sampler", values.get("sampler"))).__name__


def _batches(loader: AnyLoader, samples: int | None) -> int | None:
    """Returns the batches of an iterable-style loader; its own `len()` would make torch warn later."""
    if samples is None or loader.batch_size is None:
        return samples
    return samples // loader.batch_size if loader.drop_last else ceil(samples / loader.batch_size)
