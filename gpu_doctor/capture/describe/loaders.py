"""How a DataLoader is set up: read as plain values, and found again in another run of the cell."""

from __future__ import annotations

import weakref
from math import ceil
from typing import Any, Final, TypeAlias

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from gpu_doctor.capture.describe.loader_limits import KNOBS_ON_LOADERS, refusal, start_method_of
from gpu_doctor.recording import LoaderSetup

AnyLoader: TypeAlias = "DataLoader[Any]"

written_batch: Final[weakref.WeakKeyDictionary[AnyLoader, int | None]] = weakref.WeakKeyDictionary()
"""The batch size as written of loaders that have another one now: a trial of it keeps the loader's key."""


class Ordinals:
    """Tells loaders apart whose keys have the same stem, by the order in which a run meets them."""

    def __init__(self) -> None:
        """No loader was met yet."""
        self._alike: dict[str, list[weakref.ref[Any]]] = {}

    def of(self, loader: AnyLoader) -> int:
        """The ordinal of a loader, 0 for the first of its stem.

        A loader that is built anew each epoch is one loader: it takes the place of its dead predecessor.
        """
        alike = self._alike.setdefault(key_stem_of(loader), [])
        known = next((i for i, ref in enumerate(alike) if ref() is loader), None)
        if known is not None:
            return known
        free = next((i for i, ref in enumerate(alike) if ref() is None), len(alike))
        alike[free : free + 1] = [weakref.ref(loader)]
        return free


def key_of(loader: AnyLoader, ordinal: int) -> str:
    """`LoaderSetup.key` of a loader."""
    return f"{key_stem_of(loader)} #{ordinal}"


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
    """The part of `LoaderSetup.key` before the ordinal: the same for the same loader in every run of a cell."""
    dataset = vars(loader).get("dataset")
    samples = length_of(dataset)
    batch = written_batch[loader] if loader in written_batch else batch_size_of(loader)
    size = "?" if samples is None else str(samples)
    return f"{type(dataset).__name__}[{size}] batch {batch} {_sampler_name(loader)}"


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


def _sampler_name(loader: AnyLoader) -> str:
    values = vars(loader)
    batch_sampler = values.get("batch_sampler")
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return type(batch_sampler).__name__
    return type(getattr(batch_sampler, "sampler", values.get("sampler"))).__name__


def _batches(loader: AnyLoader, samples: int | None) -> int | None:
    """Batches of an iterable-style loader; its own `len()` would leave a mark that later makes torch warn."""
    if samples is None or loader.batch_size is None:
        return samples
    return samples // loader.batch_size if loader.drop_last else ceil(samples / loader.batch_size)
