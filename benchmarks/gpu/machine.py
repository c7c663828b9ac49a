"""What this machine is: `python -m benchmarks.gpu.machine [--rehearse]` prints it, or why no proof can begin."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from typing import Any, Final

SIMULATED: Final = "simulated"
NO_TORCH: Final = (
    "This Python has no torch: name one that has, such as `make gpu PYTHON=/path/to/python`, or run `make setup` once, "
    "which makes .venv."
)
NO_GPU: Final = (
    "torch sees no CUDA device here, so nothing can be proved: run `make gpu` on a machine with an NVIDIA GPU, or "
    "`make gpu REHEARSE=1` to try out the proof itself without one."
)


def driver() -> str:
    """The version of NVIDIA's driver, without asking a library of ours; empty if it cannot be read."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def facts(rehearse: bool) -> dict[str, Any]:
    """Card, driver, torch, Python, cores, date; `why_not`: what keeps the proof from beginning, empty if nothing."""
    found: dict[str, Any] = {
        "card": SIMULATED,
        "simulated": rehearse,
        "driver": "",
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "why_not": "",
    }
    try:
        import numpy
        import torch
    except ImportError as error:
        return {**found, "why_not": NO_TORCH if error.name == "torch" else f"This Python has no {error.name}."}
    found |= {"torch": torch.__version__, "cuda": torch.version.cuda, "numpy": numpy.__version__}
    if rehearse:
        return found
    if not torch.cuda.is_available():
        return {**found, "why_not": NO_GPU}
    properties = torch.cuda.get_device_properties(0)
    return {
        **found,
        "card": properties.name,
        "driver": driver(),
        "memory_bytes": properties.total_memory,
        "capability": [properties.major, properties.minor],
    }


def file_name(machine: dict[str, Any]) -> str:
    """The card's name as a file's: `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[^a-z0-9]+", "-", str(machine.get("card", "unknown")).lower()).strip("-")


if __name__ == "__main__":
    print(json.dumps(facts("--rehearse" in sys.argv)))
