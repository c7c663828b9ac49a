"""What stands around the loop: versions, devices, thread settings, torch's switches, the trained model's make."""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gpu_doctor import models
from gpu_doctor.recording import DeviceSetup
from gpu_doctor.taps.tap import TapScope


def accelerated() -> bool:
    """True if torch can reach a device other than the CPU."""
    if torch.cuda.is_available():
        return True
    mps = getattr(torch.backends, "mps", None)
    return mps is not None and bool(mps.is_available())


def switches() -> dict[str, object]:
    """torch's process-wide switches that cost or save time, as plain values."""
    flags: dict[str, object] = {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": torch.is_anomaly_enabled(),
        "interop_threads": torch.get_num_interop_threads(),
    }
    if torch.version.cuda is not None and torch.cuda.is_available():
        flags["bf16_native"] = torch.cuda.get_device_capability()[0] >= 8
    return flags


def devices() -> tuple[DeviceSetup, ...]:
    """The CUDA devices that torch sees, in torch's order."""
    if not torch.cuda.is_available():
        return ()
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            DeviceSetup(
                index=index,
                name=properties.name,
                uuid=str(getattr(properties, "uuid", "")),
                memory_bytes=int(properties.total_memory),
                capability=(int(properties.major), int(properties.minor)),
            )
        )
    return tuple(found)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Notes the surroundings at once and the trained model when an optimizer first steps."""
    facts = scope.recorder.facts
    facts.update(
        torch_version=torch.__version__,
        python_version=platform.python_version(),
        cuda_version=torch.version.cuda or "",
        devices=devices(),
        torch_threads=torch.get_num_threads(),
        start_method=multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
        flags=switches(),
    )
    seen: list[torch.Tensor] = []
    names: list[str] = []

    def note_optimizer(optimizer: torch.optim.Optimizer) -> None:
        seen.extend(p for group in optimizer.param_groups for p in group["params"])
        names.append(type(optimizer).__name__)
        facts["optimizers"] = tuple(names)
        facts.update(models.described(models.outermost(scope.namespace, seen), seen))

    scope.optimized.append(note_optimizer)
    yield
