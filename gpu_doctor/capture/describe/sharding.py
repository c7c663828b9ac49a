"""Whether an iterable-style dataset gives each worker items of its own, read off its code without running any of it.

Python code that shards by worker has to ask `get_worker_info` (or be told by `worker_init_fn`, or draw from something
that the processes share). So that name is looked for: in `__iter__` and what it calls, by inheritance, in wrapped
datasets, closures, functions of other modules. What cannot be read (compiled code) is not called a fault.
"""

from __future__ import annotations

import functools
import sys
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
_CODE_DEPTH: Final = 4
_MOST_CODE: Final = 400
"""Functions read at most; a dataset that reaches more of them than that is not understood anyway."""
_METHODS: Final = ("__iter__", "__next__", "__init__", "__call__")


def shards_itself(dataset: Any, worker_init_fn: Any = None) -> bool:
    """True if an iterable-style dataset (or something it is made of) gives each worker items of its own."""
    if any(_names_one_of(one, None, SHARDING_NAMES) for one in _functions(worker_init_fn)):
        return True
    for part in parts(dataset, OBJECT_DEPTH):
        kind = type(part)
        if kind.__module__.partition(".")[0] in SELF_SHARDING_PACKAGES or hasattr(kind, "apply_sharding"):
            return True
        if _kind_names_one_of(kind, SHARDING_NAMES):
            return True
        if any(_names_one_of(one, None, SHARDING_NAMES) for one in _functions(part)):
            return True
    return False


def draws_at_random(dataset: Any) -> bool:
    """True if items seem to be made from random numbers: every worker then makes others."""
    return any(
        _kind_names_one_of(type(part), RANDOM_NAMES, ("__iter__", "__next__")) for part in parts(dataset, OBJECT_DEPTH)
    )


def can_be_read(dataset: Any) -> bool:
    """Whether the dataset's `__iter__` is Python code."""
    return isinstance(getattr(type(dataset), "__iter__", None), FunctionType)


def _kind_names_one_of(kind: type, names: frozenset[str], methods: tuple[str, ...] = _METHODS) -> bool:
    found = (function for name in methods for function in _of_class(kind, name))
    return any(_names_one_of(function, kind, names) for function in found)


def _of_class(kind: type, name: str) -> Iterator[FunctionType]:
    """What stands under a name in a class and in all that it inherits from: `super()` leads there."""
    for one in kind.__mro__:
        value = vars(one).get(name)
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        yield from _functions(value)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The Python function behind a value, torch's own left out."""
    while isinstance(value, (functools.partial, MethodType)):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, FunctionType) and not is_torch(value):
        yield value


def _names_one_of(
    function: FunctionType,
    owner: type | None,
    wanted: frozenset[str],
    depth: int = _CODE_DEPTH,
    seen: set[CodeType] | None = None,
) -> bool:
    """True if the function, or one that it names, uses one of the wanted names."""
    seen = set() if seen is None else seen
    if function.__code__ in seen or len(seen) >= _MOST_CODE:
        return False
    seen.add(function.__code__)
    names = set(_names(function.__code__))
    if names & wanted:
        return True
    if depth <= 0:
        return False
    return any(_names_one_of(one, kind, wanted, depth - 1, seen) for one, kind in _called(function, owner, names))


def _called(function: FunctionType, owner: type | None, names: set[str]) -> Iterator[tuple[FunctionType, type | None]]:
    """The functions that a function may call, as far as its names tell, each with the class that it belongs to."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
    for value in (*(function.__globals__.get(name) for name in names), *cells):
        if isinstance(value, type) and value.__module__.partition(".")[0] not in ("torch", "builtins"):
            yield from ((one, value) for method in _METHODS for one in _of_class(value, method))
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "torch":
            yield from ((one, None) for name in names for one in _functions(vars(value).get(name)))
        else:
            yield from ((one, None) for one in _functions(value))
    for name in names:
        if owner is not None:
            yield from ((one, owner) for one in _of_class(owner, name))
        imported = sys.modules.get(name)  # imported inside of the function
        if imported is not None and name.partition(".")[0] != "torch":
            yield from ((one, None) for inner in names for one in _functions(vars(imported).get(inner)))


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


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
