"""launch-bound: the GPU outruns its host; a CPU's operations hardly compute. And what its causes have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import PINNED, Loop, on_gpu

RULE = "launch-bound"
CAUSES = {RULE, "not-compiled", "small-batch", "needless-accumulation", "model-too-small"}
FULL: dict[str, Any] = {"gpu_util": 40.0, "caught_up": 1.0, "tensor_active": 0.0, "peak_share": 0.7}
"""A card without room for a larger batch."""
SMALL = on_gpu(**FULL)


def test_sick() -> None:
    found = sick(RULE, SMALL)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1.0, abs=0.01)
    assert "at most 100 %" in found.headline and "NVML utilisation 40 %" in found.evidence[0]
    assert top(SMALL) == RULE and named(SMALL) == [RULE], "one cause, and no hint for a loop that kernels do not pace"


def test_what_is_compiled_already_is_launched_as_cuda_graphs() -> None:
    small_data = {**PINNED, "dataset_len": 1000}
    compiled = SMALL.but(setup={"model": ModelFacts(compiled=True)}, loader=small_data)
    assert "reduce-overhead" in sick(RULE, compiled).prescriptions[0].code


@pytest.mark.parametrize(
    ("loop", "share"),
    [
        (SMALL.but(caught_up=0.9), 0.9),  # only steps that emptied the queue
        (SMALL.but(gpu_util=99.0), 1.0),  # NVML's reading is no price and no veto
        (SMALL.but(gpu_util=None), 1.0),
        (SMALL.but(sync=90.0), 0.1),  # while the host waits, the GPU works
        (SMALL.but(forward=1.0, backward=1.0, optimizer=1.0, other=7.0, gpu_gap=7.0, gpu_work=3.0), 0.3),
    ],
)
def test_the_price_is_the_hosts_time_in_phases_that_launch(loop: Loop, share: float) -> None:
    assert sick(RULE, loop).cost_share == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        SMALL.but(caught_up=0.1),
        SMALL.but(wait=20.0, gpu_gap=20.0, workers=4, fetch=120.0, fetch_cpu=10.0),  # it waits for data
    ],
)
def test_well(loop: Loop) -> None:
    assert not CAUSES & set(named(loop))


def test_without_the_device_s_clock_it_is_silent() -> None:
    recording = SMALL.recording()
    blind = replace(recording, steps=replace(recording.steps, device_steps=recording.steps.device_steps * 0.0))
    silent = {one.rule: one.reason for one in diagnose(blind).silent}
    assert silent[RULE] == silent["small-batch"] == "GPU timings are missing"


# ---- on a CPU --------------------------------------------------------------------------------------------------------

ROWS = InputFacts(looked_at=40, shapes=1, shape=(32, 16), dtype="float32", device="cpu", per_step=1.0)
EACH = replace(ROWS, shape=(16,), per_step=32.0, most_per_step=64)
SETUP: dict[str, Any] = {"graph_operations": 100, "inputs": ROWS, "parameters": 5000}
TINY = Loop(forward=1.2, loss=0.2, backward=2.5, optimizer=0.4, other=0.3, setup=SETUP, loader={"dataset_len": 32000})


def test_a_cpu_that_goes_from_operation_to_operation() -> None:
    found = sick(RULE, TINY)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.75 * 4.3 / 4.6, rel=0.01)
    assert "25.0 µs for each of 100" in found.evidence[0]
    cure = found.prescriptions[0]
    assert cure.safety.value == "changes-training" and cure.settings == {"batch_size": 128}
    assert diagnose(TINY.recording()).bottleneck == "host"


@pytest.mark.parametrize(
    "well",
    [
        TINY.but(backward=9.0, forward=4.0),  # it computes
        TINY.but(wait=2.0),
        TINY.but(setup={}),  # nobody counted the operations
        TINY.but(loader={"dataset_len": 1000}),  # no more data for a larger batch
        TINY.but(has_loader=False),
        TINY.but(optimizer=6.0),  # the optimizer is a state of its own
        TINY.but(setup={**SETUP, "optimizers": ("Adam", "Adam")}),  # several losses
        TINY.but(forward=9.0),  # a frozen part
        TINY.but(loss=1.2, setup={**SETUP, "graph_operations": 500, "loss_operations": 450}),  # a loss of pieces
        TINY.but(setup={**SETUP, "inputs": EACH}),  # a call for each sample: per-sample-forward
    ],
)
def test_a_cpu_that_computes_or_waits(well: Loop) -> None:
    assert asked(RULE, well) is None


def test_workers_that_are_hardly_faster_than_the_loop_leave_a_larger_batch_little_to_gain() -> None:
    slow = TINY.but(workers=2, fetch=7.0, fetch_cpu=0.5, loader={"dataset_len": 32000})
    assert sick(RULE, slow).cost_share == pytest.approx(1.0 - 3.5 / 4.6, abs=0.01)


def test_why_a_cpu_is_not_judged() -> None:
    silent = {one.rule: one.reason for one in diagnose(TINY.but(setup={}).recording()).silent}
    assert "one backward per step" in silent[RULE]
