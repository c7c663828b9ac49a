"""What a DataLoader cannot be changed to: sharding is found wherever it hides, and what no worker can be sent."""

from __future__ import annotations

import functools
import multiprocessing
import random
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, Dataset, IterableDataset

from gpu_doctor.capture.describe.loader_limits import refusal, shards_itself
from gpu_doctor.capture.describe.sharding import draws_at_random
from tests.support import sharding_elsewhere
from tests.support.sharding_elsewhere import Reader, all_of, mine


class Plain(IterableDataset[Any]):
    """Delivers everything to everybody."""

    def __iter__(self) -> Iterator[Any]:
        return all_of(range(10))


class ByFunction(IterableDataset[Any]):
    """Shards in a function of another module."""

    def __iter__(self) -> Iterator[Any]:
        yield from mine(range(10))


class ByModule(IterableDataset[Any]):
    """The same, named through the module."""

    def __iter__(self) -> Iterator[Any]:
        yield from sharding_elsewhere.mine(range(10))


class BySuper(ByFunction):
    """Shards in the class that it inherits from."""

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            yield one + 1


class Mixin:
    """Brings the sharding."""

    @property
    def share(self) -> Iterator[Any]:
        return mine(range(10))


class ByMixin(Mixin, IterableDataset[Any]):
    """Shards in a property of another base."""

    def __iter__(self) -> Iterator[Any]:
        return self.share


class ByReader(IterableDataset[Any]):
    """Makes an object that shards."""

    def __iter__(self) -> Iterator[Any]:
        return iter(Reader())


class Around(IterableDataset[Any]):
    """Wraps something."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner() if callable(self.inner) else self.inner)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that keeps the function in a closure."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class ByDecorated(IterableDataset[Any]):
    """Shards behind a decorator."""

    @decorated
    def __iter__(self) -> Iterator[Any]:
        return mine(range(10))


class Drawing(IterableDataset[Any]):
    """Makes its items from random numbers."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(4):
            yield torch.randn(2)


class Shuffled(IterableDataset[Any]):
    """Repeats items in a random order: no excuse."""

    def __iter__(self) -> Iterator[Any]:
        items = list(range(4))
        random.shuffle(items)
        return iter(items)


SHARDING = {
    "function": ByFunction(),
    "module": ByModule(),
    "super": BySuper(),
    "mixin": ByMixin(),
    "reader": ByReader(),
    "decorator": ByDecorated(),
    "wrapped": Around(ByFunction()),
    "wrapped twice": Around(Around(ByFunction())),
    "chained": ChainDataset([ByFunction()]),
    "partial": Around(functools.partial(mine, range(10))),
    "bound method": Around(Reader().__iter__),
}


@pytest.mark.parametrize("name", list(SHARDING))
def test_sharding_is_found_wherever_it_is(name: str) -> None:
    assert shards_itself(SHARDING[name])
    assert refusal(DataLoader(SHARDING[name]), "num_workers", 2) == ""


def test_a_queue_of_all_processes_gives_each_item_once() -> None:
    assert shards_itself(Around(multiprocessing.Queue()))


@pytest.mark.parametrize("dataset", [Plain(), Around(Plain()), ChainDataset([Plain()]), Shuffled()])
def test_what_does_not_shard_is_told(dataset: Any) -> None:
    assert not shards_itself(dataset)
    assert "deliver all items again" in refusal(DataLoader(dataset), "num_workers", 2)


def test_random_items_are_not_called_repeated() -> None:
    assert draws_at_random(Drawing()) and not draws_at_random(Shuffled())
    said = refusal(DataLoader(Drawing()), "num_workers", 2)
    assert "may repeat" in said and "again" not in said


def test_a_partial_worker_init_fn_may_shard() -> None:
    assert shards_itself(Plain(), functools.partial(mine, []))
    assert not shards_itself(Plain(), functools.partial(all_of, []))


class Rows(Dataset[Any]):
    """Samples, and something that comes along."""

    def __init__(self, along: Any) -> None:
        self.along = along

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> Any:
        return at


class Careful(Rows):
    """Leaves what cannot travel behind."""

    def __getstate__(self) -> dict[str, Any]:
        return {"along": None}


def spawned(dataset: Any) -> DataLoader[Any]:
    """A loader whose workers would be spawned."""
    return DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")


def test_what_is_bound_to_this_process_cannot_be_sent(tmp_path: Path) -> None:
    with (tmp_path / "data").open("w") as file:
        assert "TextIOWrapper" in refusal(spawned(Rows(file)), "num_workers", 2)
        assert refusal(DataLoader(Rows(file)), "num_workers", 2) == ""
        assert refusal(spawned(Careful(file)), "num_workers", 2) == ""
    assert "lock" in refusal(spawned(Rows(threading.Lock())), "num_workers", 2)
    assert "generator" in refusal(spawned(Rows([(x for x in "ab")])), "num_workers", 2)
    assert "lambda" in refusal(spawned(Rows({"transform": lambda x: x})), "num_workers", 2)
    for harmless in (BytesIO(b"x"), torch.zeros(2), {"a": [1]}, len):
        assert refusal(spawned(Rows(harmless)), "num_workers", 2) == ""


def test_a_class_of_a_function_cannot_be_sent() -> None:
    class Local(Rows):
        pass

    assert "Local" in refusal(spawned(Local(0)), "num_workers", 2)
    assert refusal(DataLoader(Local(0)), "num_workers", 2) == ""
