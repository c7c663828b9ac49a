"""Where a check-up's facts come from: NVML, torch, the host. Whatever cannot be read stays at its 'not read'."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

from gpu_doctor.machine import host
from gpu_doctor.machine.cards import served_cuda
from gpu_doctor.machine.checkup.environment import READ
from gpu_doctor.machine.checkup.facts import CardFacts, Facts, TorchFacts
from gpu_doctor.machine.host import physical_cores
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.nvml.neighbours import others
from gpu_doctor.machine.nvml.visible import Gpu, ask, device_setup, look, text
from gpu_doctor.machine.torch_memory import cuda_in_use, device_uuids

_UNCORRECTED, _VOLATILE = 1, 0
_SM = 1
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def gathered() -> Facts:
    """Reads the machine; takes some tens of milliseconds where there is a GPU."""
    found: dict[str, Any] = {"torch": torch_facts(), "nvidia_on_bus": nvidia_on_bus()}
    found["driver_loaded"] = Path("/proc/driver/nvidia/version").exists()
    found["visible_devices"] = os.environ.get("CUDA_VISIBLE_DEVICES")
    with probe.initialised() as access:
        found["nvml_problem"] = access.problem
        if access.vendor is not None:
            found.update(_nvml_facts(access.vendor))
    return Facts(
        **found,
        usable_cores=host.usable_cores(),
        os_cores=host.os_cores(),
        physical_cores=physical_cores(),
        affinity_cores=host.affinity_cores(),
        shm=host.shm_bytes(),
        ram=host.memory(),
        environment={name: os.environ[name] for name in READ if name in os.environ},
        start_method=multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
    )


def _nvml_facts(vendor: Any) -> dict[str, Any]:
    sight = look(vendor, device_uuids())
    in_use = cuda_in_use()
    neighbours = others(vendor, sight.gpus, in_use)
    served = ask(vendor, "nvmlSystemGetCudaDriverVersion_v2") or ask(vendor, "nvmlSystemGetCudaDriverVersion")
    return {
        "cards": tuple(_card(vendor, gpu, *neighbours.get(gpu.index, (None, None))) for gpu in sight.gpus),
        "cards_installed": sight.cards,
        "order_note": sight.note,
        "cuda_in_use": in_use,
        "driver": text(ask(vendor, "nvmlSystemGetDriverVersion")),
        "driver_cuda": served_cuda(served) if served else None,
    }


def _card(vendor: Any, gpu: Gpu, other_processes: int | None, other_bytes: int | None) -> CardFacts:
    setup, card = device_setup(vendor, gpu), gpu.card
    memory = ask(vendor, "nvmlDeviceGetMemoryInfo", gpu.handle)
    rates = ask(vendor, "nvmlDeviceGetUtilizationRates", gpu.handle)
    persistence = ask(vendor, "nvmlDeviceGetPersistenceMode", card)
    bits = temperature = None
    with contextlib.suppress(Exception):
        bits = probe.limit_bits(vendor, card)
    with contextlib.suppress(Exception):
        temperature = probe.temperature_c(vendor, card)
    return CardFacts(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        mig=gpu.mig,
        memory_bytes=setup.memory_bytes,
        memory_used_bytes=None if memory is None else int(memory.used),
        capability=setup.capability,
        busy_pct=None if rates is None else float(rates.gpu),
        other_processes=other_processes,
        other_bytes=other_bytes,
        ecc_errors=ask(vendor, "nvmlDeviceGetTotalEccErrors", card, _UNCORRECTED, _VOLATILE),
        pcie_gen=ask(vendor, "nvmlDeviceGetCurrPcieLinkGeneration", card),
        pcie_gen_max=ask(vendor, "nvmlDeviceGetMaxPcieLinkGeneration", card),
        pcie_gen_card=ask(vendor, "nvmlDeviceGetGpuMaxPcieLinkGeneration", card),
        pcie_width=ask(vendor, "nvmlDeviceGetCurrPcieLinkWidth", card),
        pcie_width_max=ask(vendor, "nvmlDeviceGetMaxPcieLinkWidth", card),
        power_limit_w=_watts(ask(vendor, "nvmlDeviceGetEnforcedPowerLimit", card)),
        power_default_w=_watts(ask(vendor, "nvmlDeviceGetPowerManagementDefaultLimit", card)),
        sm_clock_mhz=ask(vendor, "nvmlDeviceGetClockInfo", card, _SM),
        sm_clock_max_mhz=ask(vendor, "nvmlDeviceGetMaxClockInfo", card, _SM),
        limit_bits=bits,
        temperature_c=temperature,
        persistence=None if persistence is None else bool(persistence),
    )


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def torch_facts() -> TorchFacts | None:
    """The installed torch; asks it whether CUDA works, but makes no CUDA context."""
    try:
        import torch
    except Exception:
        return None
    problem, available, devices = "", False, 0
    arches: tuple[str, ...] = ()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            available = bool(torch.cuda.is_available())
            devices = int(torch.cuda.device_count()) if available else 0
            arches = tuple(torch.cuda.get_arch_list())
        except Exception as error:
            problem = str(error)
    problem = problem or next((str(one.message) for one in said if "CUDA" in str(one.message)), "")
    mps = getattr(torch.backends, "mps", None)
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda or "",
        hip=str(getattr(torch.version, "hip", None) or ""),
        available=available,
        problem=problem,
        devices=devices,
        mps=mps is not None and bool(mps.is_available()),
        arches=arches,
        threads=int(torch.get_num_threads()),
    )


def nvidia_on_bus(root: Path = Path("/")) -> int | None:
    """NVIDIA display controllers on the PCI bus, driver or not; None where Linux' sysfs is not there."""
    try:
        slots = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    count = 0
    for slot in slots:
        with contextlib.suppress(OSError):
            vendor, kind = (slot / "vendor").read_text().strip(), (slot / "class").read_text().strip()
            count += vendor == _NVIDIA and kind.startswith(_DISPLAY)
    return count
