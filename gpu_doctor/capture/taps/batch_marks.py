"""Finds out if the batches that a loader delivered stay alive, and which object of the cell holds them.

A weak reference to one tensor of a batch shows if it is still alive many deliveries later. If all are, the object that
holds them is searched for among the names of the cell: in its containers, and in the objects that an iterator such as
`itertools.cycle` holds. No other object of the process is visited.
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
"""Deliveries after which a batch is expected to be gone: loops that prefetch or accumulate hold a few."""
MOST_MARKS: Final = 256
"""Maximum number of batches that are followed."""
TENSORS: Final = 8
"""Tensors of a batch that are read; the largest of them is followed."""
SEARCHES: Final = 3
"""Maximum number of searches for the object that holds the batches."""
ENDS: Final = 64
"""Members visited at either end of a container: an object that grows step by step has the followed batches at both."""
MEMBERS: Final = 32
"""Attributes of an object that are visited."""
DEEPEST: Final = 6
"""Maximum depth of a search: enough for a `zip` of a `cycle`, its list of batches, and batches that are tuples."""
MOST_VISITED: Final = 20_000
"""Objects visited in a search, which takes some ms."""


class BatchMarks:
    """Weak references to batches of one loader, and what they show: how many batches stay alive, and who holds them."""

    def __init__(self, names: Callable[[], Mapping[str, Any] | None]) -> None:
        """Begins with no batch; `names` returns the names that the loop runs with."""
        self._names = names
        self._marks: list[tuple[int, weakref.ref[Tensor]]] = []
        self._bytes = 0.0
        """Size of the followed batches, in bytes."""
        self._searches = SEARCHES
        self._keeper: tuple[str, str, bool] = ("", "", False)
        self.found: KeptBatches | None = None
        """Result of the last sampled batch; None before any followed batch was old enough."""

    def add(self, batch: Any, number: int) -> None:
        """Counts the old batches that are still alive, and follows the batch just delivered as well.

        Args:
            batch: The batch that the loader returned.
            number: Number of batches that it has returned by now.
        """
        old = [mark() for at, mark in self._marks if number - at >= OLD]
        if old:
            alive = [tensor for tensor in old if tensor is not None]
            self.found = KeptBatches(len(old), len(alive), self._bytes / len(self._marks), *self._keeper)
            if self.found.every and self._searches and not self._keeper[0]:
                self._searches -= 1
                self._keeper = _keeper(alive, self._names() or {}) or self._keeper
                self.found = KeptBatches(len(old), len(alive), self.found.batch_bytes, *self._keeper)
        tensors = [tensor for tensor in itertools.islice(tensors_in(batch), TENSORS) if not tensor.is_nested]
        if tensors and len(self._marks) < MOST_MARKS:
            self._marks.append((number, weakref.ref(max(tensors, key=_size))))
            self._bytes += sum(map(_size, tensors))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _keeper(alive: list[Tensor], namespace: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """Searches the names for the object that holds the oldest and the newest of the tensors.

    Returns:
        Its name, its type, and True if its length is bounded; None if it was not found.
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
    """Bounded search for tensors in the objects that a name leads to."""

    def __init__(self, wanted: set[int]) -> None:
        """Begins with the ids of the wanted tensors."""
        self._wanted, self._remaining = wanted, MOST_VISITED

    def within(self, value: Any, name: str) -> tuple[str, str, bool] | None:
        """Returns (name, type, bounded) of the named object or its first attribute that holds all wanted tensors."""
        own = itertools.islice(_attributes(value).items(), MEMBERS)
        for path, holder in ((name, value), *((f"{name}.{attribute}", held) for attribute, held in own)):
            if self._wanted <= self._held(holder, DEEPEST):
                return path, _type_name(type(holder)), type(holder) is deque and holder.maxlen is not None
        return None

    def _held(self, value: Any, depth: int) -> set[int]:
        """Returns the ids of the wanted tensors that a container leads to, at most `depth` levels down."""
        if id(value) in self._wanted:
            return {id(value)}
        members = _members(value)
        if members is None or depth == 0 or self._remaining <= 0:
            return set()
        found: set[int] = set()
        try:
            for member in members():
                self._remaining -= 1
                found |= self._held(member, depth - 1)
        except RuntimeError:  # another thread has changed it meanwhile
            pass
        return found


def _type_name(kind: type) -> str:
    """Returns a type's name with its module, such as `itertools.cycle`; built-in types go without, such as `list`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _members(value: Any) -> Callable[[], Iterator[Any]] | None:
    """Returns a function that iterates over a container's members at both ends; None if the value is no container.

    No iterator is consumed: its members are the objects that it refers to.
    """
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
    """Returns the attributes of a plain object; none for a module, which holds weights."""
    kind = type(value)
    if kind.__dictoffset__ == 0 or issubclass(kind, (type, Tensor, nn.Module)) or kind.__module__ == "builtins":
        return {}
    try:
        found: dict[str, Any] = dict(object.__getattribute__(value, "__dict__"))
    except Exception:
        return {}
    return found
