"""debug-mode-on: anomaly detection, the profiler, CUDA_LAUNCH_BLOCKING, each a bound."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "debug-mode-on"
LOOP = Loop()


def flagged(loop: Loop, **flags: Any) -> Loop:
    """The loop with switches of torch as given."""
    return loop.but(setup={**loop.setup, "flags": flags})


@pytest.mark.parametrize("flag", ["anomaly_mode", "profiler"])
def test_sick(flag: str) -> None:
    loop = flagged(LOOP, **{flag: True})
    found = sick(RULE, loop)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.8), "all of forward and backward"
    assert found.prescriptions[0].predicted_speedup is None and RULE in named(loop)


def test_on_for_half_of_the_time_it_costs_half_at_most() -> None:
    half = flagged(LOOP, anomaly_mode=True, anomaly_share=0.5)
    assert sick(RULE, half).cost_share == pytest.approx(0.4)


def test_predictions_write_no_stack_down() -> None:
    predicts = Loop(forward=10.0, backward=0.0, optimizer=0.0, setup={"optimizers": ()})
    assert asked(RULE, flagged(predicts, anomaly_mode=True)) is None
    assert asked(RULE, flagged(predicts, profiler=True)) is not None


def test_launches_that_block_leave_the_gpu_idle() -> None:
    blocked = flagged(on_gpu(gpu_util=60.0, caught_up=1.0, other=2.0, gpu_gap=2.0), launch_blocking=True)
    assert sick(RULE, blocked).cost_share == pytest.approx(10 / 12, abs=0.01)


def test_well() -> None:
    assert asked(RULE, LOOP) is None
    assert asked(RULE, flagged(LOOP, anomaly_mode=False, profiler=False, launch_blocking=False)) is None
    assert asked(RULE, flagged(LOOP, launch_blocking=True)) is None, "without a GPU no launch blocks"
    few = flagged(LOOP, profiler=True, profiler_share=0.01)
    assert asked(RULE, few) is None, "a few profiled steps are looked at on purpose"


def test_deterministic_algorithms_alone_have_no_price() -> None:
    assert asked(RULE, flagged(LOOP, deterministic=True)) is None
    both = sick(RULE, flagged(LOOP, deterministic=True, anomaly_mode=True))
    assert any("deterministic" in one for one in both.evidence)
