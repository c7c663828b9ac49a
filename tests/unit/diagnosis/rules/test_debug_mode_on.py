"""debug-mode-on: anomaly detection, the profiler, CUDA_LAUNCH_BLOCKING."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.diagnosis.rules.python_pace import ROUND_S
from gpu_doctor.recording import Speeds
from gpu_doctor.recording.setup import ModelFacts
from tests.support.found import asked, named, priced, sick, surely
from tests.support.recordings import Loop, on_gpu, zipped

RULE = "debug-mode-on"


def flagged(loop: Loop, **flags: Any) -> Loop:
    """The loop with switches of torch as given."""
    return loop.but(setup={**loop.setup, "flags": flags})


BIG = Loop(setup={"layers": {"Linear": 6}})
SMALL = Loop(forward=0.8, backward=0.8, optimizer=0.2, setup={"layers": {"Linear": 4, "ReLU": 4}})


def test_sick() -> None:
    found = sick(RULE, flagged(BIG, anomaly_mode=True))
    assert found.cost_share == pytest.approx(0.19 * 0.8)
    assert "at least" in found.headline and found.prescriptions[0].predicted_speedup is None
    assert RULE in named(flagged(BIG, anomaly_mode=True))


def test_small_layers_pay_for_the_stack_that_is_written_down() -> None:
    found = sick(RULE, flagged(SMALL, anomaly_mode=True))
    assert found.cost_share == pytest.approx(8 * 0.15 / 1.8)


def test_where_python_is_slow_writing_the_stack_down_takes_as_much_longer() -> None:
    small = flagged(SMALL, anomaly_mode=True).but(forward=4.0, backward=4.0)
    slow = small.but(setup={**small.setup, "speeds": Speeds(python_round_s=2 * ROUND_S)})
    assert sick(RULE, slow).cost_share == pytest.approx(2 * 8 * 0.15 / 8.2)
    assert sick(RULE, small).cost_share == pytest.approx(0.19 * 8 / 8.2), "the least of the loops on its page is more"


def test_two_loaders_in_one_step_do_not_double_the_layers() -> None:
    small = flagged(SMALL, anomaly_mode=True)
    assert surely(RULE, zipped(small.recording())).cost_share == pytest.approx(8 * 0.15 / 1.8)


def test_on_for_half_of_the_time_it_costs_half() -> None:
    whole = float(BIG.recording().steps.wall_s.sum())
    half = flagged(BIG, anomaly_mode=True, anomaly_on_s=whole / 2)
    assert sick(RULE, half).cost_share == pytest.approx(0.19 * 0.8 / 2)


WHOLE: dict[str, Any] = {"parameter_bytes": 4000, "model": ModelFacts(dtype_bytes={"float32": 4000}, frozen_bytes=0)}
"""All of the model is stepped."""


def test_a_forward_that_takes_longer_than_its_backward_allows_was_slowed() -> None:
    # Measured: 24 steps of a recurrent cell, 0.57 and 0.61 ms plain, 5.35 and 1.74 ms with anomaly detection: 83 %.
    cell = Loop(forward=5.35, backward=1.74, optimizer=0.05, setup={"layers": {"Linear": 1}, **WHOLE})
    assert 0.4 < sick(RULE, flagged(cell, anomaly_mode=True)).cost_share < 0.83
    deep = cell.but(forward=9.77, backward=1.08)  # the same under a deeper stack: 88 %
    assert 0.7 < sick(RULE, flagged(deep, anomaly_mode=True)).cost_share < 0.88
    # Two transformer layers, 80 %; and 6 layers of 1024, 30 %, whose forward does not show it.
    encoder = Loop(forward=11.9, backward=4.42, optimizer=0.0, setup={"layers": {"Linear": 8}, **WHOLE})
    assert 0.35 < sick(RULE, flagged(encoder, anomaly_mode=True)).cost_share < 0.8
    large = Loop(forward=13.96, backward=40.69, optimizer=0.0, setup={"layers": {"Linear": 6}, **WHOLE})
    assert sick(RULE, flagged(large, anomaly_mode=True)).cost_share == pytest.approx(0.19)


@pytest.mark.parametrize(
    "made",
    [
        {"parameter_bytes": 400, "model": ModelFacts(dtype_bytes={"float32": 4000}, frozen_bytes=3600)},
        {"parameter_bytes": 4000, "model": ModelFacts(dtype_bytes={"float32": 4000}, frozen_bytes=3600)},
        {},  # nobody looked
    ],
)
def test_a_frozen_backbone_is_no_slowed_forward(made: dict[str, Any]) -> None:
    # Measured: 8 frozen layers and a trained head, anomaly detection costs nothing that a clock shows.
    frozen = Loop(forward=10.0, backward=1.0, optimizer=0.3, setup={"layers": {"Linear": 9}, **made})
    found = asked(RULE, flagged(frozen, anomaly_mode=True))
    assert found is not None and found.cost_share <= 2.25 * 1.0 / 11.3
    large = frozen.but(forward=100.0, backward=5.0)
    assert RULE not in named(flagged(large, anomaly_mode=True))


def test_predictions_write_no_stack_down() -> None:
    predicts = Loop(forward=10.0, backward=0.0, optimizer=0.0, setup={"optimizers": (), "layers": {"Linear": 8}})
    assert asked(RULE, flagged(predicts, anomaly_mode=True)) is None
    assert priced(RULE, flagged(predicts, anomaly_mode=True, profiler=True)) is not None


def test_a_slow_forward_without_it_is_not_its_doing() -> None:
    assert asked(RULE, Loop(forward=9.0, backward=1.0, setup={"layers": {"Linear": 1}})) is None


def test_launches_that_block_leave_the_gpu_idle() -> None:
    blocked = flagged(on_gpu(gpu_util=60.0, caught_up=1.0, other=2.0, gpu_gap=2.0), launch_blocking=True)
    assert sick(RULE, blocked).cost_share == pytest.approx(10 / 12 / 2, abs=0.01), "half at least is left"
    assert "at most" in sick(RULE, blocked).headline


def test_well() -> None:
    assert asked(RULE, BIG) is None
    assert asked(RULE, flagged(BIG, anomaly_mode=False, profiler=False, launch_blocking=False)) is None


def test_a_few_profiled_steps_are_looked_at_on_purpose() -> None:
    whole = float(SMALL.recording().steps.wall_s.sum())
    assert asked(RULE, flagged(SMALL, profiler=True, profiler_on_s=whole / 100)) is None


def test_without_a_gpu_no_launch_blocks() -> None:
    assert asked(RULE, flagged(BIG, launch_blocking=True)) is None


def test_deterministic_algorithms_alone_have_no_price() -> None:
    assert asked(RULE, flagged(BIG, deterministic=True)) is None
    assert any(
        "deterministic" in one for one in sick(RULE, flagged(BIG, deterministic=True, anomaly_mode=True)).evidence
    )


def test_the_profiler_of_a_large_model_is_below_the_bar() -> None:
    assert RULE not in named(flagged(BIG, profiler=True))
