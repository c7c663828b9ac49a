"""Gradient clipping is the backward pass's, however it is called, and gives what it gives without us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.clipping import tap
from gpu_doctor.recording.steps import BACKWARD, OTHER
from tests.support.one_tap import model, on
from tests.support.told_loop import begun, billed_ns, phase_now


@pytest.mark.skipif(not hasattr(clip_grad, "_get_total_norm"), reason="this torch clips in one piece")
@pytest.mark.parametrize("part", ["_get_total_norm", "_clip_grads_with_norm_"])
def test_its_parts_run_in_the_backwards_phase(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, phases = Recorder(), []
    original: Callable[..., Any] = getattr(clip_grad, part)

    def asking(*args: Any, **kwargs: Any) -> Any:
        phases.append(phase_now(recorder))
        return original(*args, **kwargs)

    monkeypatch.setattr(clip_grad, part, asking)
    net = model()
    net(torch.rand(2, 4)).sum().backward()
    with on(tap, recorder):
        clip_grad_norm_(net.parameters(), 1.0)  # before the loop: not ours to bill
        assert not recorder.started()
        assert billed_ns(begun(recorder), BACKWARD) == 0
        clip_grad_norm_(net.parameters(), 1.0)
        assert phase_now(recorder) == OTHER
        sick = nn.Parameter(torch.zeros(1))
        sick.grad = torch.full((1,), float("nan"))
        with pytest.raises(RuntimeError, match="non-finite"):
            clip_grad_norm_([sick], 1.0, error_if_nonfinite=True)
        assert phase_now(recorder) == OTHER
    assert phases[:2] == [BACKWARD, BACKWARD]
    assert getattr(clip_grad, part) is asking


CELL = """
for step in range(40):
    opt.zero_grad()
    net(x).square().mean().backward()
    norms.append(float(clip(net.parameters(), 0.1)))
    opt.step()
"""


def test_a_loop_clips_as_without_us() -> None:
    def world() -> dict[str, Any]:
        torch.manual_seed(0)
        net = model()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        return {"net": net, "opt": opt, "x": torch.rand(8, 4), "norms": [], "clip": clip_grad_norm_}

    bare, ours = world(), world()
    exec(CELL, bare)
    recording = gpu_doctor.case(CELL, ours).run()
    assert ours["norms"] == bare["norms"] and len(recording.steps) == 40
    assert all(torch.equal(a, b) for a, b in zip(bare["net"].parameters(), ours["net"].parameters(), strict=True))


def test_a_compiled_function_clips_in_one_graph() -> None:
    def clipped(one: nn.Parameter) -> torch.Tensor:
        return clip_grad_norm_([one], 1.0)

    weight = nn.Parameter(torch.ones(4))
    weight.grad = torch.full((4,), 2.0)
    recorder = Recorder()
    with on(tap, recorder):
        begun(recorder)
        torch._dynamo.reset()
        explained = torch._dynamo.explain(clipped)(weight)
    assert explained.graph_break_count == 0
