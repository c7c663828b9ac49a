"""Restores each kind of container, instance and random number generator: makes a function that writes the old state."""

from __future__ import annotations

import collections
import copy
import functools
import operator
import random
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from gpu_doctor.trials.snapshot.kinds import internal
from gpu_doctor.trials.snapshot.parts import class_state, contents_of, dict_of, slot_members, slots_of

Undo: TypeAlias = "Callable[[], object]"


def _same(now: Iterable[Any], saved: Iterable[Any]) -> bool:
    """True if two rows of one length hold the same objects."""
    return all(map(operator.is_, now, saved))


def _items_undo(kind: Any, fill: Callable[[Any, Any], None], value: Any) -> Undo:
    """Returns the undo of a list, set or deque, past overrides of its class; unchanged ones are not written.

    A set that is filled anew may go through its items in another order.
    """
    saved = list(kind.__iter__(value))

    def undo() -> None:
        if kind.__len__(value) != len(saved) or not _same(kind.__iter__(value), saved):
            kind.clear(value)
            fill(value, saved)

    return undo


def _write_dict(value: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Restores contents and order of a dict, past overrides of its class; an unchanged dict is not written."""
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


def _dict_undo(value: dict[Any, Any]) -> Undo:
    """Returns the undo of a dictionary: its items, their order, and its default factory."""
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

    return undo


def _buffer_undo(value: Any) -> Undo:
    saved = value[:]

    def undo() -> None:
        value[:] = saved

    return undo


def _frame_undo(value: Any) -> Undo:
    """Returns the undo of a pandas table or column, which takes the contents of a copy in place."""
    saved = value.copy(deep=True)

    def undo() -> None:
        same = value.shape == saved.shape and value.equals(saved) and value.axes[0].equals(saved.axes[0])
        if not same or not value.axes[-1].equals(saved.axes[-1]):
            value._update_inplace(saved.copy(deep=True))

    return undo


def _instance_undo(value: Any) -> Undo:
    """Returns the undo of an instance: its class, its attributes, and its slots."""
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


def _class_undo(cls: type) -> Undo:
    """Returns the undo of the attributes of a class."""
    saved = class_state(cls)

    def undo() -> None:
        now = class_state(cls)
        for name in now.keys() - saved.keys():
            delattr(cls, name)
        for name, value in saved.items():
            if now.get(name, undo) is not value:
                setattr(cls, name, value)

    return undo


def _cell_undo(cell: Any) -> Undo:
    """Returns the undo of a closure cell, which may have been empty."""
    saved = contents_of(cell)

    def undo() -> None:
        if saved:
            cell.cell_contents = saved[0]
        elif contents_of(cell):
            del cell.cell_contents

    return undo


def _module_undo(space: dict[str, Any]) -> Undo:
    """Returns the undo of the names in a user's module; submodules that were imported stay."""
    return _names_undo(space, dict(space), lambda name, value: isinstance(value, ModuleType))


def namespace_undo(space: dict[str, Any]) -> Undo:
    """Returns the undo of the notebook's names, without IPython's."""
    saved = {name: value for name, value in space.items() if not internal(name, space)}
    return _names_undo(space, saved, lambda name, value: internal(name, space))


def _names_undo(space: dict[str, Any], saved: dict[str, Any], stays: Callable[[str, Any], bool]) -> Undo:
    """Returns the undo of the names in `space`: it deletes new names for which `stays` is False."""

    def undo() -> None:
        for name in [name for name, value in space.items() if name not in saved and not stays(name, value)]:
            del space[name]
        for name, value in saved.items():
            if name not in space or space[name] is not value:
                space[name] = value

    return undo


def _rng_undo(rng: Any) -> Undo:
    """Returns the undo of a random generator of torch, numpy or Python."""
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


UNDOS: Final[Mapping[str, Callable[[Any], Undo]]] = {
    "list": functools.partial(_items_undo, list, list.extend),
    "dict": _dict_undo,
    "set": functools.partial(_items_undo, set, set.update),
    "deque": functools.partial(_items_undo, collections.deque, collections.deque.extend),
    "buffer": _buffer_undo,
    "frame": _frame_undo,
    "class": _class_undo,
    "instance": _instance_undo,
    "cell": _cell_undo,
    "rng": _rng_undo,
    "module": _module_undo,
}
"""Kind of what a walk keeps, in the order in which it is put back -> what keeps one and puts it back."""
