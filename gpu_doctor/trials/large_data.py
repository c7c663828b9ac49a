"""Refuses a cell that changes data too large to copy: the change would stay.

Lines that change it are found in the text of the cell, of the user's functions that it calls, and of what a loader
calls of a dataset. What no text shows is found when a side has ended (`Snapshot.changed_data`); the case remembers it.
"""

from __future__ import annotations

import inspect
import types
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource, Changed, changed_in_place
from gpu_doctor.trials import allowing
from gpu_doctor.trials.cell_code import source_of
from gpu_doctor.trials.reaching_out import sources
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.snapshot.parts import dict_of, is_users
from gpu_doctor.trials.snapshot.tensors import BIG_DATA_BYTES
from gpu_doctor.trials.snapshot.walk import Walk, uncollected
from gpu_doctor.trials.used_names import Reached

_READS: Final = ("__getitem__", "__getitems__", "__iter__", "__next__")
"""Methods of a dataset that a loader calls."""


def large_data(case: Runner) -> Beforehand:
    """Refuses a cell that changes large data that is not copied, unless it is allowed."""
    changed: dict[int, str] = {}
    for place, source, namespace in (*sources(case), *_read_by_loaders(Reached.of(case).datasets)):
        for change in changed_in_place(source):
            value = _value(change, namespace)
            if _is_large(value):
                changed.setdefault(id(value), f"`{formatting.clean(change.what, 60)}` in line {change.line}{place}")
    calls = [changed[key] for key in changed.keys() & _uncopied(case)] if changed else []
    if not calls and allowing.LARGE_DATA in case.reached:
        calls = [case.reached[allowing.LARGE_DATA]]
    return allowing.said({allowing.LARGE_DATA: calls} if calls else {}, case.allowed)


@uncollected()
def _uncopied(case: Runner) -> set[int]:
    """Ids of the tensors and arrays that a snapshot would not copy."""
    walk = Walk()
    walk.over([case.namespace], case.roots())
    return {key for store in walk.stores() for key in store.uncopied}


def _read_by_loaders(datasets: Iterable[Any]) -> Iterator[tuple[str, CellSource, Mapping[str, Any]]]:
    """Returns the user's methods by which a loader reads datasets, as `sources` gives those that a cell calls."""
    for dataset in datasets:
        for name in _READS:
            method = inspect.getattr_static(type(dataset), name, None)
            if isinstance(method, types.FunctionType) and is_users(method.__module__ or "__main__"):
                names = ChainMap({method.__code__.co_varnames[0]: dataset}, method.__globals__)
                yield f" of {method.__qualname__}()", CellSource(source_of(method)), names


def _value(changed: Changed, namespace: Mapping[str, Any]) -> Any:
    """Returns the object that a line changes, None if the text does not show it; runs no code of the user."""
    value: Any = namespace.get(changed.name)
    for kind, key in changed.steps:
        if kind == ".":
            value = dict_of(value).get(key)
        elif type(value) is dict:
            value = value.get(key)
        elif type(value) in (list, tuple) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        elif not isinstance(value, (torch.Tensor, np.ndarray)):  # an item of which is a view of the same numbers
            return None
    return value


def _is_large(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return int(value.nbytes) > BIG_DATA_BYTES
    return isinstance(value, torch.Tensor) and value.element_size() * value.numel() > BIG_DATA_BYTES
