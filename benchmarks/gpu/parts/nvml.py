"""Our readings of the card beside those that nvidia-smi gives of the same seconds, while the card works."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.timing import synchronize
from gpu_doctor.capture.poller import Poller
from gpu_doctor.machine import torch_memory
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.probes import PROBES
from tests.support.stub_nvml import Card, StubNvml

MIB: Final = float(1 << 20)
SMI_EVERY_S: Final = 0.4


@dataclass(frozen=True)
class Pair:
    """One reading of ours, what nvidia-smi calls it, and how far the two may lie from each other."""

    ours: str
    theirs: str
    scale: float = 1.0
    """nvidia-smi's number times this has our unit."""
    share: float = 0.0
    """Relative to nvidia-smi's,"""
    within: float = 0.0
    """or in our unit, whatever is more."""


PAIRS: Final = (
    Pair("gpu_util_pct", "utilization.gpu", within=10.0),
    Pair("gpu_memory_used_bytes", "memory.used", MIB, 0.02, 1024 * MIB),
    Pair("gpu_memory_total_bytes", "memory.total", MIB, 0.02),
    Pair("gpu_power_w", "power.draw", share=0.15),
    Pair("gpu_power_limit_w", "power.limit", share=0.01),
    Pair("gpu_temperature_c", "temperature.gpu", within=4.0),
    Pair("sm_clock_mhz", "clocks.sm", share=0.08),
    Pair("sm_clock_max_mhz", "clocks.max.sm", share=0.01),
    Pair("pcie_gen", "pcie.link.gen.current"),
    Pair("pcie_width", "pcie.link.width.current"),
)
"""Medians are compared. nvidia-smi's memory may hold what the driver keeps for itself; its power is a mean."""


def run(stage: Stage) -> None:
    """A row a reading, all of one stretch of work; and one for what nobody else tells."""
    if all(one.ours in stage.rows for one in PAIRS):
        return
    seconds = 1.0 if stage.rehearse else 8.0
    with _stubbed() if stage.rehearse else contextlib.nullcontext():
        ask = _stub_says if stage.rehearse else smi
        ours, theirs, notes = read_beside(stage.device, seconds, stage.size(4096, 64), ask)
    for pair in PAIRS:
        stage.row(pair.ours, partial(beside, pair, ours.get(pair.ours, []), theirs.get(pair.theirs, [])))
    others = {name: statistics.median(found) for name, found in ours.items() if name not in {p.ours for p in PAIRS}}
    told = ", ".join(f"{name} {value:.4g}" for name, value in sorted(others.items()))
    stage.row("read by us alone", lambda: row(f"{told}. {' '.join(notes)}".strip(), not notes, **others))


def read_beside(
    device: str, seconds: float, width: int, ask: Callable[[], dict[str, float]]
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[str]]:
    """Both series, and our notes, while the device multiplies; the first second is left out, clocks rise in it."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    notes: list[str] = []

    def add(metric: Any, at: float, value: float) -> None:
        if metric.device in (None, 0):
            ours.setdefault(metric.name, []).append(value)

    work(device, min(1.0, seconds / 4), width)
    worker = threading.Thread(target=work, args=(device, seconds, width))
    poller = Poller(PROBES, add, note=notes.append, sampler=lambda: None)
    poller.start()
    worker.start()
    try:
        while worker.is_alive():  # at the last answer it may have ended: medians do not mind
            for name, value in ask().items():
                theirs.setdefault(name, []).append(value)
            worker.join(SMI_EVERY_S)
    finally:
        worker.join()
        poller.stop()
    return ours, theirs, notes


def work(device: str, seconds: float, width: int) -> None:
    """Keeps the device multiplying."""
    left = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        synchronize(device)
        for _ in range(200 if device == "cuda" else 2):
            left @ left
    synchronize(device)


def beside(pair: Pair, ours: list[float], theirs: list[float]) -> Row:
    """The medians of one reading."""
    if not theirs:
        return row(f"nvidia-smi does not tell {pair.theirs}; ours: {f'{ours[0]:.6g}' if ours else 'absent'}", None)
    their = statistics.median(theirs) * pair.scale
    if not ours:
        return row(f"absent in ours, nvidia-smi: {their:.6g}", False, nvidia_smi=their)
    our = statistics.median(ours)
    good = abs(our - their) <= max(pair.within, pair.share * abs(their), 1e-9)
    return row(f"{our:.6g}, nvidia-smi {their:.6g} ({len(ours)} and {len(theirs)} readings)", good, ours=our, smi=their)


def smi() -> dict[str, float]:
    """What nvidia-smi says of the card that torch calls the first; what it does not tell is absent."""
    names = [one.theirs for one in PAIRS]
    uuids = torch_memory.device_uuids()
    uuid = str(uuids[0]) if uuids else ""
    which = [f"--id=GPU-{uuid.removeprefix('GPU-')}"] if uuid and not uuid.startswith("MIG") else []
    said = _asked(which, names) or _asked([], names)  # a virtual machine may know its card by another name
    found = {}
    for name, told in zip(names, said.partition("\n")[0].split(","), strict=False):
        with contextlib.suppress(ValueError):
            found[name] = float(told)
    return found


def _asked(which: list[str], names: list[str]) -> str:
    words = ["nvidia-smi", *which, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


CARD: Final = Card()


@contextlib.contextmanager
def _stubbed() -> Iterator[None]:
    """NVML as the simulated card answers."""
    real = probe.VENDOR
    probe.VENDOR = StubNvml(CARD)
    try:
        yield
    finally:
        probe.VENDOR = real


def _stub_says() -> dict[str, float]:
    return {
        "utilization.gpu": 71.0,
        "memory.used": CARD.used / MIB,
        "memory.total": CARD.memory / MIB,
        "power.draw": 402.5,
        "power.limit": 700.0,
        "temperature.gpu": 54.0,
        "clocks.sm": 1755.0,
        "clocks.max.sm": 1980.0,
        "pcie.link.gen.current": 5.0,
        "pcie.link.width.current": 16.0,
    }
