"""A deep look at a few steps: which operators matter, who calls them, and what torch.profiler says beside the taps."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.events import ABANDONED, BACKED, CALL, CALLED, DONE, GRADIENT, PHASE, STEP, Log
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.capture.ranges import follow
from gpu_doctor.recording.steps import OTHER
from gpu_doctor.trials.look.callers import Caller
from gpu_doctor.trials.look.deep_look import NoLook
from gpu_doctor.trials.look.operators import costliest, marked, on_tensor_cores
from gpu_doctor.trials.look.result import Look, Operator, PhaseShare

CELL = """
import torch
model = torch.nn.Sequential()
model.add_module("wide", torch.nn.Linear(256, 2048))
model.add_module("head", torch.nn.Linear(2048, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in torch.utils.data.DataLoader(torch.rand(1280, 256), batch_size=64):
    optimizer.zero_grad()
    loss = model(inputs).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def looked() -> tuple[gpu_doctor.Case, Look]:
    case = gpu_doctor.case(CELL)
    case.run()
    return case, case.look(3)


def test_the_dearest_operators_are_named_with_their_callers(looked: tuple[Any, Look]) -> None:
    found = {one.name: one for one in looked[1].operators}
    assert looked[1].steps == 3 and not looked[1].on_gpu and looked[1].tensor_cores is None
    assert len(found) == 5 and {"aten::addmm", "aten::mm"} <= found.keys()
    forward, backward = found["aten::addmm"], found["aten::mm"]
    assert forward.module.endswith("(Linear)") and forward.module.partition(" ")[0] in ("wide", "head")
    assert (forward.place, forward.text) == ("cell line 9", "loss = model(inputs).mean()")
    assert (backward.module, backward.text) == ("", "loss.backward()")
    assert forward.calls == 2


def test_shares_are_those_of_the_step(looked: tuple[Any, Look]) -> None:
    look = looked[1]
    for one in look.operators:
        assert one.share == pytest.approx(one.seconds / look.step_s)
    assert {one.phase for one in look.phases} == {"data_wait", "backward", "optimizer"}
    assert all(one.why or abs(one.ours - one.profiler) <= 0.03 for one in look.phases)


def test_all_is_put_back_and_nothing_stays_on(looked: tuple[gpu_doctor.Case, Look]) -> None:
    case = looked[0]
    weights = case.namespace["model"].wide.weight.clone()
    state = torch.random.get_rng_state()
    case.look(1)
    assert torch.equal(case.namespace["model"].wide.weight, weights)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch._C._autograd._profiler_enabled() and case.on_begin is None
    assert len(case.effects) == len(case.trials) == 0


def test_the_trace_has_the_phases_as_ranges_among_the_operators(looked: tuple[Any, Look], tmp_path: Path) -> None:
    written = looked[1].trace(tmp_path / "trace.json")
    events = json.loads(written.read_text())["traceEvents"]
    named = Counter(one["name"] for one in events if one.get("ph") == "X")
    assert named["gpu_doctor: forward"] == named["gpu_doctor: backward"] == 3
    assert named["aten::addmm"] == 6
    packed = looked[1].trace(tmp_path / "trace.json.gz")
    assert json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"] == events


def test_it_is_plain_data_and_words(looked: tuple[Any, Look]) -> None:
    plain = json.loads(json.dumps(looked[1].to_dict()))
    assert plain["operators"][0]["name"] == looked[1].operators[0].name and "packed" not in plain
    assert "loss.backward()" in str(looked[1])


def test_a_loop_that_is_too_short_is_said() -> None:
    case = gpu_doctor.case(CELL.replace("1280", "256"))
    case.run()
    with pytest.raises(NoLook, match="4 steps"):
        case.look(5)
    assert not torch._C._autograd._profiler_enabled()


def test_a_loop_that_fails_in_a_profiled_step_leaves_no_profiler_on() -> None:
    broken = gpu_doctor.case(CELL + "    number = number + 1\n    assert number < 5\n", {"number": 0})
    with pytest.raises(NoLook, match="5 steps"):
        broken.look(5)
    assert not torch._C._autograd._profiler_enabled()


def event(name: str, us: float = 0.0, parent: Any = None, kernels: Any = (), device_us: float = 0.0) -> Any:
    """An event as torch.profiler gives it."""
    return SimpleNamespace(
        name=name,
        self_cpu_time_total=us,
        self_device_time_total=device_us,
        cpu_parent=parent,
        kernels=[SimpleNamespace(name=kernel, duration=took) for kernel, took in kernels],
        device_type=SimpleNamespace(name="CPU"),
        is_user_annotation=name.startswith("gpu_doctor"),
        time_range=SimpleNamespace(elapsed_us=lambda: us),
    )


def test_what_an_operator_calls_below_itself_is_its_own() -> None:
    outer = event("aten::convolution", 10.0)
    events = [outer, event("aten::mkldnn_convolution", 90.0, outer), event("gpu_doctor: forward", 500.0)]
    caller = Caller(Place("<cell>", 7, "forward", False), "conv (Conv2d)")
    (one,) = costliest(
        events, {"aten::convolution": Counter([caller])}, 2, 200e-6, lambda file, line: "  y = conv(x)\n"
    )
    assert (one.seconds, one.share) == pytest.approx((50e-6, 0.5))
    assert one == Operator(
        "aten::convolution", one.seconds, one.share, 0.5, "conv (Conv2d)", "cell line 7", "y = conv(x)"
    )


def test_on_a_gpu_the_device_counts_and_the_kernels_are_named() -> None:
    kernels = [("ampere_bf16_s16816gemm_bf16_128x64", 60.0), ("elementwise_kernel", 20.0)]
    events = [event("aten::mm", 500.0, kernels=kernels, device_us=80.0), event("aten::copy_", 900.0)]
    (one,) = costliest(events, {}, 1, 100e-6, lambda file, line: "")
    assert (one.name, one.kernel, one.share) == ("aten::mm", kernels[0][0], pytest.approx(0.8))
    assert on_tensor_cores(events) == 0.75
    assert on_tensor_cores([event("aten::mm", 5.0)]) is None


def test_marks_inside_of_marks_of_the_same_kind_count_once() -> None:
    outer = event("Optimizer.step#A.step", 100.0)
    assert marked([outer, event("Optimizer.step#B.step", 60.0, outer)], "Optimizer.step") == pytest.approx(100e-6)


def test_a_share_that_the_profiler_sees_otherwise_is_explained() -> None:
    look = Look(1, 0.1, (), (PhaseShare("backward", 0.5, 0.4, "the nodes alone"),), on_gpu=True, tensor_cores=0.25)
    assert "the nodes alone" in str(look) and "25 %" in str(look)


def test_ranges_nest_as_the_phases_do_and_end_where_a_step_raises() -> None:
    said: list[str] = []
    log = Log(lambda: 0)
    follow(log, SimpleNamespace(begin=said.append, end=lambda: said.append("end")))
    for code, arg in ((CALL + 5, None), (CALLED, None), (STEP, 1), (GRADIENT, None), (ABANDONED, None)):
        log.note((code, 0, arg))
    assert said == ["forward", "end", "optimizer", "backward", "end", "end"]
    said.clear()
    for code, arg in ((PHASE, OTHER), (DONE, None), (BACKED, None)):
        log.note((code, 0, arg))
    assert said == ["other", "end"]
    assert len(log.events) == 8


def test_callers_are_named_of_a_loop_whose_model_has_no_parts() -> None:
    case = gpu_doctor.case(
        """
import torch
weights = torch.zeros(64, 4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for inputs in torch.utils.data.DataLoader(torch.rand(1280, 64), batch_size=64):
    optimizer.zero_grad()
    (inputs @ weights).sum().backward()
    optimizer.step()
"""
    )
    case.run()
    assert {one.place for one in case.look(3).operators if one.name == "aten::mm"} == {"cell line 7"}


def test_a_closure_is_the_reason_where_the_profiler_sees_more_of_the_optimizer() -> None:
    case = gpu_doctor.case(
        """
import torch
model = torch.nn.Linear(256, 1024)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
for inputs in torch.utils.data.DataLoader(torch.rand(2560, 256), batch_size=256):
    def closure():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""
    )
    case.run()
    (found,) = (one for one in case.look(1).phases if one.phase == "optimizer")
    assert found.profiler > found.ours and "closure" in found.why


@pytest.mark.parametrize("then", ["", "other.stop()"])
def test_a_cell_with_a_profiler_of_its_own_is_refused(then: str) -> None:
    lines = f"    number = number + 1\n    if number == 5:\n        other.start()\n        {then}\n"
    case = gpu_doctor.case(CELL + lines, {"number": 0, "other": torch.profiler.profile()})
    with pytest.raises(NoLook, match="profiler"):
        case.look(4)


def test_a_profiler_that_a_cell_begins_before_its_loop_refuses_the_look_and_is_off_afterwards() -> None:
    around = (
        CELL.replace("for inputs", "other = torch.profiler.profile()\nother.start()\nfor inputs") + "other.stop()\n"
    )
    case = gpu_doctor.case(around)
    case.run()
    with pytest.raises(NoLook, match="profiler"):
        case.look(3)
    assert not torch._C._autograd._profiler_enabled()
    case.run()
