"""The shelf of probes: readers of the machine. One file each, listed in PROBES in the order in which they are read."""

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
"""Name -> context manager over a ProbeScope that yields a reader, or None where there is nothing to read."""
