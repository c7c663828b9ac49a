"""Attention by separate operations is timed beside the fused kernel, after the run and without a trace."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.taps.attention_cost import MOST_WEIGHTS, WEIGHTS, longer_s
from gpu_doctor.capture.taps.both_ways import Clocks
from gpu_doctor.recording.setup import AttentionCalls

MODULE = importlib.import_module("gpu_doctor.capture.taps.attention_cost")
SHORT = AttentionCalls("math", 2, 16, 8, 64, 64, 8, "float32", False, False, True)
CELL = """
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
layer.self_attn.dropout = inside
head = torch.nn.Linear(32, 2)
opt = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.01)
for _ in range(12):
    loss = head(layer(x)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
after = torch.rand(3)
"""


def timed_at(monkeypatch: pytest.MonkeyPatch, slow: float, fused: float, stretched: float = 1.0) -> Clocks:
    """Clocks of a machine where the two ways take so many CPU seconds, and the wall so many times as many."""
    now = [0.0]

    def timed(given: Any, mask: Any, drops: bool | None, clock: Any) -> float:
        took = fused if drops is None else slow
        now[0] += took
        return took

    monkeypatch.setattr(MODULE, "_timed", timed)
    return lambda: now[0] * stretched, lambda: now[0]


def test_it_is_of_all_calls_and_of_each_pair_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert longer_s(SHORT, timed_at(monkeypatch, 1.0, 1.0)) == (0.0, 0.0, 0.0)
    times = 2 * 16 * 8 / (WEIGHTS // 64 // 64)  # 2 calls of 16 samples and 8 heads
    assert longer_s(SHORT, timed_at(monkeypatch, 3.0, 1.0)) == pytest.approx((2 * times,) * 3)
    few = replace(SHORT, calls=1, samples=1)
    assert longer_s(few, timed_at(monkeypatch, 3.0, 1.0)) == pytest.approx((2.0,) * 3)


def test_where_others_use_the_cores_it_is_stretched_as_the_steps_are(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(SHORT, calls=1, samples=1)
    assert longer_s(few, timed_at(monkeypatch, 3.0, 1.0, stretched=2.5)) == pytest.approx((5.0,) * 3)


def test_what_would_take_long_is_not_tried() -> None:
    huge = AttentionCalls("math", 1, 1, 1, MOST_WEIGHTS, 2, 8, "float32", False, False, True)
    assert longer_s(huge) is None


@pytest.mark.parametrize("inside", [0.1, 0.0])
def test_only_attention_off_its_kernel_is_timed(inside: float) -> None:
    namespace: dict[str, Any] = {"torch": torch, "x": torch.rand(4, 16, 32), "inside": inside}
    torch.manual_seed(3)
    recording = gpu_doctor.case(CELL, namespace).run()
    longer = recording.setup.attention_longer_s
    assert (longer is not None) is (inside > 0)
    assert longer is None or (0.0 <= longer[0] <= longer[1] <= longer[2] < 1.0)
    drawn, bare = torch.rand(3), dict(namespace)
    torch.manual_seed(3)
    exec(CELL, bare)
    assert torch.equal(bare["after"], namespace["after"]) and torch.equal(torch.rand(3), drawn)
    flags = (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled())
    assert flags == (True, True)
