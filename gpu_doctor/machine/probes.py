"""The list of probes, which read the machine during a run. Each has a file; they are read in the order of PROBES."""

from __future__ import annotations

from typing import Final

from gpu_doctor.machine import host, torch_memory
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.probe import Probe

PROBES: Final[tuple[tuple[str, Probe], ...]] = (
    ("host", host.opened),
    ("torch_memory", torch_memory.opened),
    ("nvml", probe.opened),
)
"""Name and function of each probe."""
