"""Each rule that prices a GPU's time speaks in simulated loops where its cure gains, and only there."""

from __future__ import annotations

import pytest

from gpu_doctor.capture.events import Log
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.gpu_loops import pace_us, recorded
from tests.support.gpu_rules import BOUND, CASES, LOOPS, WAITS, Case, judge


@pytest.mark.parametrize("bound", BOUND)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_rule_speaks_where_its_cure_gains_and_only_there(case: Case, bound: str) -> None:
    cells = [judge(case, f"{bound} {waits}".strip()) for waits in WAITS]
    assert not [one for one in cells if one.verdict != "right"]


@pytest.mark.parametrize("waits", ["item", "scaler", "clip"])
def test_asked_after_a_wait_every_queue_is_empty(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the judge is to notice: without the question before the wait a busy GPU looks idle."""
    work, way = LOOPS[f"compute {waits}"]
    asked = measure(recorded(work, way))
    monkeypatch.setattr(Log, "waits", lambda log, whole=True: None)
    late = measure(recorded.__wrapped__(work, way))
    assert asked.queue_empty_share == pytest.approx(0.0, abs=0.05)
    if waits == "item":  # nothing is launched between the wait and the step's end
        assert late.queue_empty_share == pytest.approx(1.0)
    assert not asked.gpu_outruns_host


def test_the_stream_is_as_fast_as_the_slower_of_host_and_device() -> None:
    compute, host = LOOPS["compute"], LOOPS["host"]
    work = compute[0]
    device_us = work.launches * work.kernel_us + work.updates * work.update_us + work.nbytes / 25e3
    assert pace_us(*compute) * work.batch == pytest.approx(device_us, rel=0.01)
    work, way = host
    host_us = work.launches * work.launch_us + work.updates * work.launch_us / 2 + way.python_us + 10.0
    assert pace_us(*host) * work.batch == pytest.approx(host_us, rel=0.01)
