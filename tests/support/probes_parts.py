"""What the tests of probes share."""

from __future__ import annotations

from gpu_doctor.machine.probe import Reading

MIB = 1 << 20


def values(readings: list[Reading], device: int | None = 0) -> dict[str, float]:
    return {metric.name: value for metric, value in readings if metric.device == device}
