"""Gathers the facts for a check-up from NVML, torch and the host. A fact that cannot be read keeps its default."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from gpu_doctor.machine import host
from gpu_doctor.machine.cards import served_cuda
from gpu_doctor.machine.checkup.facts import CardFacts, Facts, TorchFacts
from gpu_doctor.machine.cuda import cuda_available
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.nvml.neighbours import others
from gpu_doctor.machine.nvml.visible import Gpu, ask, device_setup, look, text
from gpu_doctor.machine.torch_memory import cuda_in_use, device_uuids

_NVIDIA, _DISPLAY = "0x10de", "0x03"


def gathered() -> Facts:
    """Reads all facts about the machine, which takes some tens of milliseconds with a GPU."""
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
        physical_cores=host.physical_cores(),
        affinity_cores=host.affinity_cores(),
        shm=host.shm_bytes(),
        start_method=host.start_method(),
    )


def _nvml_facts(vendor: Any) -> dict[str, Any]:
    """Reads the facts about cards and driver from NVML."""
    sight = look(vendor, device_uuids())
    in_use = cuda_in_use()
    neighbours = others(vendor, sight.gpus, in_use)
    served = ask(vendor, "nvmlSystemGetCudaDriverVersion_v2") or ask(vendor, "nvmlSystemGetCudaDriverVersion")
    return {
        "cards": tuple(_card(vendor, gpu, *neighbours.get(gpu.index, (None, None))) for gpu in sight.gpus),
        "cards_installed": sight.cards,
        "cards_refused": sight.refused,
        "order_note": sight.note,
        "cuda_in_use": in_use,
        "driver": text(ask(vendor, "nvmlSystemGetDriverVersion")),
        "driver_cuda": served_cuda(served) if served else None,
    }


def _card(vendor: Any, gpu: Gpu, other_processes: int | None, other_bytes: int | None) -> CardFacts:
    """Reads the facts about one GPU from NVML."""
    found = device_setup(vendor, gpu)
    memory, busy = (
        ask(vendor, name, gpu.handle) for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")
    )
    return CardFacts(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        mig=gpu.mig,
        memory_bytes=found.memory_bytes,
        memory_used_bytes=None if memory is None else int(memory.used),
        capability=found.capability,
        busy_pct=None if busy is None else float(busy.gpu),
        other_processes=other_processes,
        other_bytes=other_bytes,
    )


def torch_facts() -> TorchFacts | None:
    """Reads the facts about the installed torch, and its devices only if CUDA is in use already; None without torch."""
    try:
        import torch
    except Exception:
        return None
    available = cuda_available()
    mps = getattr(torch.backends, "mps", None)
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda or "",
        hip=str(getattr(torch.version, "hip", None) or ""),
        available=available,
        devices=int(torch.cuda.device_count()) if available else 0,
        mps=mps is not None and bool(mps.is_available()),
        arches=tuple(torch.cuda.get_arch_list()),
    )


def nvidia_on_bus(root: Path = Path("/")) -> int | None:
    """Counts NVIDIA's display controllers on the PCI bus, with or without a driver; None if there is no sysfs."""
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
