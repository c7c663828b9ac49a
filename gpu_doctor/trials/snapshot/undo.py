"""How each kind of container, instance and random number generator is put back: a function that writes what was."""

from __future__ import annotations

import collections
import copy
import ctypes
import random
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

from gpu_doctor.trials.snapshot.kinds import internal
from gpu_doctor.trials.snapshot.parts import class_state, contents_of, dict_of, registry_of, slot_members, slots_of

Undo: TypeAlias = "Callable[[], object]"


def _same(now: Iterable[Any], saved: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(now, saved, strict=True))


def list_undo(value: list[Any]) -> tuple[Undo, int]:
    """The items of a list, put back in place; and how many bytes they take."""
    saved = list(list.__iter__(value))

    def undo() -> None:
        if list.__len__(value) != len(saved) or not _same(list.__iter__(value), saved):
            list.__setitem__(value, slice(None), saved)

    return undo, sys.getsizeof(saved)


def _write_dict(value: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Contents and order of a dict, past overrides of its class; untouched where nothing changed."""
    if (
        dict.__len__(value) == len(saved)
        and _same(dict.keys(value), saved)
        and _same(dict.values(value), saved.values())
    ):
        return
    kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    kind.clear(value)
    for key, item in saved.items():
        kind.__setitem__(value, key, item)


def dict_undo(value: dict[Any, Any]) -> tuple[Undo, int]:
    """The items of a dict, put back in place; and how many bytes they take."""
    # OrderedDict keeps an order of its own (move_to_end), which dict.items() does not show.
    order: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else None
    saved = dict((order or dict).items(value))
    makes = value.default_factory if isinstance(value, collections.defaultdict) else None

    def undo() -> None:
        _write_dict(value, saved)
        if isinstance(value, collections.defaultdict) and value.default_factory is not makes:
            value.default_factory = makes
        if order and not _same(order.__iter__(value), saved):
            for key in saved:
                order.move_to_end(value, key)

    return undo, sys.getsizeof(saved)


def set_undo(value: set[Any]) -> tuple[Undo, int]:
    """The members of a set, put back in place; and how many bytes they take."""
    saved = list(set.__iter__(value))

    def undo() -> None:
        # A set that is filled anew may go through its items in another order: only where something changed.
        if set.__len__(value) != len(saved) or not _same(set.__iter__(value), saved):
            set.clear(value)
            set.update(value, saved)

    return undo, sys.getsizeof(saved)


def deque_undo(value: collections.deque[Any]) -> tuple[Undo, int]:
    """The items of a deque, put back in place; and how many bytes they take."""
    saved = list(collections.deque.__iter__(value))

    def undo() -> None:
        if collections.deque.__len__(value) != len(saved) or not _same(collections.deque.__iter__(value), saved):
            collections.deque.clear(value)
            collections.deque.extend(value, saved)

    return undo, sys.getsizeof(saved)


def buffer_undo(value: Any) -> tuple[Undo, int]:
    """The bytes of a writable buffer, put back in place; and how many bytes they take."""
    saved = value[:]

    def undo() -> None:
        value[:] = saved

    return undo, sys.getsizeof(saved)


def numbers_undo(value: Any) -> tuple[Undo, int]:
    """Numbers of C; those that processes share keep their place."""
    view = (ctypes.c_char * ctypes.sizeof(value)).from_buffer(value)
    saved = view.raw

    def undo() -> None:
        if view.raw != saved:
            view.raw = saved

    return undo, len(saved)


def cached_undo(function: Any) -> Undo:
    """The cache of a function: emptied where it was empty. That another one cannot be put back is said by the walk."""
    before = function.cache_info()

    def undo() -> None:
        if not before.currsize and function.cache_info().currsize:
            function.cache_clear()

    return undo


def dispatch_undo(function: Any) -> Undo:
    """What a function of `functools.singledispatch` calls for which type; what it remembers of that is forgotten."""
    registry = registry_of(function) or {}
    saved = dict(registry)

    def undo() -> None:
        if len(registry) != len(saved) or not _same(registry.values(), saved.values()):
            _write_dict(registry, saved)
            dict_of(function)["_clear_cache"]()

    return undo


def frame_undo(value: Any) -> tuple[Undo, int]:
    """A table or column of pandas, whose own way of an in-place change takes the contents of another one."""
    saved = value.copy(deep=True)
    size = value.memory_usage()

    def undo() -> None:
        same = value.shape == saved.shape and value.equals(saved) and value.axes[0].equals(saved.axes[0])
        if not same or not value.axes[-1].equals(saved.axes[-1]):
            value._update_inplace(saved.copy(deep=True))

    return undo, size if isinstance(size, int) else int(size.sum())


def module_undo(space: dict[str, Any]) -> Undo:
    """The names of a module of the user's; what the import system put there stays."""
    saved = dict(space)

    def undo() -> None:
        for name in [name for name, value in space.items() if name not in saved and not isinstance(value, ModuleType)]:
            del space[name]
        for name, value in saved.items():
            if name not in space or space[name] is not value:
                space[name] = value

    return undo


def instance_undo(value: Any) -> Undo:
    """An object's attributes, put back in place."""
    kind, attributes, slots = type(value), dict(dict_of(value)), slots_of(value)

    def undo() -> None:
        if type(value) is not kind:
            object.__setattr__(value, "__class__", kind)  # a lazy module turned into its real kind
        if attributes or dict_of(value):
            _write_dict(dict_of(value), attributes)
        for member in slot_members(kind):
            if member in slots:
                member.__set__(value, slots[member])
            elif member in slots_of(value):
                member.__delete__(value)

    return undo


def class_undo(cls: type) -> Undo:
    """A class's attributes, put back in place."""
    saved = class_state(cls)

    def undo() -> None:
        now = class_state(cls)
        for name in now.keys() - saved.keys():
            delattr(cls, name)
        for name, value in saved.items():
            if now.get(name, undo) is not value:
                setattr(cls, name, value)

    return undo


def cell_undo(cell: Any) -> Undo:
    """A closure's variable, put back in place."""
    saved = contents_of(cell)

    def undo() -> None:
        if saved:
            cell.cell_contents = saved[0]
        elif contents_of(cell):
            del cell.cell_contents

    return undo


def namespace_undo(namespace: dict[str, Any]) -> Undo:
    """The names of a namespace, put back in place."""
    saved = {name: value for name, value in namespace.items() if not internal(name, namespace)}

    def undo() -> None:
        for name in [name for name in namespace if name not in saved and not internal(name, namespace)]:
            del namespace[name]
        for name, value in saved.items():
            if name not in namespace or namespace[name] is not value:
                namespace[name] = value

    return undo


def rng_undo(rng: Any) -> Undo:
    """What puts a generator of torch, numpy or Python back to its state of now."""
    if isinstance(rng, torch.Generator):
        state = rng.get_state()
        return lambda: rng.set_state(state)
    if isinstance(rng, random.Random):
        kept = rng.getstate()
        return lambda: rng.setstate(kept)
    if isinstance(rng, np.random.RandomState):
        legacy = rng.get_state()
        return lambda: rng.set_state(legacy)
    bits = rng.bit_generator if isinstance(rng, np.random.Generator) else rng
    words = copy.deepcopy(bits.state)

    def undo() -> None:
        bits.state = words

    return undo
