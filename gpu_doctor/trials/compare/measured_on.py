"""Finds the device that a comparison was measured on, and whether its two sides can be compared at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor.recording import UNKNOWN, Recording, devices_of, is_elsewhere

MACHINES: Final = "this compares machines, not settings"


@dataclass(frozen=True)
class MeasuredOn:
    """The device or devices that a comparison was measured on."""

    device: str = ""
    """Name, such as `NVIDIA H100 (cuda:0)`; both names if the sides differ, empty if no step ended."""
    told: bool = False
    """True if the device is not on this machine, or if the sides differ."""
    unfair: str = ""
    """Reason why two sides from different machines have no verdict; empty if they are from one machine."""


def measured_on(bases: Sequence[Recording], candidates: Sequence[Recording]) -> MeasuredOn:
    """Returns the devices of both sides, whether the report names them, and why different machines get no verdict.

    Recordings without a step are left out, as they may not have reached their device.
    """
    sides = [[setup.setup for setup in side if len(setup.steps)] for side in (bases, candidates)]
    before, after = (devices_of(side) for side in sides)
    pairs = [(a, b) for a, b in zip(bases, candidates, strict=False) if len(a.steps) and len(b.steps)]
    away = any(is_elsewhere(setup) for side in sides for setup in side)
    # If the machines are unknown, different devices mean different machines.
    if any(a.setup.machine != b.setup.machine or (_unknown(a, b) and _differ(a, b)) for a, b in pairs):
        unfair = f"the baseline was measured on {before}, the candidate on {after}: {MACHINES}"
        return MeasuredOn(f"{before} (baseline) and {after} (candidate)", told=True, unfair=unfair)
    if any(_differ(a, b) for a, b in pairs):
        return MeasuredOn(f"{before} (baseline) and {after} (candidate)", told=True)
    return MeasuredOn(devices_of([*sides[0], *sides[1]]), told=away)


def _differ(a: Recording, b: Recording) -> bool:
    return a.setup.hardware != b.setup.hardware


def _unknown(a: Recording, b: Recording) -> bool:
    return UNKNOWN in (a.setup.host, b.setup.host)
