"""Whether an iterable-style dataset gives each worker items of its own, read off its code without running any of it.

Python code that shards by worker has to ask `get_worker_info` (or be told by `worker_init_fn`, or draw from something
that the processes share). So that name is looked for in the methods of the dataset's class and of the datasets that it
wraps, and in the functions that these methods name. What cannot be read (compiled code) is not called a fault.
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
"""Libraries that share items out among workers themselves; what comes from multiprocessing is one for all of them."""
RANDOM_NAMES: Final = frozenset(
    {"rand", "randn", "randint", "normal", "uniform", "default_rng", "rand_like", "randn_like"}
)
"""A dataset that draws its items at random does not repeat them: torch seeds every worker differently."""
OBJECT_DEPTH: Final = 4
_MOST_WRAPPERS: Final = 4
"""Decorators, partials and bound methods around a function."""


def shards_itself(dataset: Any, worker_init_fn: Any = None) -> bool:
    """True if an iterable-style dataset (or something it is made of) gives each worker items of its own."""
    if any(SHARDING_NAMES & _names(one.__code__) for one in _functions(worker_init_fn)):
        return True
    return any(_shards(part) for part in parts(dataset, OBJECT_DEPTH))


def draws_at_random(dataset: Any) -> bool:
    """True if items seem to be made from random numbers: every worker then makes others."""
    return any(
        RANDOM_NAMES & _names(function.__code__)
        for part in parts(dataset, OBJECT_DEPTH)
        for function in _methods(type(part), ("__iter__", "__next__"))
    )


def can_be_read(dataset: Any) -> bool:
    """Whether the dataset's `__iter__` is Python code."""
    return isinstance(getattr(type(dataset), "__iter__", None), FunctionType)


def _shards(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.partition(".")[0] in SELF_SHARDING_PACKAGES or hasattr(kind, "apply_sharding"):
        return True
    for function in (*_functions(part), *_methods(kind)):
        names = _names(function.__code__)
        if SHARDING_NAMES & names:
            return True
        if any(SHARDING_NAMES & _names(one.__code__) for one in _called(function, names)):
            return True
    return False


def _methods(kind: type, names: tuple[str, ...] | None = None) -> Iterator[FunctionType]:
    """The Python functions of a class and of all that it inherits from, torch's own left out."""
    for one in kind.__mro__:
        for name, value in tuple(vars(one).items()):
            if names is None or name in names:
                yield from _functions(value)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The Python function behind a value, torch's own left out."""
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
    """The Python functions that a function names: of its module, of one that it imports, or of a class of these."""
    for value in [function.__globals__.get(name) for name in names]:
        if isinstance(value, type):
            yield from _methods(value)
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "torch":
            yield from (one for name in names for one in _functions(vars(value).get(name)))
        else:
            yield from _functions(value)


def _names(code: CodeType) -> set[str]:
    """The names that a function's code uses, those of functions within it too."""
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def parts(root: Any, depth: int, opens: Callable[[Any], bool] = lambda value: True) -> Iterator[Any]:
    """An object and what it is made of, to a small depth: attributes, and the members of short lists and tuples.

    Args:
        root: the object.
        depth: levels below it.
        opens: whether what an object is made of is asked for.
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
    """Whether a function is torch's own."""
    return str(function.__module__).partition(".")[0] == "torch"
