"""Reads the environment of the loop: versions, devices, thread settings, torch's switches."""

from __future__ import annotations

import os
import platform
from typing import Any, Final

import torch

from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cuda_available, cuda_devices, start_method


def accelerated() -> bool:
    """Whether torch may reach a device other than the CPU."""
    return cuda_available() is not False or torch.backends.mps.is_available()


DEBUGGING: Final = ("deterministic", "anomaly_mode", "profiler", "launch_blocking")
"""Switches that count as on if they were on at any look: what costs time is often turned on for a part of the loop."""


def _matmul_precision() -> str:
    """`highest`, `high` or `medium`; torch refuses to say it where the newer switches are set, which say it then."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "")
        return "high" if newer == "tf32" else "highest"


def _cudnn_tf32() -> bool:
    """Whether cuDNN's convolutions may run in TF32, which torch allows by default: by the newer switch where it is."""
    newer = getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)  # torch 2.9
    return newer == "tf32" if newer is not None else bool(torch.backends.cudnn.allow_tf32)


def switches() -> dict[str, object]:
    """Torch's process-wide switches that cost or save time, as plain values."""
    flags: dict[str, object] = {
        "matmul_precision": _matmul_precision(),
        "cudnn_tf32": _cudnn_tf32(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": torch.is_anomaly_enabled(),
        "profiler": bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False)),
        "launch_blocking": os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "interop_threads": torch.get_num_interop_threads(),
    }
    if torch.cuda.is_initialized():  # to ask earlier would initialise it
        flags["sync_debug"] = ("default", "warn", "error")[torch.cuda.get_sync_debug_mode()]
    return flags


def tap(scope: TapScope) -> None:
    """Notes the surroundings at once; torch's switches and devices when an optimizer first steps and at the end, too.

    Cells turn the switches on before their loop, and may choose the devices until they use CUDA.
    """
    facts, flags = scope.recorder.facts, scope.flags
    flags.update(switches())
    facts.update(
        torch_version=torch.__version__,
        python_version=platform.python_version(),
        cuda_version=torch.version.cuda or "",
        devices=cuda_devices(),
        torch_threads=torch.get_num_threads(),
        start_method=start_method(),
        flags=lambda: dict(flags),
    )

    def look(_: Any = None) -> None:
        now, facts["torch_threads"] = switches(), torch.get_num_threads()
        if torch.cuda.is_initialized():
            facts["devices"] = cuda_devices()
        flags.update({name: flags.get(name) or value if name in DEBUGGING else value for name, value in now.items()})

    def end() -> None:
        now, facts["devices"] = switches(), cuda_devices()
        flags.update({name: True for name in DEBUGGING if now[name]})

    scope.optimized.append(look)
    scope.at_end(end)
