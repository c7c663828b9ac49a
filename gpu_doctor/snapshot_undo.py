"""How each kind of container, instance and random number generator is put back: a function that writes what was."""

from __future__ import annotations

import builtins
import collections
import copy
import functools
import os
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

from gpu_doctor.snapshot_kinds import class_state, contents_of, dict_of, internal, slot_members, slots_of

Undo: TypeAlias = "Callable[[], object]"


def _same(now: Iterable[Any], saved: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(now, saved, strict=True))


def list_undo(value: list[Any]) -> tuple[Undo, int]:
    saved = list(list.__iter__(value))

    def undo() -> None:
        if list.__len__(value) != len(saved) or not _same(list.__iter__(value), saved):
            list.__setitem__(value, slice(None), saved)

    return undo, sys.getsizeof(saved)


def _write_dict(value: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Contents and order of a dict, past overrides of its class; untouched where nothing changed."""
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


def dict_undo(value: dict[Any, Any]) -> tuple[Undo, int]:
    # OrderedDict keeps an order of its own (move_to_end), which dict.items() does not show.
    order: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else None
    saved = dict((order or dict).items(value))

    def undo() -> None:
        _write_dict(value, saved)
        if order and not _same(order.__iter__(value), saved):
            for key in saved:
                order.move_to_end(value, key)

    return undo, sys.getsizeof(saved)


def set_undo(value: set[Any]) -> tuple[Undo, int]:
    saved = list(set.__iter__(value))

    def undo() -> None:
        # A set that is filled anew may go through its items in another order: only where something changed.
        if set.__len__(value) != len(saved) or not _same(set.__iter__(value), saved):
            set.clear(value)
            set.update(value, saved)

    return undo, sys.getsizeof(saved)


def deque_undo(value: collections.deque[Any]) -> tuple[Undo, int]:
    saved = list(collections.deque.__iter__(value))

    def undo() -> None:
        if collections.deque.__len__(value) != len(saved) or not _same(collections.deque.__iter__(value), saved):
            collections.deque.clear(value)
            collections.deque.extend(value, saved)

    return undo, sys.getsizeof(saved)


def buffer_undo(value: Any) -> tuple[Undo, int]:
    saved = value[:]

    def undo() -> None:
        value[:] = saved

    return undo, sys.getsizeof(saved)


def frame_undo(value: Any) -> tuple[Undo, int]:
    """A table or column of pandas, whose own way of an in-place change takes the contents of another one."""
    saved = value.copy(deep=True)
    size = value.memory_usage()

    def undo() -> None:
        same = value.shape == saved.shape and value.equals(saved) and value.axes[0].equals(saved.axes[0])
        if not same or not value.axes[-1].equals(saved.axes[-1]):
            value._update_inplace(saved.copy(deep=True))

    return undo, size if isinstance(size, int) else int(size.sum())


def module_undo(space: dict[str, Any]) -> Undo:
    """The names of a module of the user's; what the import system put there stays."""
    saved = dict(space)

    def undo() -> None:
        for name in [name for name, value in space.items() if name not in saved and not isinstance(value, ModuleType)]:
            del space[name]
        for name, value in saved.items():
            if name not in space or space[name] is not value:
                space[name] = value

    return undo


def instance_undo(value: Any) -> Undo:
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


def class_undo(cls: type) -> Undo:
    saved = class_state(cls)

    def undo() -> None:
        now = class_state(cls)
        for name in now.keys() - saved.keys():
            delattr(cls, name)
        for name, value in saved.items():
            if now.get(name, undo) is not value:
                setattr(cls, name, value)

    return undo


def cell_undo(cell: Any) -> Undo:
    saved = contents_of(cell)

    def undo() -> None:
        if saved:
            cell.cell_contents = saved[0]
        elif contents_of(cell):
            del cell.cell_contents

    return undo


def namespace_undo(namespace: dict[str, Any]) -> Undo:
    saved = {name: value for name, value in namespace.items() if not internal(name, namespace)}

    def undo() -> None:
        for name in [name for name in namespace if name not in saved and not internal(name, namespace)]:
            del namespace[name]
        for name, value in saved.items():
            if name not in namespace or namespace[name] is not value:
                namespace[name] = value

    return undo


def rng_undo(rng: Any) -> Undo:
    """What puts a generator of torch, numpy or Python back to its state of now."""
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


def process_undos() -> list[tuple[str, Undo]]:
    """The random number generators and switches that belong to the process and not to any name."""
    numpy_rng, python_rng, cpu = np.random.get_state(), random.getstate(), torch.get_rng_state()
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    undos: list[tuple[str, Undo]] = [
        ("numpy's random numbers", lambda: np.random.set_state(numpy_rng)),
        ("Python's random numbers", lambda: random.setstate(python_rng)),
        ("torch's random numbers", lambda: torch.set_rng_state(cpu)),
        ("torch's default dtype", lambda: torch.set_default_dtype(dtype)),
        ("torch's matmul precision", lambda: torch.set_float32_matmul_precision(precision)),
        ("torch's switches", _switches_undo()),
        ("the environment and the folder", _surroundings_undo()),
        ("Python's built-in functions", _builtins_undo()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state_all()
        undos.append(("the GPU's random numbers", lambda: torch.cuda.set_rng_state_all(cuda)))
    cudnn: Any = torch.backends.cudnn
    for name in ("benchmark", "deterministic", "allow_tf32"):
        undos.append((f"cuDNN's {name}", functools.partial(setattr, cudnn, name, getattr(cudnn, name))))
    return undos


def _switches_undo() -> Undo:
    """Deterministic algorithms, anomaly mode, threads and the default device, which seed and debug helpers set."""
    sure, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    anomaly, checks_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    threads, device = torch.get_num_threads(), _default_device()

    def undo() -> None:
        if (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()) != (
            sure,
            warns,
        ):
            torch.use_deterministic_algorithms(sure, warn_only=warns)
        torch.autograd.set_detect_anomaly(anomaly, checks_nan)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if _default_device() != device:
            torch.set_default_device(device)

    return undo


def _default_device() -> Any:
    """None before torch 2.3, which has no name for it."""
    return torch.get_default_device() if hasattr(torch, "get_default_device") else None


def _surroundings_undo() -> Undo:
    """Environment variables, the working folder and where modules are looked for."""
    variables, folder, places = dict(os.environ), _folder(), list(sys.path)

    def undo() -> None:
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        for name, value in variables.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if folder is not None and _folder() != folder:
            os.chdir(folder)
        if sys.path != places:
            sys.path[:] = places

    return undo


def _builtins_undo() -> Undo:
    """Built-in names, such as the `print` that scripts for several GPUs silence, or `open`; new ones stay."""
    saved = {name: value for name, value in vars(builtins).items() if not name.startswith("_")}

    def undo() -> None:
        for name, value in saved.items():
            if getattr(builtins, name, undo) is not value:
                setattr(builtins, name, value)

    return undo


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None
