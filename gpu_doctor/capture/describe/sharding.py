"""Finds out from its code, without running it, whether an iterable-style dataset shards its items by worker.

Python code that shards by worker has to call `get_worker_info` (or be set up by `worker_init_fn`, or draw from an
object that the processes share). So we search for that name in the methods of the dataset's class and of the datasets
that it wraps, and in the functions that these methods name. Code that cannot be read (compiled code) is not called a
fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch

SHARDING_NAMES: Final = frozenset({"get_worker_info", "split_by_worker", "split_dataset_by_node"})
SELF_SHARDING_PACKAGES: Final = frozenset(
    {"webdataset", "wids", "datasets", "streaming", "litdata", "torchdata", "deeplake", "multiprocessing"}
)
"""Libraries that distribute items among workers themselves; objects of multiprocessing are shared by all workers."""
RANDOM_NAMES: Final = frozenset(
    {"rand", "randn", "randint", "normal", "uniform", "default_rng", "rand_like", "randn_like"}
)
"""Names of functions that draw random numbers: torch seeds each worker differently, so random items do not repeat."""
OBJECT_DEPTH: Final = 4
_MOST_WRAPPERS: Final = 4
"""Decorators, partials and bound methods around a function."""


def shards_itself(dataset: Any, worker_init_fn: Any = None) -> bool:
    """True if an iterable-style dataset, or a part of it, gives each worker different items."""
    if any(SHARDING_NAMES & _names(function.__code__) for function in _functions(worker_init_fn)):
        return True
    return any(_shards(part) for part in parts(dataset, OBJECT_DEPTH))


def draws_at_random(dataset: Any) -> bool:
    """True if items seem to be made from random numbers: then each worker makes different ones."""
    return any(
        RANDOM_NAMES & _names(function.__code__)
        for part in parts(dataset, OBJECT_DEPTH)
        for function in _methods(type(part), ("__iter__", "__next__"))
    )


def can_be_read(dataset: Any) -> bool:
    """True if the dataset's `__iter__` is Python code."""
    return isinstance(getattr(type(dataset), "__iter__", None), FunctionType)


def _shards(part: Any) -> bool:
    """True if an object shards by worker, by its package, its methods, or the functions that these name."""
    kind = type(part)
    if kind.__module__.partition(".")[0] in SELF_SHARDING_PACKAGES or hasattr(kind, "apply_sharding"):
        return True
    for function in (*_functions(part), *_methods(kind)):
        names = _names(function.__code__)
        if SHARDING_NAMES & names:
            return True
        if any(SHARDING_NAMES & _names(called.__code__) for called in _called(function, names)):
            return True
    return False


def _methods(kind: type, names: tuple[str, ...] | None = None) -> Iterator[FunctionType]:
    """Yields the Python functions of a class and its base classes, without torch's own; `names`: only these."""
    for cls in kind.__mro__:
        for name, value in tuple(vars(cls).items()):
            if names is None or name in names:
                yield from _functions(value)


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yields the Python function behind a property, partial, method or decorator, unless it is torch's own."""
    for _ in range(_MOST_WRAPPERS):
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, (staticmethod, classmethod, MethodType)):
            value = value.__func__
        elif isinstance(value, FunctionType):
            value = vars(value).get("__wrapped__", value)
    if isinstance(value, FunctionType) and not is_torch(value):
        yield value


def _called(function: FunctionType, names: set[str]) -> Iterator[FunctionType]:
    """Yields the Python functions that a function names, from its module or an imported one, or from their classes."""
    for value in [function.__globals__.get(name) for name in names]:
        if isinstance(value, type):
            yield from _methods(value)
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "torch":
            yield from (named for name in names for named in _functions(vars(value).get(name)))
        else:
            yield from _functions(value)


def _names(code: CodeType) -> set[str]:
    """Returns the names that a function's code uses, including inner functions."""
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def parts(root: Any, depth: int, opens: Callable[[Any], bool] = lambda value: True) -> Iterator[Any]:
    """Yields an object and its parts to a small depth: attributes, and members of short lists, tuples and dicts.

    Args:
        root: the object.
        depth: number of levels below it.
        opens: returns True if an object's parts are to be yielded, too.
    """
    yield root
    if depth <= 0 or not opens(root):
        return
    inner: list[Any] = []
    if type(root) in (list, tuple):
        inner = list(root[:8])
    elif type(root) is dict:
        inner = list(root.values())[:8]
    elif not isinstance(root, (type, torch.Tensor, FunctionType)) and hasattr(type(root), "__dictoffset__"):
        inner = list(getattr(root, "__dict__", {}).values())[:32]
    for part in inner:
        if part is not None and type(part) not in (int, float, str, bytes, bool):
            yield from parts(part, depth - 1, opens)


def is_torch(function: FunctionType) -> bool:
    """True if a function is torch's own."""
    return str(function.__module__).partition(".")[0] == "torch"
