"""Reads the machine: its GPUs through NVML, its cores and memory, torch's allocator; and checks it before a run.

Nothing here changes the machine, and nothing knows about training: no steps, no loops, no diagnosis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpu_doctor.machine.checkup.check import check as check
    from gpu_doctor.machine.cuda import cuda_available as cuda_available
    from gpu_doctor.machine.cuda import cuda_devices as cuda_devices
    from gpu_doctor.machine.host import cpu_name as cpu_name
    from gpu_doctor.machine.host import memory as memory
    from gpu_doctor.machine.host import os_cores as os_cores
    from gpu_doctor.machine.host import physical_cores as physical_cores
    from gpu_doctor.machine.host import shm_bytes as shm_bytes
    from gpu_doctor.machine.host import start_method as start_method
    from gpu_doctor.machine.host import usable_cores as usable_cores
    from gpu_doctor.machine.nvml.probe import driver_version as driver_version
    from gpu_doctor.machine.probe import Probe as Probe
    from gpu_doctor.machine.probe import ProbeScope as ProbeScope
    from gpu_doctor.machine.probe import Reader as Reader
    from gpu_doctor.machine.probes import PROBES as PROBES

# Module of each exported name, imported when the name is first used, so that no unused module is loaded.
_FACE: Final = {
    "PROBES": "probes",
    "Probe": "probe",
    "ProbeScope": "probe",
    "Reader": "probe",
    "check": "checkup.check",
    "cpu_name": "host",
    "cuda_available": "cuda",
    "cuda_devices": "cuda",
    "driver_version": "nvml.probe",
    "memory": "host",
    "os_cores": "host",
    "physical_cores": "host",
    "shm_bytes": "host",
    "start_method": "host",
    "usable_cores": "host",
}
__all__ = ["cgroup", "torch_memory", *_FACE]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
