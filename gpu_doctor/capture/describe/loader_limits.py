"""Says which settings a DataLoader cannot take, and why, in one sentence each.

A refusal is worth more than a wrong figure: an IterableDataset that does not check which worker runs it delivers every
item once per worker, and a "faster" loader of repeated items is no cure.
"""

from __future__ import annotations

import io
import multiprocessing
import re
import sys
from pathlib import Path
from types import FunctionType, GeneratorType, ModuleType
from typing import Any, Final

import torch
from torch.utils.data import BatchSampler, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.capture.describe.sharding import OBJECT_DEPTH, can_be_read, draws_at_random, parts
from gpu_doctor.capture.describe.sharding import shards_itself as shards_itself
from gpu_doctor.machine import start_method

KNOBS_ON_LOADERS: Final = (*("num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers"),)
_GUARD: Final = re.compile(r"""__name__\s*==\s*["']__main__|["']__main__["']\s*==\s*__name__""")
_HANDLES: Final = frozenset({"_thread", "_socket", "socket", "sqlite3", "_sqlite3", "h5py._hl.files", "lmdb"})
"""Modules of types whose objects are bound to the process: locks, connections, open databases."""
_BOUND: Final = (
    *(io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper),
    *(GeneratorType, ModuleType),
)
MULTIPROCESSING_CONTEXT: Final = "_DataLoader__multiprocessing_context"
"""Attribute in which DataLoader stores the value of its property `multiprocessing_context`."""


def refusal(loader: Any, knob: str, value: Any = None) -> str:
    """Returns the reason why `loader` cannot take `value` for `knob`.

    Args:
        loader: a DataLoader of any class.
        knob: one of `KNOBS_ON_LOADERS`; other names are never refused here.
        value: the requested value; None = any other value.

    Returns:
        One sentence; empty if the loader can take the value.
    """
    values = vars(loader)
    current = values.get(knob)
    if value is not None and value == current:
        return ""
    reason = _running_iterator(values)
    if reason or knob not in KNOBS_ON_LOADERS:
        return reason
    if knob == "batch_size":
        return _batch_size(values, value)
    if knob == "pin_memory":
        return _pin_memory(values, value)
    if knob == "num_workers":
        return _num_workers(loader, values, value)
    if value is not None and int(values.get("num_workers", 0)) == 0 and bool(value):
        return f"{knob} needs worker processes: set num_workers above 0 first."
    return ""


def start_method_of(loader: Any) -> str:
    """Returns the start method of a loader's workers: its own multiprocessing context's, else the process' default."""
    context = vars(loader).get(MULTIPROCESSING_CONTEXT)
    return start_method() if context is None else str(context.get_start_method())


def _running_iterator(values: dict[str, Any]) -> str:
    """Refuses a loader that has a running iterator: it goes on with the settings that it was started with."""
    running = [
        name for name, value in values.items() if name != "_iterator" and issubclass(type(value), _BaseDataLoaderIter)
    ]
    if running:
        return (
            f"The loader holds a running iterator (attribute {running[0]}) that keeps the old settings: create the "
            "loader again in the cell."
        )
    # Two references are the loader's own and getrefcount's argument; a third is a loop that is still running.
    if getattr(values.get("_iterator"), "_tasks_outstanding", 0) > 0 and sys.getrefcount(values["_iterator"]) > 2:
        return "The loader's persistent workers are in the middle of an epoch: finish or delete that iterator first."
    return ""


def _batch_size(values: dict[str, Any], value: Any) -> str:
    """Returns the reason why a loader with these attributes cannot take a batch size; empty if it can."""
    batch_sampler = values.get("batch_sampler")
    if batch_sampler is None:
        return "The dataset yields whole batches (batch_size=None): set their size in the dataset."
    if type(batch_sampler) is not BatchSampler:
        return f"Your batch_sampler ({type(batch_sampler).__name__}) decides the batch size: set it there."
    if value is None or not batch_sampler.drop_last or issubclass(type(values.get("dataset")), IterableDataset):
        return ""
    try:
        samples = len(batch_sampler.sampler)  # type: ignore[arg-type]
    except Exception:
        return ""
    if int(value) > samples:
        return f"With drop_last=True and {samples} samples an epoch, a batch size of {value} leaves no batch."
    return ""


def _pin_memory(values: dict[str, Any], value: Any) -> str:
    """Returns the reason why a loader with these attributes cannot pin memory; empty if it can."""
    if value is False:
        return ""
    if _holds_gpu_tensors(values.get("dataset")):
        return "The dataset's tensors are on the GPU already: only tensors in CPU memory can be pinned."
    return ""


def _num_workers(loader: Any, values: dict[str, Any], value: Any) -> str:
    """Returns the reason why a loader cannot take a number of workers; empty if it can."""
    dataset = values.get("dataset")
    if value == 0 and not issubclass(type(dataset), IterableDataset):
        return ""
    if multiprocessing.current_process().daemon:
        return "This process is itself a daemonic worker, which cannot start worker processes."
    if issubclass(type(dataset), IterableDataset):
        one_copy = int(values.get("num_workers", 0)) <= 1 and value is not None and int(value) <= 1
        if not one_copy and not shards_itself(dataset, values.get("worker_init_fn")):
            known = can_be_read(dataset) and not draws_at_random(dataset)
            return f"{type(dataset).__name__} is an IterableDataset that does not use get_worker_info: " + (
                "every worker would deliver all items again. Shard it by worker first."
                if known
                else "workers may repeat each other's items. Shard it by worker first."
            )
    if value == 0:
        return ""
    if _holds_gpu_tensors(dataset):
        return "The dataset holds tensors on the GPU, which worker processes cannot use: keep them on the CPU."
    return _unpicklable(loader, values)


def _unpicklable(loader: Any, values: dict[str, Any]) -> str:
    """Returns the reason why a loader's parts cannot be pickled for its workers; empty if they can, or workers fork.

    With spawn and forkserver everything is pickled, and a notebook's `__main__` cannot be imported again.
    """
    method = start_method_of(loader)
    if method == "fork":
        return ""
    main_travels = hasattr(sys.modules.get("__main__"), "__file__")
    if main_travels and _trains_on_import():
        return (
            f'Workers start by {method} and import this script again: put the training under if __name__ == "__main__".'
        )
    for argument in ("dataset", "collate_fn", "worker_init_fn"):
        value = values.get(argument)
        for part in parts(value, OBJECT_DEPTH, _pickles_attributes) if value is not None else ():
            obstacle = _pickling_obstacle(part, main_travels)
            if obstacle:
                inside = "is" if part is value else "holds"
                return f"Workers start by {method}, which needs pickling, but {argument} {inside} {obstacle}."
    return ""


def _trains_on_import() -> bool:
    """True if the script that runs as `__main__` lacks the guard that it needs when a worker imports it."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:  # `python -m package`: workers do not run such a module again
        return False
    try:
        text = Path(str(getattr(main, "__file__", ""))).read_text(encoding="utf-8", errors="replace")
    except OSError:  # a missing file cannot be imported either; multiprocessing says so itself
        return False
    return _GUARD.search(text) is None


def _pickling_obstacle(part: Any, main_travels: bool) -> str:
    """Returns the reason why an object cannot be pickled for a worker, and what to do; empty if it probably can."""
    name = getattr(part, "__qualname__", "")
    kind = type(part)
    if isinstance(part, FunctionType) and ("<lambda>" in name or "<locals>" in name):
        return "a lambda or a local function: define it in a module"
    if kind.__module__ in _HANDLES or issubclass(kind, _BOUND):
        return f"a {kind.__name__}, which is bound to this process: open it in the worker, at its first use"
    if "<locals>" in kind.__qualname__:
        return f"a {kind.__name__}, a class defined inside a function: move it to a module"
    if not main_travels and _module_of(part) == "__main__":
        return "defined in the notebook: move it to a module"
    return ""


def _pickles_attributes(value: Any) -> bool:
    """True if pickle takes all attributes of an object, as its class does not define how to pickle it."""
    names = ("__getstate__", "__reduce__", "__reduce_ex__")
    return not any(name in vars(cls) for cls in type(value).__mro__[:-1] for name in names)


def _holds_gpu_tensors(dataset: Any) -> bool:
    """True if a dataset has tensors on the GPU."""
    return any(isinstance(part, torch.Tensor) and part.is_cuda for part in parts(dataset, OBJECT_DEPTH))


def _module_of(part: Any) -> str:
    """Returns the name of the module that defines a function, or an object's class."""
    return str(getattr(part, "__module__", "") if isinstance(part, FunctionType) else type(part).__module__)
