"""needless-checkpointing: the backward recomputes, and what was left out would surely fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.silent_rules import reason
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import InputFacts, Recomputation
from tests.support.found import rule
from tests.support.recordings import Loop, on_gpu

RULE = "needless-checkpointing"
AGAIN = Recomputation(times=1200, wall_s=0.408, result_bytes=1e9)
"""12 parts and 4 ms of each of 100 steps, of which the first takes three times as long."""
SETUP: dict[str, Any] = {"recomputation": AGAIN, "graph_result_bytes": 1e9}
FREE = {"host_memory_available_bytes": 8e9, "host_memory_total_bytes": 16e9}
CARD = {"gpu_forward_share": 0.3, "gpu_backward_share": 0.6, "memory_total_bytes": 80e9}


def on_cpu(memory: dict[str, float] = FREE, **setup: Any) -> Vitals:
    return replace(Loop(forward=4.0, backward=14.0, setup={**SETUP, **setup}).vitals(), **memory)  # type: ignore[arg-type]


def on_card(loop: Loop | None = None, **found: Any) -> Vitals:
    loop = loop or on_gpu(forward=4.0, backward=4.0, setup=SETUP)
    return replace(loop.vitals(), **{**CARD, "device_used_bytes": None, **found})


def check(vitals: Vitals) -> Finding | None:
    assert not reason(rule(RULE), vitals), "it can judge"
    return rule(RULE).finds(vitals)


def test_sick() -> None:
    found = check(on_cpu())
    assert found is not None
    assert found.cost_share == pytest.approx(0.408 / (0.020 * 102))
    assert found.evidence[0].startswith("12 blocks")
    (cure,) = found.prescriptions
    assert cure.predicted_speedup == pytest.approx(1 / (1 - 1.2 * found.cost_share))
    assert "gradient_checkpointing_disable" in cure.code


def test_what_is_not_known_of_the_results_is_not_nothing() -> None:
    assert check(on_cpu(recomputation=replace(AGAIN, result_bytes=None))) is None


def test_well() -> None:
    assert check(on_cpu(recomputation=None)) is None
    assert check(on_cpu(graph_result_bytes=None)) is None, "no graph was seen"


def test_memory_that_does_not_suffice_keeps_it_quiet() -> None:
    wanted = 2 * (1e9 + 1e9)
    for spare, told in ((wanted + 1e8, True), (wanted - 1e8, False)):
        memory = {"host_memory_available_bytes": 1.6e9 + spare, "host_memory_total_bytes": 16e9}
        assert (check(on_cpu(memory)) is not None) == told


def test_unknown_memory_is_said() -> None:
    vitals = on_cpu({})
    assert reason(rule(RULE), vitals) == "the machine's memory was not read"
    assert rule(RULE).finds(vitals) is None
    unread = replace(on_card(), peak_share=None)
    assert reason(rule(RULE), unread) == "the GPU's memory was not read"
    untimed = replace(on_card(), gpu_forward_share=None)
    assert reason(rule(RULE), untimed) == "the GPU's own clock was not read"


def test_on_a_gpu_the_devices_clock_prices_the_part_of_the_forward() -> None:
    found = check(on_card())
    assert found is not None
    again_of_forward = 0.408 / (4.0e-3 * 102)  # all of it, by what the host launched
    assert found.cost_share == pytest.approx(0.3 * again_of_forward)
    half = on_gpu(forward=4.0, setup={**SETUP, "recomputation": replace(AGAIN, wall_s=0.204)})
    found = check(on_card(half))
    assert found is not None and found.cost_share == pytest.approx(0.15)


def test_where_launches_limit_the_loop_the_host_prices_it() -> None:
    found = check(on_card(on_gpu(forward=4.0, backward=4.0, setup=SETUP, caught_up=1.0, gpu_gap=5.0)))
    assert found is not None and found.cost_share == pytest.approx(0.4, abs=0.01)


def test_a_full_card_and_a_neighbour_keep_it_quiet() -> None:
    full = on_gpu(forward=4.0, setup=SETUP, peak_share=0.88)
    assert check(on_card(full)) is None
    assert check(on_card(device_used_bytes=79e9, reserved_peak_bytes=41e9)) is None, "another process has it"


@pytest.mark.parametrize("setup", [{"layers": {"LSTM": 1}}, {"inputs": InputFacts(40, 12, (16, 300), "int64", "cpu")}])
def test_where_one_backward_does_not_tell_what_all_keep_it_is_quiet(setup: dict[str, Any]) -> None:
    assert check(on_cpu(**setup)) is None
    assert check(on_cpu(inputs=InputFacts(40, 2, (16, 300), "int64", "cpu"))) is not None, "a last, smaller batch"
