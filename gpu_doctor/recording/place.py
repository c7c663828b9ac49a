"""Names the device and the machine of a run: `NVIDIA H100 (cuda:0) on node-7`, `CPU, 2 cores (AMD EPYC 7B13)`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.recording.setup import Setup

UNKNOWN: Final = "an unknown machine"
"""Name of the host in recordings without one, such as those of older versions."""


def here() -> str:
    """Returns this machine's name, as its recordings have it."""
    return platform.node()


def is_elsewhere(setup: Setup) -> bool:
    """Returns True if a run was measured on another machine or on an unknown one."""
    return bool(setup.host) and setup.host != here()


def device_of(setup: Setup) -> str:
    """Returns the name of the device that a run trained on, with the name of its machine if that is not this one."""
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
    """Returns the names of the devices of several runs, each once."""
    return " and ".join(dict.fromkeys(device_of(setup) for setup in setups))
