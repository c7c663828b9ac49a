"""Each rule that prices a GPU's time speaks in simulated loops where its cure gains, and only there."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.gpu_loops import pace_us, recorded
from tests.support.gpu_rules import BOUND, CASES, LOOPS, WAITS, Case, judge


@pytest.mark.parametrize("bound", BOUND)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_rule_speaks_where_its_cure_gains_and_only_there(case: Case, bound: str) -> None:
    cells = [judge(case, f"{bound} {waits}".strip()) for waits in WAITS]
    assert not [one for one in cells if one.verdict != "right"]


@pytest.mark.parametrize("waits", ["item", "scaler", "clip"])
def test_a_busy_gpu_has_not_caught_up_because_it_is_waited_for(waits: str) -> None:
    vitals = measure(recorded(*LOOPS[f"compute {waits}"]))
    assert vitals.caught_up_share == pytest.approx(0.0, abs=0.05)
    assert not vitals.gpu_outruns_host


def test_the_stream_is_as_fast_as_the_slower_of_host_and_device() -> None:
    compute, host = LOOPS["compute"], LOOPS["host"]
    work = compute[0]
    device_us = work.launches * work.kernel_us + work.updates * work.update_us + work.nbytes / 25e3
    assert pace_us(*compute) * work.batch == pytest.approx(device_us, rel=0.01)
    work, way = host
    host_us = work.launches * work.launch_us + work.updates * work.launch_us / 2 + way.python_us + 10.0
    assert pace_us(*host) * work.batch == pytest.approx(host_us, rel=0.01)
