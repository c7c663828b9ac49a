"""Whether the batches that a loader delivered are kept, and by which object of the cell.

A weak reference to one tensor of some batches tells whether they are still alive many deliveries later. If all are,
the object that holds them is looked for among the names of the cell: in its containers, and in what an iterator such as
`itertools.cycle` holds. No other object of the process is looked at.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any, Final

from torch import Tensor, nn

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.capture.describe.names import HISTORY
from gpu_doctor.recording.setup import KeptBatches

OLD: Final = 32
"""Deliveries after which a batch is expected to be gone: loops that look ahead or accumulate hold a few."""
MOST_MARKS: Final = 256
TENSORS: Final = 8
"""Of a batch, of which the largest is followed."""
SEARCHES: Final = 3
"""Times that the object is looked for."""
ENDS: Final = 64
"""Members at either end of a container that are looked at: what is kept step by step lies at both."""
MEMBERS: Final = 32
"""Attributes of an object that are looked at."""
DEEPEST: Final = 6
"""Levels: `zip` of a `cycle`, its list of batches, which are tuples of tensors."""
MOST_LOOKED_AT: Final = 20_000
"""Objects in a search, some ms."""


class BatchMarks:
    """The batches of one loader that are followed."""

    def __init__(self, names: Callable[[], Mapping[str, Any] | None]) -> None:
        """`names`: gives those that the loop runs with."""
        self._names = names
        self._marks: list[tuple[int, weakref.ref[Tensor]]] = []
        self._bytes = 0.0
        """Of the batches that are followed."""
        self._searches = SEARCHES
        self._keeper: tuple[str, str, bool] = ("", "", False)
        self.found: KeptBatches | None = None
        """As of the last look."""

    def add(self, batch: Any, number: int) -> None:
        """A batch was delivered: counts the old ones that are alive, and follows this one as well.

        Args:
            batch: what the loader hands over.
            number: how many it has handed over by now.
        """
        old = [mark() for at, mark in self._marks if number - at >= OLD]
        if old:
            alive = [one for one in old if one is not None]
            self.found = KeptBatches(len(old), len(alive), self._bytes / len(self._marks), *self._keeper)
            if self.found.every and self._searches and not self._keeper[0]:
                self._searches -= 1
                self._keeper = _keeper(alive, self._names() or {}) or self._keeper
                self.found = KeptBatches(len(old), len(alive), self.found.batch_bytes, *self._keeper)
        tensors = [one for one in itertools.islice(tensors_in(batch), TENSORS) if not one.is_nested]
        if tensors and len(self._marks) < MOST_MARKS:
            self._marks.append((number, weakref.ref(max(tensors, key=_size))))
            self._bytes += sum(map(_size, tensors))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _keeper(alive: list[Tensor], namespace: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """Name, type, and whether it is bounded, of what holds the oldest and the newest of some tensors.

    None where it was not found.
    """
    search = _Search({id(alive[0]), id(alive[-1])})
    for name, value in list(namespace.items()):
        if HISTORY.match(name):
            continue
        found = search.within(value, name)
        if found is not None:
            return found
    return None


class _Search:
    """A bounded look through the objects that a name leads to."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted, self._left = wanted, MOST_LOOKED_AT

    def within(self, value: Any, name: str) -> tuple[str, str, bool] | None:
        """The object at or below a name that holds all that is wanted, as (name, type, bounded)."""
        own = itertools.islice(_attributes(value).items(), MEMBERS)
        for called, one in ((name, value), *((f"{name}.{attribute}", held) for attribute, held in own)):
            if self._wanted <= self._held(one, DEEPEST):
                return called, _named(type(one)), type(one) is deque and one.maxlen is not None
        return None

    def _held(self, value: Any, deep: int) -> set[int]:
        """Which of the wanted tensors a container leads to."""
        if id(value) in self._wanted:
            return {id(value)}
        members = _members(value)
        if members is None or deep == 0 or self._left <= 0:
            return set()
        found: set[int] = set()
        try:
            for one in members():
                self._left -= 1
                found |= self._held(one, deep - 1)
        except RuntimeError:  # another thread has changed it meanwhile
            pass
        return found


def _named(kind: type) -> str:
    """`list`, `itertools.cycle`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _members(value: Any) -> Callable[[], Iterator[Any]] | None:
    """How to go through the members of a container at both ends; None where it is none. Never consumes an iterator."""
    kind = type(value)
    if kind in (list, tuple, deque):
        return lambda: itertools.chain(itertools.islice(value, ENDS), itertools.islice(reversed(value), ENDS))
    if kind is dict:
        return lambda: itertools.chain(
            itertools.islice(value.values(), ENDS), itertools.islice(reversed(value.values()), ENDS)
        )
    if kind in (itertools.cycle, itertools.chain, GeneratorType, enumerate, zip, map):
        return lambda: iter(gc.get_referents(value))
    return None


def _attributes(value: Any) -> dict[str, Any]:
    """Of a plain object; none of a module, which holds weights."""
    kind = type(value)
    if kind.__dictoffset__ == 0 or issubclass(kind, (type, Tensor, nn.Module)) or kind.__module__ == "builtins":
        return {}
    try:
        found: dict[str, Any] = dict(object.__getattribute__(value, "__dict__"))
    except Exception:
        return {}
    return found
