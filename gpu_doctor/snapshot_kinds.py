"""What kind of thing an object is to a snapshot: kept (and how), left alone, or lost because nobody can copy it."""

from __future__ import annotations

import array
import collections
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
import sysconfig
import types
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

ATOMS: Final = frozenset(
    {int, float, str, bytes, bool, complex, type(None), range, slice, type(...), type(NotImplemented)}
    | {torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, re.Pattern, re.Match}
    | {types.BuiltinFunctionType, types.CodeType, property, staticmethod, classmethod}
    | {datetime.datetime, datetime.date, datetime.timedelta, decimal.Decimal, fractions.Fraction}
    | {pathlib.PosixPath, pathlib.WindowsPath}
)
_IPYTHON_NAMES: Final = re.compile(r"(In|Out|get_ipython|exit|quit|_|__|___|_i|_ii|_iii|_[iod]h|_i?\d+|_exit_code)$")
_LIBRARIES: Final = frozenset(
    (
        "torch",
        "torchvision",
        "torchaudio",
        "torchmetrics",
        "torch_geometric",
        "lightning",
        "pytorch_lightning",
        "lightning_fabric",
        "transformers",
        "accelerate",
        "timm",
        "peft",
        "diffusers",
        "ignite",
        "ema_pytorch",
        "torch_ema",
        "monai",
        "kornia",
        "trl",
        "gpytorch",
        "segmentation_models_pytorch",
        "collections",
        "argparse",
        "types",
    )
)
"""Packages whose instances are walked like the user's own: their state belongs to the training."""
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
_OUTSIDE: Final = (
    "sqlite3",
    "h5py",
    "lmdb",
    "queue",
    "_queue",
    "multiprocessing.queues",
    "subprocess",
    "tqdm",
    "torch.utils.tensorboard",
    "tensorboardX",
    "wandb",
    "mlflow",
    "comet_ml",
    "neptune",
    "clearml",
    "aim",
    "swanlab",
    "trackio",
)
"""Packages whose objects hold state outside of Python's memory, or report to somewhere: nobody can take that back."""
_RNG: Final = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_PLACES: Final = tuple({sysconfig.get_paths()[place] for place in ("stdlib", "platstdlib", "purelib", "platlib")})


def internal(name: str, namespace: Mapping[str, Any]) -> bool:
    """True for a name that IPython or the interpreter owns."""
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        return True
    return "_ih" in namespace and _IPYTHON_NAMES.match(name) is not None


@functools.lru_cache(maxsize=4096)
def is_users(module: str) -> bool:
    """True if a module of this name is the user's code: the notebook, or a file outside the installed packages."""
    if module == "__main__":
        return True
    if module.partition(".")[0] in ("gpu_doctor", "builtins"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or "site-packages" in file or "dist-packages" in file:
        return False
    return not file.startswith(_PLACES)


def kind_of(cls: type) -> str:
    """How the walk treats instances of `cls`: `skip`, `lost` (state that cannot be copied), or a kind that is kept."""
    if issubclass(cls, types.ModuleType):
        return "module"
    if cls in ATOMS or issubclass(cls, (enum.Enum, np.generic)):
        return "skip"
    if issubclass(cls, torch.Tensor):
        return "tensor"
    if issubclass(cls, np.ndarray):
        return "array"
    if issubclass(cls, _RNG):
        return "rng"
    if issubclass(cls, type):
        return "class"
    for kind, base in (("function", types.FunctionType), ("method", types.MethodType), ("partial", functools.partial)):
        if issubclass(cls, base):
            return kind
    module = cls.__module__ or ""
    if _is_lost(cls, module):
        return "lost"
    if module.startswith("pandas") and cls.__name__ in ("DataFrame", "Series"):
        return "frame"
    walkable = _walkable(cls, module)
    if module in ("builtins", "collections", "array") or walkable:
        for kind, bases in _CONTAINERS:
            if issubclass(cls, bases):
                return kind
    return "instance" if walkable else "skip"


_CONTAINERS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("list", (list,)),
    ("dict", (dict,)),
    ("set", (set,)),
    ("deque", (collections.deque,)),
    ("buffer", (bytearray, array.array)),
    ("tuple", (tuple, frozenset)),
)


def _is_lost(cls: type, module: str) -> bool:
    if issubclass(cls, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, _BaseDataLoaderIter)):
        return True
    if issubclass(cls, (io.IOBase, socket.socket)):
        return module.partition(".")[0] not in ("ipykernel", "IPython", "_pytest", "gpu_doctor")
    if module in _OUTSIDE or module.startswith(tuple(f"{one}." for one in _OUTSIDE)):
        return not issubclass(cls, (BaseException, torch.Tensor))
    return module in ("builtins", "itertools") and hasattr(cls, "__next__")


def _walkable(cls: type, module: str) -> bool:
    if issubclass(cls, (torch.nn.Module, torch.optim.Optimizer, DataLoader)):
        return True
    if module.partition(".")[0] in _LIBRARIES:
        return "amp" in module or not module.startswith(_MACHINERY)
    return is_users(module)


def dict_of(value: Any) -> dict[str, Any]:
    """An instance's own `__dict__`, past any override; an empty dict where it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def slots_of(value: Any) -> dict[Any, Any]:
    """Member descriptor of each filled slot of an instance -> what is in it."""
    found: dict[Any, Any] = {}
    for member in slot_members(type(value)):
        try:
            found[member] = member.__get__(value)
        except AttributeError:
            continue
    return found


def slot_members(cls: type) -> tuple[Any, ...]:
    """The slots of a class and its bases."""
    return tuple(
        member
        for base in cls.__mro__
        if "__slots__" in vars(base) and is_users(base.__module__)
        for member in vars(base).values()
        if isinstance(member, types.MemberDescriptorType)
    )


def class_state(cls: type) -> dict[str, Any]:
    """The plain attributes of a class, such as a counter or a registry: no methods, descriptors or dunders."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not (name.startswith("__") and name.endswith("__")) and not callable(value) and not hasattr(value, "__get__")
    }


def contents_of(cell: types.CellType) -> tuple[Any, ...]:
    """What a closure's cell holds, as a tuple of one; empty for an empty cell."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
