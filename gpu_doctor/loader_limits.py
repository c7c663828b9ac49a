"""What a DataLoader cannot be changed to, and why, in one sentence each.

A refusal is worth more than a wrong figure: an IterableDataset that does not ask which worker it is delivers every item
once per worker, and a "faster" loader of repeated items is no cure.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch.utils.data import BatchSampler, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

KNOBS_ON_LOADERS: Final = ("num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers")

_SHARDING_NAMES: Final = frozenset({"get_worker_info", "split_by_worker", "split_dataset_by_node"})
_SELF_SHARDING_PACKAGES: Final = frozenset({"webdataset", "datasets", "streaming", "litdata", "torchdata"})
MULTIPROCESSING_CONTEXT: Final = "_DataLoader__multiprocessing_context"
"""Where DataLoader keeps what its property of that name returns."""
_CODE_DEPTH: Final = 3
_OBJECT_DEPTH: Final = 4


def refusal(loader: Any, knob: str, value: Any = None) -> str:
    """Why `loader` cannot honour `knob` at `value`.

    Args:
        loader: a DataLoader of any class.
        knob: one of `KNOBS_ON_LOADERS`; other names are never refused here.
        value: the value asked for; None asks whether the knob can be turned at all.

    Returns:
        One sentence, empty if it can.
    """
    values = vars(loader)
    current = values.get(knob)
    if value is not None and value == current:
        return ""
    said = _held_iterator(values)
    if said or knob not in KNOBS_ON_LOADERS:
        return said
    if knob == "batch_size":
        return _batch_size(values, value)
    if knob == "pin_memory":
        return _pin_memory(values, value)
    if knob == "num_workers":
        return _num_workers(loader, values, value)
    if value is not None and int(values.get("num_workers", 0)) == 0 and bool(value):
        return f"{knob} acts on worker processes only: set num_workers above 0 first."
    return ""


def start_method_of(loader: Any) -> str:
    """How workers of this loader are started: its own multiprocessing context's way, else the process' default.

    The default is read without fixing it: asking `get_start_method()` plainly would make a later
    `set_start_method` of the user fail.
    """
    context = vars(loader).get(MULTIPROCESSING_CONTEXT)
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _held_iterator(values: dict[str, Any]) -> str:
    """A loader that keeps its iterator alive goes on with the settings that it was started with."""
    own = [
        name for name, value in values.items() if name != "_iterator" and issubclass(type(value), _BaseDataLoaderIter)
    ]
    if own:
        return (
            f"The loader keeps a running iterator of its own (attribute {own[0]}), which a change does not reach: "
            "make the loader anew in the cell."
        )
    # Two references are the loader's own and getrefcount's argument; one more is a loop that is still going on.
    if getattr(values.get("_iterator"), "_tasks_outstanding", 0) > 0 and sys.getrefcount(values["_iterator"]) > 2:
        return (
            "An iterator of this loader's persistent workers is half way through an epoch and in use elsewhere: "
            "finish or delete it first."
        )
    return ""


def _batch_size(values: dict[str, Any], value: Any) -> str:
    batch_sampler = values.get("batch_sampler")
    if batch_sampler is None:
        return "batch_size=None: the dataset itself yields whole batches, so their size is set there."
    if type(batch_sampler) is not BatchSampler:
        return f"A custom batch_sampler ({type(batch_sampler).__name__}) owns the batches: set the size there."
    if value is None or not batch_sampler.drop_last or issubclass(type(values.get("dataset")), IterableDataset):
        return ""
    try:
        samples = len(batch_sampler.sampler)  # type: ignore[arg-type]
    except Exception:
        return ""
    if int(value) > samples:
        return f"The loader draws {samples} samples an epoch and has drop_last=True: a batch of {value} leaves none."
    return ""


def _pin_memory(values: dict[str, Any], value: Any) -> str:
    if value is False:
        return ""
    if _holds_gpu_tensors(values.get("dataset")):
        return "The dataset's tensors are on the GPU already: only tensors in host memory can be pinned."
    return ""


def _num_workers(loader: Any, values: dict[str, Any], value: Any) -> str:
    dataset = values.get("dataset")
    if value == 0 and not issubclass(type(dataset), IterableDataset):
        return ""
    if multiprocessing.current_process().daemon:
        return "This process is a daemonic worker itself and may not start worker processes."
    if issubclass(type(dataset), IterableDataset):
        one_copy = int(values.get("num_workers", 0)) <= 1 and value is not None and int(value) <= 1
        if not one_copy and not shards_itself(dataset, values.get("worker_init_fn")):
            return (
                f"{type(dataset).__name__} is an IterableDataset that does not use get_worker_info: every worker "
                "would deliver all items again. Shard it by worker first."
            )
    if value == 0:
        return ""
    if _holds_gpu_tensors(dataset):
        return "The dataset holds tensors on the GPU, which worker processes cannot use: keep them on the CPU."
    return _unpicklable(loader, values)


def _unpicklable(loader: Any, values: dict[str, Any]) -> str:
    """Under spawn and forkserver everything travels by pickle, and a notebook's `__main__` cannot be imported again."""
    method = start_method_of(loader)
    if method == "fork":
        return ""
    main_travels = hasattr(sys.modules.get("__main__"), "__file__")
    for what in ("dataset", "collate_fn", "worker_init_fn"):
        value = values.get(what)
        if value is None:
            continue
        name = getattr(value, "__qualname__", "")
        if "<lambda>" in name or "<locals>" in name:
            return f"Workers start by {method} here, and {what} is a lambda or a local function: define it in a module."
        if not main_travels and any(_home(part) == "__main__" for part in _parts(value, _OBJECT_DEPTH)):
            return f"Workers start by {method} here, and {what} is defined in the notebook: move it to a module."
    return ""


