"""launch-bound: why a loop is not judged, and the class of a CPU that goes from operation to operation."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis import diagnose
from tests.support.found import silence
from tests.support.recordings import with_columns
from tests.support.rule_loops.host import NO_ROOM, TINY


@pytest.mark.parametrize("cause", ["launch-bound", "small-batch"])
def test_without_the_devices_clock_it_is_silent(cause: str) -> None:
    assert silence(cause, with_columns(NO_ROOM, device_steps=0.0)) == "GPU timings are missing"


def test_a_cpu_whose_operations_were_not_counted_is_not_judged() -> None:
    assert silence("launch-bound", TINY.but(setup={}))


def test_a_cpu_that_goes_from_operation_to_operation_is_bound_by_the_host() -> None:
    assert diagnose(TINY.recording()).bottleneck == "host"
