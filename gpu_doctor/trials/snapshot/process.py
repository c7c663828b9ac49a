"""Puts back the state of the process: random numbers, torch's switches, the environment.

What it reports through (logging, warnings) is in `reporting.py`. Functions that a cell leaves for the end of the
process (`atexit`) stay: Python does not tell which there are.
"""

from __future__ import annotations

import builtins
import functools
import gc
import multiprocessing
import os
import random
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from gpu_doctor.trials.matmul_precision import precisions, put_back
from gpu_doctor.trials.snapshot.reporting import reporting_undos
from gpu_doctor.trials.snapshot.undo import Undo

_ATTENTIONS: Final = ("flash", "mem_efficient", "math", "cudnn")
"""Kernels of torch's scaled_dot_product_attention, each with a switch."""


def process_undos(reporting: bool = True) -> list[tuple[str, Undo]]:
    """The random number generators and switches that belong to the process and not to any name.

    Args:
        reporting: what the process reports through as well, such as its loggers.
    """
    numpy_rng, python_rng, cpu = np.random.get_state(), random.getstate(), torch.get_rng_state()
    dtype, precision = torch.get_default_dtype(), precisions()
    undos: list[tuple[str, Undo]] = [
        ("numpy's random numbers", lambda: np.random.set_state(numpy_rng)),
        ("Python's random numbers", lambda: random.setstate(python_rng)),
        ("torch's random numbers", lambda: torch.set_rng_state(cpu)),
        ("torch's default dtype", lambda: torch.set_default_dtype(dtype)),
        ("torch's matmul precision", lambda: put_back(precision)),
        ("torch's switches", _switches_undo()),
        ("environment variables and working directory", _surroundings_undo()),
        ("Python's built-in functions", _builtins_undo()),
        ("the multiprocessing start method", _starting_undo()),
        *(reporting_undos() if reporting else ()),
    ]
    undos.append(("the GPU's random numbers", _gpu_undo()))
    cudnn: Any = torch.backends.cudnn
    for name in ("benchmark", "deterministic", "enabled"):
        undos.append((f"cuDNN's {name}", functools.partial(setattr, cudnn, name, getattr(cudnn, name))))
    return undos


def _gpu_undo() -> Undo:
    """The generators of CUDA devices; of a CUDA that is yet to be begun, the seed with which they would begin.

    That seed is the one of torch.manual_seed; one that was given by torch.cuda.manual_seed before CUDA began is not
    known. GPU: not yet run on one.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states = torch.cuda.get_rng_state_all()
        return lambda: torch.cuda.set_rng_state_all(states)
    seed = torch.initial_seed()

    def undo() -> None:
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)

    return undo


def _switches_undo() -> Undo:
    """Deterministic algorithms, anomaly mode, threads, the default device and attention, as seed helpers set them."""
    sure, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    anomaly, checks_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    threads, device = torch.get_num_threads(), _default_device()
    attentions = [(name, _attends(name)) for name in _ATTENTIONS if hasattr(torch.backends.cuda, f"enable_{name}_sdp")]

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
        for name, on in attentions:
            if _attends(name) != on:
                getattr(torch.backends.cuda, f"enable_{name}_sdp")(on)

    return undo


def _attends(kernel: str) -> bool:
    return bool(getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")())


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


def _starting_undo() -> Undo:
    """How processes are started and share tensors, how often garbage is collected, how deep calls may go.

    A start method that was set cannot be set again without force: the cell's own next run would fail at it.
    """
    shares: Any = torch.multiprocessing
    method, sharing = multiprocessing.get_start_method(allow_none=True), shares.get_sharing_strategy()
    thresholds, depth = gc.get_threshold(), sys.getrecursionlimit()

    def undo() -> None:
        if multiprocessing.get_start_method(allow_none=True) != method:
            multiprocessing.set_start_method(method, force=True)
        if shares.get_sharing_strategy() != sharing:
            shares.set_sharing_strategy(sharing)
        if gc.get_threshold() != thresholds:
            gc.set_threshold(*thresholds)
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)

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
