"""The shelf of probes: readers of the machine. One file each, listed in PROBES in the order in which they are read."""

from __future__ import annotations

from typing import Final

from gpu_doctor.probes import host, nvml, pace, torch_memory
from gpu_doctor.probes.probe import Probe

PROBES: Final[tuple[tuple[str, Probe], ...]] = (
    ("host", host.opened),
    ("torch_memory", torch_memory.opened),
    ("nvml", nvml.opened),
    ("pace", pace.opened),
)
"""Name -> context manager over a ProbeScope that yields a reader, or None where there is nothing to read."""
