"""What a probe read, by name; and a machine that says of no card that it is visible."""

from __future__ import annotations

import pytest

from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.probe import Reading

MIB = 1 << 20


def values(readings: list[Reading], device: int | None = 0) -> dict[str, float]:
    return {metric.name: value for metric, value in readings if metric.device == device}


@pytest.fixture(autouse=True)
def no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor torch says which cards are visible."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr(probe, "device_uuids", tuple)
    monkeypatch.setattr(probe, "cuda_in_use", lambda: False)
