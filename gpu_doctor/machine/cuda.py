"""Finds the CUDA devices that torch can use, without starting CUDA before the user's code does.

`torch.cuda.is_available` starts the driver, and so does `torch.cuda.device_count` if NVML does not answer. The driver
reads CUDA_VISIBLE_DEVICES only once, and no process forked afterwards can use CUDA, as those of
`accelerate.notebook_launcher` need to. So until torch has initialised CUDA, the answer comes from NVML and from the
presence of the driver, as far as possible.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from dataclasses import replace
from typing import Any

from gpu_doctor.machine.cards import served_cuda, too_old, version
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.nvml.visible import ask, device_setup, look
from gpu_doctor.machine.torch_memory import cuda_in_use, torch_if_loaded
from gpu_doctor.recording import DeviceSetup


def cuda_available() -> bool | None:
    """Returns True if this process uses CUDA through torch, False if it cannot, None if that is not known yet.

    It cannot if torch is not loaded or was built without CUDA, or if there is no NVIDIA driver.
    """
    torch = torch_if_loaded()
    if torch is None or not torch.backends.cuda.is_built():
        return False
    if cuda_in_use():
        return True
    return None if torch.version.hip is not None or _driver_loads() else False


def cuda_devices() -> tuple[DeviceSetup, ...]:
    """Returns the devices that torch sees if it uses CUDA, else those that it will see, according to NVML."""
    available, torch = cuda_available(), sys.modules.get("torch")
    if available is False or torch is None:
        return ()
    if available is None:
        return _by_nvml(torch)
    every = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(
        DeviceSetup(
            index=index,
            name=device.name,
            uuid=str(getattr(device, "uuid", "")),  # torch before 2.5 has none
            memory_bytes=int(device.total_memory),
            capability=(int(device.major), int(device.minor)),
        )
        for index, device in enumerate(every)
    )


def _by_nvml(torch: Any) -> tuple[DeviceSetup, ...]:
    """Returns the devices that NVML lists and CUDA_VISIBLE_DEVICES allows; none if the driver is too old for torch."""
    with probe.initialised() as access:
        vendor = access.vendor
        if vendor is None:
            return ()
        serves = ask(vendor, "nvmlSystemGetCudaDriverVersion_v2")
        if serves and too_old(served_cuda(serves), version(torch.version.cuda or "")):
            return ()
        found = [device_setup(vendor, gpu) for gpu in look(vendor).gpus]
    return tuple(replace(device, uuid=device.uuid.removeprefix("GPU-")) for device in found)


@functools.cache
def _driver_loads() -> bool:
    """Returns True if CUDA's driver library is installed. Loading it does not start CUDA."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
