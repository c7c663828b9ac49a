"""Puts back the state of the process: random numbers, torch's switches, the environment.

What it reports through (logging, warnings) is in `reporting.py`. Functions that a cell leaves for the end of the
process (`atexit`) stay: Python does not tell which there are.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import multiprocessing
import operator
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch

from gpu_doctor.trials.matmul_precision import precisions, put_back
from gpu_doctor.trials.side_effects.file_functions import working_folder
from gpu_doctor.trials.snapshot.reporting import reporting_undos
from gpu_doctor.trials.snapshot.switches import Switch, attribute
from gpu_doctor.trials.snapshot.undo import Undo

_ATTENTIONS: Final = ("flash", "mem_efficient", "math", "cudnn")
"""Kernels of torch's scaled_dot_product_attention, each with a switch."""
_HOOKED: Final = tuple(importlib.import_module(name) for name in ("torch.nn.modules.module", "torch.optim.optimizer"))
_CUBLAS: Final[Any] = torch.backends.cuda.matmul
_REDUCED: Final = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Whether products of half precision may be added up in it."""


def random_states() -> tuple[Switch, ...]:
    """The generators of the process; they are written unasked, as their states cannot be compared."""
    return (
        Switch("numpy's random numbers", np.random.get_state, np.random.set_state),
        Switch("Python's random numbers", random.getstate, random.setstate),
        Switch("torch's random numbers", torch.get_rng_state, torch.set_rng_state),
    )


def number_formats() -> tuple[Switch, ...]:
    """What a loop computes its numbers with: it is the same on whatever machine a trial runs."""
    cudnn = torch.backends.cudnn
    return (
        Switch("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Switch("torch's matmul precision", precisions, put_back),
        *(attribute(f"cuDNN's {name}", cudnn, name) for name in ("benchmark", "deterministic", "enabled")),
        attribute("oneDNN's enabled", torch.backends.mkldnn, "enabled"),
        *(Switch(f"cuBLAS's {name}", *_products(name)) for name in _REDUCED if hasattr(_CUBLAS, name)),
        Switch("torch's flushing of denormal numbers", _flushes, torch.set_flush_denormal),
    )


def process_undos(reporting: bool = True) -> list[tuple[str, Undo]]:
    """The random number generators and switches that belong to the process and not to any name.

    Args:
        reporting: what the process reports through as well, such as its loggers.
    """
    return [
        *((one.label, functools.partial(one.write, one.read())) for one in random_states()),
        *((one.label, one.undo()) for one in (*number_formats(), *_switches_of_torch(), *_switches_of_python())),
        ("environment variables", _environment_undo()),
        ("Python's built-in functions", _builtins_undo()),
        *(reporting_undos() if reporting else ()),
        ("the GPU's random numbers", _gpu_undo()),
        ("MPS's random numbers", _mps_undo()),
    ]


def _gpu_undo() -> Undo:
    """The generators of CUDA devices; of a CUDA that is yet to be begun, the seed with which they would begin.

    That seed is the one of torch.manual_seed; one that was given by torch.cuda.manual_seed before CUDA began is not
    known. GPU: not yet run on one.
    """
    if torch.cuda.is_initialized():
        states = torch.cuda.get_rng_state_all()
        return lambda: torch.cuda.set_rng_state_all(states)
    seed = torch.initial_seed()

    def undo() -> None:
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)

    return undo


def _mps_undo() -> Undo:
    """The generator of Apple's GPU. MPS: not yet run on one."""
    if not torch.backends.mps.is_available():
        return lambda: None
    state = torch.mps.get_rng_state()
    return lambda: torch.mps.set_rng_state(state)


