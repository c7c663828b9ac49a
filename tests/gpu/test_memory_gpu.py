"""Memory and hardware readings on a real NVIDIA GPU: what the allocator, the driver and an error message say there."""

from __future__ import annotations

import pytest
import torch

import gpu_doctor.trials.run as trial
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording

LOOP = """
import torch
kept = []
model = torch.nn.Linear(2048, 2048, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(256, 2048, device="cuda")
for step in range(10**9):
    optimizer.zero_grad()
    output = model(x)
    loss = output.square().mean()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    {}
"""


def ran(body: str, seconds: float) -> Recording:
    """The loop on the GPU, for some seconds."""
    source = LOOP.format(body)
    namespace: dict[str, object] = {}
    code = compile(source, "<cell>", "exec")
    recorder = Recorder(source=source, max_s=seconds)
    recording = trial.run(lambda: exec(code, namespace), recorder, namespace).recording
    namespace.clear()
    torch.cuda.empty_cache()
    return recording


def test_what_is_read_of_a_healthy_loop() -> None:
    vitals = measure(ran("pass", 6.0))
    assert vitals.cards_seen and vitals.driver_cuda and vitals.driver_cuda >= (11, 0)
    assert vitals.architecture_support == 2 and vitals.alloc_retries == 0
    assert vitals.device_growth_bytes_per_step == 0.0
    if vitals.sm_clock_mhz is not None and vitals.sm_clock_max_mhz is not None:
        assert 0 < vitals.sm_clock_mhz <= vitals.sm_clock_max_mhz
        assert vitals.throttled_share is None or 0.0 <= vitals.throttled_share <= 1.0
    assert vitals.device_used_bytes and vitals.reserved_peak_bytes
    assert vitals.device_used_bytes >= vitals.reserved_peak_bytes


def test_a_loop_that_keeps_its_outputs_grows_on_the_device() -> None:
    recording = ran("kept.append(output); torch.cuda._sleep(20_000_000)", 8.0)
    vitals = measure(recording)
    # 256 x 2048 floats of every step
    assert vitals.device_growth_bytes_per_step == pytest.approx(256 * 2048 * 4, rel=0.2)
    assert "memory-growth" in [one.rule for one in diagnose(recording).hints]


def test_torchs_own_message_is_understood() -> None:
    recording = ran("torch.empty(1 << 50, device='cuda')", 30.0)
    assert recording.outcome == "out-of-memory"
    (found,) = [one for one in diagnose(recording).findings if one.rule == "out-of-memory"]
    assert "trying to allocate" in found.headline
    assert "free on the card" in found.evidence[0] and "of the card" in found.evidence[0]
