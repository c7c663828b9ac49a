"""Stores and restores the process's own state: random number generators and ten switches.

Other changes of the process by a cell are named before a trial (`unrestored.py`).
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from gpu_doctor.trials.matmul_precision import precisions, put_back
from gpu_doctor.trials.side_effects.file_functions import working_folder
from gpu_doctor.trials.snapshot.undo import Undo


class Switch(NamedTuple):
    """A setting of the process, with the functions that read and write it."""

    label: str
    """Name for people."""
    read: Callable[[], Any]
    """Returns a value that can be compared and that later changes do not touch."""
    write: Callable[[Any], object]
    numeric: bool = False
    """The loop computes its numbers with it, so that a trial on another machine is given it too."""

    def undo(self) -> Undo:
        """Returns a function that restores the present value if it has changed."""
        saved = self.read()
        return lambda: None if self.read() == saved else self.write(saved)


def _default_device() -> torch.device | None:
    """The default device that somebody has set; None where nobody has.

    `torch.get_default_device` says "cpu" there, and setting that leaves a mode around every later call of torch.
    """
    set_by_hand = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if set_by_hand is None else set_by_hand.device


def _determinism() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _anomalies() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _cudnn() -> tuple[bool, bool]:
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic


def _set_cudnn(kept: tuple[bool, bool]) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = kept


def _set_environment(kept: dict[str, str]) -> None:
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in kept.items() if os.environ.get(name) != value})


SWITCHES: Final = (
    Switch("torch's recording of gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Switch("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, numeric=True),
    Switch("torch's default device", _default_device, torch.set_default_device),
    Switch(
        "torch's deterministic algorithms",
        _determinism,
        lambda both: torch.use_deterministic_algorithms(both[0], warn_only=both[1]),
        numeric=True,
    ),
    Switch("torch's anomaly detection", _anomalies, lambda both: torch.autograd.set_detect_anomaly(*both)),
    Switch("torch's matmul precision", precisions, put_back, numeric=True),
    Switch("cuDNN's choice of algorithms", _cudnn, _set_cudnn, numeric=True),
    Switch("torch's threads", torch.get_num_threads, torch.set_num_threads),
    Switch("the working folder", working_folder, lambda folder: None if folder is None else os.chdir(folder)),
    Switch("environment variables", lambda: dict(os.environ), _set_environment),
)
"""Settings of the process that a trial puts back, besides random numbers."""
_RANDOM: Final = (
    Switch("numpy's random numbers", np.random.get_state, np.random.set_state),
    Switch("Python's random numbers", random.getstate, random.setstate),
    Switch("torch's random numbers", torch.get_rng_state, torch.set_rng_state),
)
"""Generators of random numbers, restored without a comparison, because their states hold arrays."""


def random_states() -> tuple[Switch, ...]:
    """Returns the generators of the process, those of devices left out."""
    return _RANDOM


def number_formats() -> tuple[Switch, ...]:
    """Returns the switches that change a loop's numbers: a trial on another machine gets them too."""
    return tuple(switch for switch in SWITCHES if switch.numeric)


def process_undos() -> list[tuple[str, Undo]]:
    """Returns an undo for each random number generator and switch, with its name for people."""
    return [
        *((switch.label, switch.undo()) for switch in SWITCHES),
        *((switch.label, functools.partial(switch.write, switch.read())) for switch in _RANDOM),
        ("the GPU's random numbers", _gpu_undo()),
        ("MPS's random numbers", _mps_undo()),
        ("torch's profiler", _profiler_undo()),
    ]


def _profiler_undo() -> Undo:
    """Turns a profiler off that the loop has begun: a trial may leave the loop before the line that ends it."""
    if torch._C._autograd._profiler_enabled():
        return lambda: None
    return lambda: torch._C._autograd._disable_profiler() if torch._C._autograd._profiler_enabled() else None


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
