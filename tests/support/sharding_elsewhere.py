"""Functions of another module that share items out among workers, for tests of how that is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import get_worker_info


def mine(items: Iterable[Any]) -> Iterator[Any]:
    """Every n-th item, for the worker that asks."""
    info = get_worker_info()
    return islice(iter(items), info.id if info else 0, None, info.num_workers if info else 1)


def all_of(items: Iterable[Any]) -> Iterator[Any]:
    """Every item, whoever asks."""
    return iter(items)


class Reader:
    """Shares out in its own `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        return islice(range(4), info.id if info else 0, None, info.num_workers if info else 1)
