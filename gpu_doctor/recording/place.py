"""Where a run was measured, in a person's words: `NVIDIA H100 (cuda:0) on node-7`, `CPU, 2 cores (AMD EPYC 7B13)`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.recording.setup import Setup

UNKNOWN: Final = "an unknown machine"
"""Stands for the host of a recording that does not say where it was made, as those of older versions."""


def here() -> str:
    """This machine, by the name that its recordings have."""
    return platform.node()


def is_elsewhere(setup: Setup) -> bool:
    """Whether a run was measured on another machine than this one, or nobody knows where."""
    return bool(setup.host) and setup.host != here()


def device_of(setup: Setup) -> str:
    """The device that a run trained on, and its machine's name where that is not this one."""
    if setup.on_gpu:
        name = formatting.clean(setup.card.name, 80) if setup.card is not None else ""
        device = f"{name or 'GPU'} ({formatting.clean(setup.device, 20)})"
    elif setup.device == "cpu":
        device = f"CPU, {formatting.cores(setup.usable_cores)}"
        device += f" ({formatting.clean(setup.cpu, 80)})" if setup.cpu else ""
    else:
        device = formatting.clean(setup.device, 20)
    return f"{device} on {formatting.clean(setup.host, 80)}" if is_elsewhere(setup) else device


def devices_of(setups: Sequence[Setup]) -> str:
    """The devices of several runs, each once."""
    return " and ".join(dict.fromkeys(device_of(one) for one in setups))
