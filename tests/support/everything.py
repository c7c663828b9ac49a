"""A digest of everything that can be reached from a namespace: contents, identities and order.

Written apart from the snapshot's walk and knowing nothing of it: what is not a tensor, an array, a generator of random
numbers, a dict or an instance is followed by the garbage collector's own list of what an object refers to.
"""

from __future__ import annotations

import collections
import gc
import hashlib
import itertools
import operator
import os
import random
import sqlite3
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data.dataloader import _BaseDataLoaderIter

_PLAIN = (int, float, complex, str, bytes, bool, type(None), range, slice, torch.dtype, torch.device, torch.Size)
_LEAVES = (types.ModuleType, types.CodeType, types.FrameType, types.BuiltinFunctionType, type(gc.collect))
_OUTSIDE = ("threading", "_thread", "queue", "multiprocessing", "subprocess", "weakref", "logging", "gpu_doctor")


class Everything:
    """The digest of one moment, with the path to every object for telling what differs."""

    def __init__(self, space: Mapping[str, Any], identities: bool = True, folder: Path | None = None) -> None:
        """With `identities` left out, two notebooks in which the same was done have the same digest.

        Of a `folder` there are in it the bytes, modes and times of all that it holds.
        """
        self.lines: list[str] = []
        self._identities = identities
        self._ids: dict[int, int] = {}
        self._alive: list[Any] = []
        self._todo: collections.deque[tuple[str, Any]] = collections.deque()
        for name in sorted(space):
            if name not in ("__builtins__", "__warningregistry__"):
                self._say(name, "name")
                self._todo.append((name, space[name]))
        while self._todo:
            self._visit(*self._todo.popleft())
        self._process()
        for path in sorted(folder.rglob("*")) if folder is not None else ():
            found, inside = path.lstat(), path.read_bytes() if path.is_file() else b""
            digest = hashlib.sha256(inside).hexdigest()
            self._say(f"file {path.name}", str(path), found.st_mode, found.st_mtime_ns, digest)

    @property
    def digest(self) -> str:
        """One hash over all of it."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def differences(self, other: Everything) -> list[str]:
        """The first lines in which two moments differ, for the message of a test."""
        ours, theirs = collections.Counter(self.lines), collections.Counter(other.lines)
        return [f"before {line}" for line in (ours - theirs)][:5] + [f"after {line}" for line in (theirs - ours)][:5]

    def _identity(self, number: int) -> int:
        return number if self._identities else 0

    def _say(self, path: str, *what: Any) -> None:
        self.lines.append(f"{path}: {what!r}")

    def _process(self) -> None:
        legacy: Any = np.random.get_state()
        self._say("torch rng", hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest())
        if torch.cuda.is_initialized():
            states = [hashlib.sha256(one.numpy().tobytes()).hexdigest() for one in torch.cuda.get_rng_state_all()]
            self._say("gpu", states, torch.backends.cudnn.allow_tf32, torch.is_autocast_enabled("cuda"))
        self._say("numpy rng", hashlib.sha256(legacy[1].tobytes()).hexdigest(), legacy[2:])
        self._say("python rng", hash(random.getstate()))
        self._say("switches", torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())
        self._say("precision", torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)
        if self._identities:  # torch's own imports set variables the first time
            self._say("environment", os.getcwd(), sorted(os.environ.items()), sys.path)  # noqa: PTH109
        self._say("anomaly", torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled())
        self._say("autocast", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))

    def _visit(self, path: str, value: Any) -> None:
        if isinstance(value, _PLAIN):
            return self._say(path, type(value).__name__, value)
        self._say(path, type(value).__name__, self._identity(id(value)))
        if isinstance(value, types.ModuleType) and _lies(value.__name__, "/tmp/"):
            value = vars(value)
            for name in [name for name in value if not name.startswith("__")]:
                self._todo.append((f"{path}.{name}", value[name]))
            self._say(path, [name for name in value if not name.startswith("__")])
            return None
        if id(value) in self._ids or isinstance(value, _LEAVES):
            return None
        self._ids[id(value)] = 1
        self._alive.append(value)
        module = str(type(value).__module__).partition(".")[0]
        if isinstance(value, _BaseDataLoaderIter):
            workers = [one.is_alive() for one in getattr(value, "_workers", ())]
            self._say(path, value._num_yielded, workers)
        elif module in ("builtins", "itertools") and hasattr(type(value), "__next__"):
            self._say(path, operator.length_hint(value, -1), repr(value) if type(value) is itertools.count else "")
        if module in _OUTSIDE or isinstance(value, (_BaseDataLoaderIter, torch.UntypedStorage)):
            return None
        return self._inside(path, value)

    def _inside(self, path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, np.ndarray):
            self._array(path, value)
        elif isinstance(value, torch.Generator):
            self._say(path, hashlib.sha256(value.get_state().numpy().tobytes()).hexdigest())
        elif isinstance(value, random.Random):
            self._say(path, hash(value.getstate()))
        elif isinstance(value, (np.random.RandomState, np.random.Generator)):
            bits = value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator
            self._say(path, str(bits.state), str(bits.state.get("state", {}).get("key", "")).encode().hex())
        elif isinstance(value, bytearray):
            self._say(path, bytes(value))
        elif isinstance(value, type):
            if self._users(value.__module__):
                for name, part in list(vars(value).items()):
                    if not name.startswith(("__", "_abc_")) and not isinstance(part, types.GetSetDescriptorType):
                        self._todo.append((f"{path}.{name}", part))
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif isinstance(value, sqlite3.Connection):
            self._say(path, "\n".join(value.iterdump()), value.in_transaction)
        elif "pandas" in str(type(value).__module__) and hasattr(value, "to_numpy"):
            self._say(path, value.to_json(), str(value.index), str(getattr(value, "dtypes", "")))
        else:
            self._parts(path, value)

    def _parts(self, path: str, value: Any) -> None:
        if isinstance(value, dict):
            counted = not self._identities and "hooks" in path  # torch numbers all hooks of the process
            for number, (key, part) in enumerate(value.items()):
                name = str(key)[:40] if isinstance(key, (str, int)) and not counted else number
                self._todo.append((f"{path} key {number}", number if counted else key))
                self._todo.append((f"{path}[{name}]", part))
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            if isinstance(value, collections.deque):
                self._say(path, value.maxlen)
            # A set has no order: one that was filled anew after a change may go through its items in another one.
            loose = isinstance(value, (set, frozenset))
            for number, part in enumerate(sorted(value, key=repr) if loose else value):
                self._todo.append((f"{path}[{number}]", part))
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            for name, part in own.items():
                if not (isinstance(value, torch.utils.data.DataLoader) and name == "_iterator"):
                    self._todo.append((f"{path}.{name}", part))
                else:
                    self._say(f"{path}.{name}", self._identity(id(part)))
        elif not isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            for number, part in enumerate(gc.get_referents(value)):
                self._todo.append((f"{path}~{number}", part))
        for cls in type(value).__mro__:
            if self._users(cls.__module__):
                for name in getattr(cls, "__slots__", ()):
                    self._todo.append((f"{path}.{name}", getattr(value, name, "<empty>")))

    def _tensor(self, path: str, value: torch.Tensor) -> None:
        if isinstance(value, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            return self._say(path, value.dtype, value.requires_grad)
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            self._say(path, value.dtype, tuple(value.shape), value.layout, value.requires_grad, value.is_leaf)
            if not value.is_inference():
                self._say(path, self._identity(value._version))
            if value.layout is torch.strided:
                raw = value.detach().contiguous().flatten()
                place = self._identity(value.untyped_storage()._cdata)
                self._say(path, value.stride(), value.storage_offset(), place)
                data = bytes(raw.view(torch.uint8).tolist()) if raw.numel() else b""  # .numpy() would leave a mark
            else:
                dense = value.detach().coalesce()
                data = repr((dense.indices().tolist(), dense.values().tolist())).encode()
            self._say(path, hashlib.sha256(data).hexdigest())
            self._todo.append((f"{path}.grad", value.grad if value.is_leaf else None))
            if value.is_leaf:
                self._todo.append((f"{path} hooks", value._backward_hooks))
            for name, part in vars(value).items():
                self._todo.append((f"{path}.{name}", part))
        return None

    def _array(self, path: str, value: Any) -> None:
        self._say(path, value.shape, str(value.dtype), value.strides, value.flags.writeable)
        if value.dtype == object:
            for number, part in enumerate(value.ravel()):
                self._todo.append((f"{path}[{number}]", part))
        else:
            self._say(path, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest())

    def _function(self, path: str, value: types.FunctionType) -> None:
        if not self._users(value.__module__):
            return
        for name, part in (("defaults", value.__defaults__), ("named", value.__kwdefaults__)):
            self._todo.append((f"{path} {name}", part))
        for name, part in vars(value).items():
            self._todo.append((f"{path}.{name}", part))
        for number, cell in enumerate(value.__closure__ or ()):
            try:
                self._todo.append((f"{path} cell {number}", cell.cell_contents))
            except ValueError:
                self._say(f"{path} cell {number}", "empty")

    @staticmethod
    def _users(module: str | None) -> bool:
        """Code of the notebook or of a test, not of an installed package or the standard library."""
        return module is None or module == "__main__" or _lies(module, "/tests/", "/tmp/")


def _lies(module: str, *places: str) -> bool:
    """Whether a module's file lies in one of the folders, and in no package there (a checkout may lie in /tmp)."""
    file = str(getattr(sys.modules.get(module), "__file__", ""))
    packaged = "-packages" in file or "/lib/python" in file or module.partition(".")[0] == "gpu_doctor"
    return not packaged and any(place in file for place in places)
