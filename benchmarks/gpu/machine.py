"""Asks nvidia-smi and the installed packages what this machine is, without a context of ours on its card."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib import metadata
from typing import Any, Final

SIMULATED: Final = "simulated"
NO_TORCH: Final = (
    "This Python has no {}: name one that has, such as `make gpu PYTHON=/path/to/python`, or run `make setup` once, "
    "which makes .venv."
)
NO_GPU: Final = (
    "nvidia-smi finds no GPU here, so nothing can be proved: run `make gpu` on a machine with an NVIDIA GPU, or "
    "`make gpu REHEARSE=1` to try out the proof itself without one."
)


def card() -> dict[str, Any]:
    """Asks for name, driver and memory of the first GPU; empty if there is none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
        name, driver, mib = (one.strip() for one in said.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return {}
    return {"card": name, "driver": driver, "memory_mib": mib}


def facts(rehearse: bool) -> dict[str, Any]:
    """Gathers card, driver, torch, Python, cores and date; `why_not` says what keeps the proof from beginning."""
    found: dict[str, Any] = {
        "card": SIMULATED,
        "simulated": rehearse,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "why_not": "",
    }
    for package in ("torch", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            return {**found, "why_not": NO_TORCH.format(package)}
    if rehearse:
        return found
    seen = card()
    return {**found, **seen} if seen else {**found, "why_not": NO_GPU}


def file_name(machine: dict[str, Any]) -> str:
    """Makes a file's name of the card's: `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[^a-z0-9]+", "-", str(machine.get("card", "unknown")).lower()).strip("-")
