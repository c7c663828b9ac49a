"""The probes on a real NVIDIA GPU: the readings answer to what the GPU does. Skipped where torch has no CUDA."""

from __future__ import annotations

import os
import time

import pytest
import torch

from gpu_doctor.capture.poller import Poller
from gpu_doctor.machine import torch_memory
from gpu_doctor.machine.checkup.check import check
from gpu_doctor.machine.nvml import probe
from gpu_doctor.machine.probe import ProbeScope
from gpu_doctor.machine.probes import PROBES
from gpu_doctor.recording import Metric

MIB = 1 << 20


def work(seconds: float) -> None:
    """Keeps the GPU's tensor cores busy."""
    left = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(20):
            left @ left
        torch.cuda.synchronize()


def readings_during(seconds: float) -> tuple[dict[str, list[float]], Poller, list[str]]:
    found: dict[str, list[float]] = {}
    notes: list[str] = []

    def add(metric: Metric, at: float, value: float) -> None:
        if metric.device in (None, torch.cuda.current_device()):
            found.setdefault(metric.name, []).append(value)

    poller = Poller(PROBES, add, note=notes.append, sampler=lambda _: None)
    poller.start()
    try:
        work(seconds)
    finally:
        poller.stop()
    return found, poller, notes


def test_a_busy_gpu_is_seen_busy() -> None:
    work(1.0)
    found, poller, notes = readings_during(5.0)
    assert notes == []
    assert max(found["gpu_util_pct"]) > 80
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    assert found["gpu_memory_total_bytes"][0] == pytest.approx(total, rel=0.05)
    assert 0 < max(found["gpu_memory_used_bytes"]) <= found["gpu_memory_total_bytes"][0]
    assert max(found["torch_allocated_bytes"]) >= 32 * MIB
    assert max(found.get("torch_peak_bytes", [total])) >= max(found["torch_allocated_bytes"])
    assert poller.cpu_s / 5.0 < 0.02


def test_hopper_tells_what_its_tensor_cores_do() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        assert "tensor_active_pct" not in readings_during(1.0)[0]
        return
    found, _, notes = readings_during(4.0)
    assert notes == []
    assert max(found["tensor_active_pct"]) > 20 and max(found["sm_active_pct"]) > 50
    for name in ("sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct"):
        assert all(0 <= value <= 100 for value in found[name])


def test_nvml_and_torch_number_the_devices_alike() -> None:
    torch.cuda.init()
    found = probe.devices()
    assert len(found) == torch.cuda.device_count()
    for device in found:
        properties = torch.cuda.get_device_properties(device.index)
        assert device.capability == (properties.major, properties.minor)
        if torch_memory.device_uuids():
            assert torch_memory.device_uuids()[device.index] in device.uuid
    assert probe.driver_version().count(".") >= 1


def test_nvml_is_given_back() -> None:
    with probe.opened(ProbeScope(pytest.fail)) as read:
        assert read is not None and read()
    with pytest.raises(probe.VENDOR.NVMLError_Uninitialized):
        probe.VENDOR.nvmlDeviceGetCount()


def test_the_check_up_of_a_machine_with_a_gpu() -> None:
    checkup = check()
    topics = {line.topic for line in checkup.lines}
    assert {"GPU", "driver", "torch build", "architecture", "PCIe link", "clocks", "power limit"} <= topics
    by_topic = {line.topic: line for line in checkup.lines}
    assert by_topic["torch build"].status == "ok" and by_topic["driver"].status == "ok"
    if os.environ.get("CUDA_VISIBLE_DEVICES") is None:
        assert by_topic["GPU"].status == "ok", by_topic["GPU"].found
