"""Gradients are clipped as without us in a real loop and in a compiled one, which stays one graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.clipping import tap
from tests.support.one_tap import model, on
from tests.support.told_loop import begun

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
