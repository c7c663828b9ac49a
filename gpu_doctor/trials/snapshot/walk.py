"""Walks everything that a cell could change through its names, before a snapshot copies anything.

The walk follows containers, instances of user code and of training libraries, closures, modules and loaders with their
samplers. It leaves alone what has no state of the training (types of libraries, threads, locks, figures, IPython's own
names) and names what has state that nobody can copy (generators, open files, sockets).
"""

from __future__ import annotations

import collections
import gc
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from gpu_doctor.trials.side_effects.open_files import could_be_written, is_kept, is_written_map
from gpu_doctor.trials.snapshot.kinds import ATOMS, internal, is_open_kind, kind_of, made_for_training
from gpu_doctor.trials.snapshot.parts import (
    behind,
    class_state,
    contents_of,
    dict_of,
    is_users,
    slots_of,
)
from gpu_doctor.trials.snapshot.tensors import BIG_DATA_BYTES, ArrayStore, TensorStore
from gpu_doctor.trials.snapshot.undo import UNDOS

_WHOLE: Final = frozenset(("list", "dict", "set", "deque", "buffer", "tensor", "array", "rng"))
"""Kinds whose objects are always stored."""
MOST_OF_A_CLASS: Final = 64
"""Most instances of a skipped class that are searched for open files: each takes up to a millisecond."""
_BARE: Final = (collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter)
"""Containers that are nobody's instances: they have no attributes."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Switches the garbage collector off around a walk: it would scan all new references again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Walk:
    """A walk over objects: collects each reachable object once, by kind, and names what cannot be copied."""

    def __init__(self) -> None:
        """Starts a walk that has reached nothing."""
        self.seen: dict[int, Any] = {}
        self.kept: dict[str, list[Any]] = {kind: [] for kind in (*UNDOS, "tensor", "array")}
        self._kinds: dict[type, str] = {}
        self._looked: collections.Counter[type] = collections.Counter()
        """Instances of each class that were searched for open files."""
        self._guests: dict[frozenset[type], bool] = {}
        self.data: dict[int, str] = {}
        """ids of tensors and arrays that a Dataset holds, with the variable that led there."""
        self.datasets: list[Any] = []
        """Datasets, each once."""
        self.buffers: set[int] = set()
        """ids of modules' buffers."""
        self.unrestorable: dict[str, None] = {}
        self.opened: dict[int, tuple[Any, str]] = {}
        """Open files and maps that are only read, and what lies in memory, by id, with the variable that led there."""
        self.writable: list[tuple[Any, str]] = []
        """Open objects that the cell could write to or that cannot be put back, each with its variable."""
        self._stack: list[tuple[Any, str]] = []
        self._datasets: list[tuple[Any, str]] = []
        self._in_data = False

    def over(self, namespaces: Iterable[Mapping[str, Any]], extra: Iterable[Any]) -> None:
        """Walks everything reachable from the names of `namespaces` and from `extra`; datasets come last."""
        self._stack, self._in_data = [], False
        for namespace in namespaces:
            self.seen[id(namespace)] = namespace
            self._stack += [(value, name) for name, value in namespace.items() if not internal(name, namespace)]
        self._stack += [(root, type(root).__name__) for root in extra]
        self._drain()
        self._in_data = True
        self._stack = self._datasets
        self._drain()

    def stores(self, to_host: bool = False) -> tuple[TensorStore, ArrayStore]:
        """Returns the stores that copy the tensors and arrays reached; `to_host`: see `TensorStore`."""
        data = {key: name for key, name in self.data.items() if key not in self.buffers}
        return TensorStore(self.kept["tensor"], data, to_host=to_host), ArrayStore(self.kept["array"], self.data)

    def _drain(self) -> None:
        stack, seen = self._stack, self.seen
        while stack:
            value, name = stack.pop()
            cls = type(value)
            if cls in ATOMS:
                continue
            if id(value) in seen:
                if self._in_data and issubclass(cls, (torch.Tensor, np.ndarray)):
                    self.data[id(value)] = name
                continue
            kind = self._kinds.get(cls) or self._kinds.setdefault(cls, kind_of(cls))
            if kind == "skip":
                self._apart(value, name)
                continue
            if kind == "instance" and not self._in_data and issubclass(cls, Dataset):
                self._datasets.append((value, name))
                continue
            if self._in_data and issubclass(cls, Dataset):
                self.datasets.append(value)
            seen[id(value)] = value
            if kind in _WHOLE:
                self.kept[kind].append(value)
            getattr(self, f"_{kind}")(value, name)

    def _push(self, values: Iterable[Any], name: str) -> None:
        values = list(values)
        if not ATOMS.issuperset(map(type, values)):  # of a million numbers none is gone through one by one
            self._stack.extend([(value, name) for value in values if type(value) not in ATOMS])

    def _list(self, value: Any, name: str) -> None:
        self._push(list.__iter__(value), name)
        self._own(value, name)

    def _dict(self, value: Any, name: str) -> None:
        self._push(dict.keys(value), name)
        self._push(dict.values(value), name)
        self._own(value, name)

    def _set(self, value: Any, name: str) -> None:
        self._push(set.__iter__(value), name)
        self._own(value, name)

    def _deque(self, value: Any, name: str) -> None:
        self._push(collections.deque.__iter__(value), name)
        self._own(value, name)

    def _rng(self, value: Any, name: str) -> None:
        """Enters nothing: a generator or buffer leads to no other object."""

    _buffer = _rng

    def _tuple(self, value: Any, name: str) -> None:
        if gc.is_tracked(value):  # an untracked tuple holds atoms only
            self._push(value, name)
        self._own(value, name)

    def _tensor(self, value: torch.Tensor, name: str) -> None:
        if self._in_data:
            self.data[id(value)] = name
        with torch._C.DisableTorchFunctionSubclass():
            if value.is_leaf and value.grad is not None:
                self._stack.append((value.grad, name))
            if value.is_leaf and value._backward_hooks is not None:
                self._stack.append((value._backward_hooks, name))
            own = value.__dict__
        if own:
            self._stack.append((own, name))

    def _array(self, value: Any, name: str) -> None:
        if self._in_data:
            self.data[id(value)] = name
        if is_written_map(value):
            self.writable.append((value, name))
        if value.dtype == object:
            self._push(value.ravel().tolist(), name)

    def _class(self, value: type, name: str) -> None:
        if is_users(value.__module__ or ""):
            self.kept["class"].append(value)
            self._push([held for part in class_state(value).values() for held in behind(part)], name)
            self._push(value.__bases__, name)
        elif issubclass(value, torch.nn.Module) and _made_meanwhile(value):
            self.kept["class"].append(value)

    def _function(self, value: types.FunctionType, name: str) -> None:
        # A decorator of a library, such as torch.no_grad(), gives its own function the module of the user's.
        home = value.__globals__.get("__name__", "__main__")
        if is_users(home):
            if home != "__main__":
                self._space(value.__globals__, name)
        elif not is_users(value.__module__ or "__main__"):
            return
        self._push((value.__dict__, value.__defaults__, value.__kwdefaults__), name)
        for cell in value.__closure__ or ():
            if id(cell) not in self.seen:
                self.seen[id(cell)] = cell
                self.kept["cell"].append(cell)
                self._push(contents_of(cell), name)

    def _module(self, value: types.ModuleType, name: str) -> None:
        if is_users(value.__name__) and value.__name__ != "__main__":
            self._space(vars(value), value.__name__)

    def _space(self, space: dict[str, Any], name: str) -> None:
        """The names of a module of the user's, as the names of the notebook."""
        if id(space) not in self.seen:
            self.seen[id(space)] = space
            self.kept["module"].append(space)
            parts = [part for key, part in space.items() if not (key.startswith("__") and key.endswith("__"))]
            self._push(parts, name)

    def _frame(self, value: Any, name: str) -> None:
        size = value.memory_usage()
        if (size if isinstance(size, int) else int(size.sum())) > BIG_DATA_BYTES:
            self.unrestorable[f"{name} (large {type(value).__name__})"] = None
        else:
            self.kept["frame"].append(value)

    def _bound(self, value: Any, name: str) -> None:
        """Follows a method to its object, a partial to its arguments, a view to its dict."""
        self._push(gc.get_referents(value), name)

    def _cached(self, value: Any, name: str) -> None:
        """Follows a cached function to the function it wraps and to the cached results."""
        parts = gc.get_referents(value)
        parts += [
            inner for part in parts if type(part).__name__ == "_lru_list_elem" for inner in gc.get_referents(part)
        ]
        own = dict_of(value)
        self._stack.append((own, name))
        for part in parts:
            self._push(part.values() if type(part) is dict and part is not own else (part,), name)

    def _weak(self, value: Any, name: str) -> None:
        self._push((value(),), name)

    def _unrestorable(self, value: Any, name: str) -> None:
        if any(value is stream for stream in (sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__)):
            return
        if is_open_kind(type(value)):
            if is_kept(value):
                self.opened[id(value)] = value, name
            else:
                self.writable.append((value, name))
            return
        self.unrestorable[f"{name} ({type(value).__name__})"] = None

    def _iterator(self, value: Any, name: str) -> None:
        """Nobody can put back what was drawn: a cell that draws from an earlier iterator is refused (`iterators`)."""

    def _instance(self, value: Any, name: str) -> None:
        if issubclass(type(value), torch.jit.ScriptModule):
            self._push([*value.parameters(), *value.buffers()], name)
            return
        self._own(value, name)
        if issubclass(type(value), torch.nn.Module):
            self.buffers.update(id(buffer) for buffer in vars(value).get("_buffers", {}).values())

    def _guest(self, value: Any, name: str) -> None:
        """An instance of a library that does not know torch: kept where it holds what is trained, such as a search."""
        kinds = frozenset(map(type, dict_of(value).values()))
        if kinds not in self._guests:
            self._guests[kinds] = any(map(made_for_training, kinds))
        if self._guests[kinds]:
            self._instance(value, name)
        else:
            self._apart(value, name)

    def _apart(self, value: Any, name: str) -> None:
        """Checks an object that is not entered for a file open for writing."""
        cls = type(value)
        if gc.is_tracked(value) and not issubclass(cls, type) and self._looked[cls] < MOST_OF_A_CLASS:
            self._looked[cls] += 1
            if could_be_written(value):
                self.writable.append((value, name))

    def _own(self, value: Any, name: str) -> None:
        """Follows the attributes of an instance, in its dict and in slots."""
        cls = type(value)
        if cls.__module__ == "builtins" or cls in _BARE:
            return
        self.kept["instance"].append(value)
        attributes = dict_of(value)
        loader = issubclass(cls, DataLoader)
        self._push([part for key, part in attributes.items() if not (loader and key == "_iterator")], name)
        self._push(slots_of(value).values(), name)
        self._stack.append((cls, name))


def _made_meanwhile(cls: type) -> bool:
    """True if a library makes such classes one by one: one of its own for each layer, which it takes apart later.

    `torch.nn.utils.parametrize` does, whose `remove_parametrizations` deletes the weight's property from the class.
    """
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls
