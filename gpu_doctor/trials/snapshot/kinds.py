"""Sorts objects for a snapshot: stored (and how), left alone, or lost because nobody can copy them."""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import decimal
import enum
import fractions
import functools
import io
import pathlib
import random
import re
import socket
import sys
import threading
import types
import weakref
from collections.abc import Mapping
from multiprocessing.sharedctypes import SynchronizedBase
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor.trials.side_effects.tracker_table import PACKAGES as TRACKING
from gpu_doctor.trials.snapshot.parts import dict_of, is_users

ATOMS: Final = frozenset(
    {int, float, str, bytes, bool, complex, type(None), range, slice, type(...), type(NotImplemented)}
    | {torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, re.Pattern, re.Match}
    | {types.CodeType, property, staticmethod, classmethod}
    | {datetime.datetime, datetime.date, datetime.timedelta, decimal.Decimal, fractions.Fraction}
    | {pathlib.PosixPath, pathlib.WindowsPath}
)
_IPYTHON_NAMES: Final = re.compile(r"(In|Out|get_ipython|exit|quit|_|__|___|_i|_ii|_iii|_[iod]h|_i?\d+|_exit_code)$")
_WALKED: Final = frozenset(("argparse", "collections", "gym", "gymnasium", "sklearn", "types"))
"""Packages that do not know torch and whose instances are walked like the user's own: settings, a game's spaces, what
estimators are made of."""
_APART: Final = frozenset(
    (
        *("torch", "gpu_doctor", "ray", "triton", "IPython", "ipykernel", "ipywidgets", "traitlets"),
        *(name.partition(".")[0] for name in TRACKING),
    )
)
"""Packages whose other instances are machinery, whatever they hold: what shows the loop, runs it, watches it, or gets
its reports, which a trial holds back."""
_MACHINERY: Final = (
    "torch.utils.tensorboard",
    "torch.distributed",
    "torch.multiprocessing",
    "torch.cuda.",
    "torch._",
    "torch.fx",
    "torch.jit",
    "torch.profiler",
    "torch.autograd",
    "torch.futures",
    "torch.package",
    "torch.storage",
    "torch.utils.hooks",
)
_OPEN: Final = ("sqlite3", "h5py", "lmdb", "mmap", "shelve", "dbm", "_dbm", "_gdbm")
"""Packages whose instances hold open files."""
_OUTSIDE: Final = (
    *_OPEN,
    *("queue", "_queue", "multiprocessing.queues", "multiprocessing.managers", "subprocess", "tqdm"),
    *("gym.envs", "gym.wrappers", "gymnasium.envs", "gymnasium.wrappers"),
)
"""Packages whose objects hold state outside of Python's memory: nobody can take that back."""
_LIVES_OUTSIDE: Final = (threading.local, SynchronizedBase, ctypes.Array, ctypes._SimpleCData)
"""State per thread, and numbers that processes share."""
_RNG: Final = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
TRAINED: Final = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, DataLoader)


def internal(name: str, namespace: Mapping[str, Any]) -> bool:
    """True for a name that IPython or the interpreter owns."""
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        return True
    return "_ih" in namespace and _IPYTHON_NAMES.match(name) is not None


def kind_of(cls: type) -> str:
    """Returns how the walk treats instances of `cls`: `skip`, a kind that can be restored, or `unrestorable`."""
    if issubclass(cls, types.ModuleType):
        return "module"
    if cls in ATOMS or issubclass(cls, (enum.Enum, np.generic, random.SystemRandom)):
        return "skip"  # the last has no state: it asks the operating system
    if issubclass(cls, torch.Tensor):
        return "tensor"
    if issubclass(cls, np.ndarray):
        return "array"
    if issubclass(cls, _RNG):
        return "rng"
    if issubclass(cls, type):
        return "class"
    for kind, base in _BY_BASE:
        if issubclass(cls, base):
            return kind
    module = cls.__module__ or ""
    if _is_iterator(cls, module):
        return "iterator"
    if _is_unrestorable(cls, module):
        return "unrestorable"
    if module.startswith("pandas") and cls.__name__ in ("DataFrame", "Series"):
        return "frame"
    walkable = _walkable(cls, module)
    if module in ("builtins", "collections", "array") or walkable:
        for kind, bases in _CONTAINERS:
            if issubclass(cls, bases):
                return kind
    if walkable:
        return "instance"
    return "guest" if cls.__dictoffset__ and module.partition(".")[0] not in _APART else "skip"


_BY_BASE: Final[tuple[tuple[str, type], ...]] = (
    ("function", types.FunctionType),
    ("bound", types.MethodType),
    ("bound", types.MethodWrapperType),
    ("bound", types.BuiltinFunctionType),
    ("bound", functools.partial),
    ("bound", type({}.keys())),
    ("bound", type({}.values())),
    ("bound", type({}.items())),
    ("cached", functools._lru_cache_wrapper),
    ("weak", weakref.ReferenceType),
    ("instance", weakref.WeakKeyDictionary),
    ("instance", weakref.WeakValueDictionary),
    ("instance", weakref.WeakSet),
)
_CONTAINERS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("list", (list,)),
    ("dict", (dict,)),
    ("set", (set,)),
    ("deque", (collections.deque,)),
    ("buffer", (bytearray, array.array)),
    ("tuple", (tuple, frozenset)),
)


def _is_iterator(cls: type, module: str) -> bool:
    """True for an iterator that is used up by iteration and does not show its position.

    Those of the user's own classes, and of libraries whose state belongs to the training, are walked like any instance
    of theirs; where they are at is in their attributes.
    """
    if issubclass(cls, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, _BaseDataLoaderIter)):
        return True
    if _is_unrestorable(cls, module) or module.partition(".")[0] in _APART or issubclass(cls, weakref.ProxyTypes):
        return False
    # By the dicts, past what a metaclass answers; a class of the user's may inherit it from one that is none.
    return any("__next__" in vars(base) and not _walkable(base, base.__module__ or "") for base in cls.__mro__)


def _is_unrestorable(cls: type, module: str) -> bool:
    if issubclass(cls, _LIVES_OUTSIDE):
        return True
    if issubclass(cls, (io.IOBase, socket.socket)):
        return module.partition(".")[0] not in ("ipykernel", "IPython", "_pytest", "gpu_doctor")
    return _is_in(module, _OUTSIDE) and not issubclass(cls, (BaseException, torch.Tensor))


def is_open_kind(cls: type) -> bool:
    """True for what has a file or a database open, or a map of one; sockets and queues have none."""
    return issubclass(cls, io.IOBase) or _is_in(cls.__module__ or "", _OPEN)


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    """True if a module is one of some packages, or within one of them."""
    return module in packages or module.startswith(tuple(f"{known}." for known in packages))


def _walkable(cls: type, module: str) -> bool:
    if issubclass(cls, (torch.nn.Module, torch.optim.Optimizer, DataLoader)):
        return True
    package = module.partition(".")[0]
    if package == "torch":
        return "amp" in module or not module.startswith(_MACHINERY)
    if package in _WALKED or is_users(module):
        return True
    return package not in _APART and (_estimates(cls) or _works_with_torch(package, len(sys.modules)))


def _estimates(cls: type) -> bool:
    """True for an estimator with scikit-learn's methods, from any package: `partial_fit` changes it."""
    return all(callable(getattr(cls, name, None)) for name in ("fit", "get_params", "set_params"))


@functools.lru_cache(maxsize=4096)
def _works_with_torch(package: str, loaded: int) -> bool:
    """True if an imported package is made for torch: one of its modules has torch under its name.

    Args:
        package: first part of its module's name.
        loaded: number of loaded modules, because the answer may change with further modules.
    """
    spaces = [
        dict_of(module)
        for name, module in sys.modules.copy().items()
        if name == package or name.startswith(f"{package}.")
    ]
    return any(space.get("torch") is torch or space.get("nn") is torch.nn for space in spaces)


def made_for_training(cls: type) -> bool:
    """True for classes of tensors, modules, optimizers and loaders, and for those of libraries built on torch."""
    package = (cls.__module__ or "").partition(".")[0]
    return issubclass(cls, TRAINED) or (package not in _APART and _works_with_torch(package, len(sys.modules)))