def shards_itself(dataset: Any, worker_init_fn: Any = None) -> bool:
    """True if an iterable-style dataset (or something it is made of) gives each worker items of its own.

    Looked for are: `get_worker_info` in the code of `__iter__`, of functions it calls, of wrapped datasets or of
    `worker_init_fn`; datapipes with a sharding filter; and libraries that shard by worker themselves.
    """
    if isinstance(worker_init_fn, FunctionType) and _mentions(worker_init_fn, None, _CODE_DEPTH):
        return True
    for part in _parts(dataset, _OBJECT_DEPTH):
        kind = type(part)
        if kind.__module__.partition(".")[0] in _SELF_SHARDING_PACKAGES or hasattr(kind, "apply_sharding"):
            return True
        for name in ("__iter__", "__next__", "__init__"):
            function = getattr(kind, name, None)
            if isinstance(function, FunctionType) and not _is_torch(function) and _mentions(function, kind):
                return True
        if isinstance(part, FunctionType) and _mentions(part, None):
            return True
    return False


def _mentions(function: FunctionType, owner: type | None, depth: int = _CODE_DEPTH) -> bool:
    """True if the function, or a function or method that it names, uses one of the sharding names."""
    for name in _names(function.__code__):
        if name in _SHARDING_NAMES:
            return True
        if depth <= 0:
            continue
        for called in (getattr(owner, name, None) if owner else None, function.__globals__.get(name)):
            if isinstance(called, property):
                called = called.fget
            if not isinstance(called, FunctionType) or called is function or _is_torch(called):
                continue
            if _mentions(called, owner, depth - 1):
                return True
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _parts(root: Any, depth: int) -> Iterator[Any]:
    """An object and what it is made of, to a small depth: attributes, and the members of short lists and tuples."""
    yield root
    if depth <= 0:
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
            yield from _parts(part, depth - 1)


def _holds_gpu_tensors(dataset: Any) -> bool:
    return any(isinstance(part, torch.Tensor) and part.is_cuda for part in _parts(dataset, _OBJECT_DEPTH))


def _home(part: Any) -> str:
    return str(getattr(part, "__module__", "") if isinstance(part, FunctionType) else type(part).__module__)


def _is_torch(function: FunctionType) -> bool:
    return str(function.__module__).partition(".")[0] == "torch"