def _switches_of_torch() -> Iterator[Switch]:
    """What seed helpers and cells set in torch for the whole process, besides how numbers are computed."""
    yield Switch(
        "torch's deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda both: torch.use_deterministic_algorithms(both[0], warn_only=both[1]),
    )
    yield Switch(
        "torch's anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda both: torch.autograd.set_detect_anomaly(*both),
    )
    yield Switch("torch's threads", torch.get_num_threads, torch.set_num_threads)
    yield Switch("torch's default device", _default_device, torch.set_default_device)
    yield attribute("torch's filling of new memory", torch.utils.deterministic, "fill_uninitialized_memory")
    encoder: Any = torch.backends.mha
    yield Switch("torch's fast path of encoders", encoder.get_fastpath_enabled, encoder.set_fastpath_enabled)
    yield Switch("hooks of all modules and optimizers", _hooks_of_all, _hook_all)
    attends: Any = torch.backends.cuda
    for name in _ATTENTIONS:
        if hasattr(attends, f"enable_{name}_sdp"):
            read, write = getattr(attends, f"{name}_sdp_enabled"), getattr(attends, f"enable_{name}_sdp")
            yield Switch(f"torch's {name} attention", read, write)


def _products(name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """How one of these is read and written: in newer torch some are a pair with whether a sum may be split."""
    parts = (name, f"{name}_split_k") if hasattr(_CUBLAS, f"{name}_split_k") else (name,)
    read = operator.attrgetter(*parts)
    return lambda: read(_CUBLAS), lambda value: setattr(_CUBLAS, name, value)


def _flushes() -> bool:
    """Whether this thread takes numbers too small for a full mantissa for 0; torch does not tell, so one is tried."""
    return bool(np.float32(1e-39) * np.float32(1.0) == 0.0)


def _hooks_of_all() -> dict[tuple[Any, str], Any]:
    """Module and name of a registry -> what is registered there for every module, or every optimizer, of torch."""
    found = {}
    for owner in _HOOKED:
        for name, one in vars(owner).items():
            if name.startswith("_global_"):
                found[owner, name] = dict(one) if isinstance(one, dict) else one
    return found


def _hook_all(kept: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), hooks in kept.items():
        if isinstance(hooks, dict):
            registry = getattr(owner, name)
            registry.clear()
            registry.update(hooks)
        else:
            setattr(owner, name, hooks)


def _default_device() -> torch.device | None:
    """The default device that somebody has set; None where nobody has.

    `torch.get_default_device` says "cpu" there, and setting that leaves a mode around every later call of torch.
    """
    set_by_hand = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if set_by_hand is None else set_by_hand.device


def _switches_of_python() -> Iterator[Switch]:
    """Where the process is, how it starts others and shares tensors, when garbage is collected, how deep calls may go.

    A start method that was set cannot be set again without force: the cell's own next run would fail at it.
    """
    shares: Any = torch.multiprocessing
    yield Switch("the working directory", working_folder, lambda folder: None if folder is None else os.chdir(folder))
    yield Switch("the command line", lambda: (sys.argv, list(sys.argv)), _command)
    yield Switch("where modules are looked for", lambda: list(sys.path), lambda places: _fill(sys.path, places))
    yield Switch(
        "the multiprocessing start method",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda method: multiprocessing.set_start_method(method, force=True),
    )
    yield Switch("how processes share tensors", shares.get_sharing_strategy, shares.set_sharing_strategy)
    yield Switch("the garbage collector's pace", gc.get_threshold, lambda pace: gc.set_threshold(*pace))
    yield Switch("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)


def _command(kept: tuple[list[str], list[str]]) -> None:
    sys.argv, words = kept
    sys.argv[:] = words


def _fill(row: list[str], parts: list[str]) -> None:
    row[:] = parts


def _environment_undo() -> Undo:
    variables = dict(os.environ)

    def undo() -> None:
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        for name, value in variables.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return undo


def _builtins_undo() -> Undo:
    """Built-in names, such as the `print` that scripts for several GPUs silence, or `open`; new ones stay."""
    saved = {name: value for name, value in vars(builtins).items() if not name.startswith("_")}

    def undo() -> None:
        for name, value in saved.items():
            if getattr(builtins, name, undo) is not value:
                setattr(builtins, name, value)

    return undo
