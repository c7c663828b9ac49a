"""Which CUDA devices torch can use, asked without CUDA before the user's code has begun to use it.

`torch.cuda.is_available` starts the driver, which reads CUDA_VISIBLE_DEVICES once; and no process that is forked later
can use CUDA, as those of `accelerate.notebook_launcher` do. So does `torch.cuda.device_count`, where NVML does not
answer. Until torch has initialised CUDA, NVML and the presence of the driver tell what they can.
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
    """Whether this process can use CUDA through torch: True where it does, False where it cannot, None = not known.

    It cannot where torch is not loaded or was built without CUDA, or where there is no NVIDIA driver.
    """
    torch = torch_if_loaded()
    if torch is None or not torch.backends.cuda.is_built():
        return False
    if cuda_in_use():
        return True
    return None if torch.version.hip is not None or _driver_loads() else False


def cuda_devices() -> tuple[DeviceSetup, ...]:
    """The devices that torch sees where it uses CUDA; else those that it will see, as far as NVML can tell."""
    available, torch = cuda_available(), sys.modules.get("torch")
    if available is False or torch is None:
        return ()
    if available is None:
        return _by_nvml(torch)
    every = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(
        DeviceSetup(
            index=index,
            name=one.name,
            uuid=str(getattr(one, "uuid", "")),  # torch before 2.5 has none
            memory_bytes=int(one.total_memory),
            capability=(int(one.major), int(one.minor)),
        )
        for index, one in enumerate(every)
    )


def _by_nvml(torch: Any) -> tuple[DeviceSetup, ...]:
    """What NVML and CUDA_VISIBLE_DEVICES leave; nothing where the driver is too old for torch's CUDA."""
    with probe.initialised() as access:
        vendor = access.vendor
        if vendor is None:
            return ()
        serves = ask(vendor, "nvmlSystemGetCudaDriverVersion_v2")
        if serves and too_old(served_cuda(serves), version(torch.version.cuda or "")):
            return ()
        found = [device_setup(vendor, gpu) for gpu in look(vendor).gpus]
    return tuple(replace(one, uuid=one.uuid.removeprefix("GPU-")) for one in found)


@functools.cache
def _driver_loads() -> bool:
    """Whether CUDA's driver library is there. To load it starts nothing."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
