"""cpu-oversubscription: more threads than cores."""

from __future__ import annotations

import pytest

from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "cpu-oversubscription"
CROWDED = Loop(cores=4.0, setup={"torch_threads": 16})
WORKERS = Loop(cores=4.0, setup={"torch_threads": 4}, workers=2, wait=0.5, fetch=20.0, fetch_cpu=18.0, cpu_util=99.0)


def test_sick() -> None:
    found = sick(RULE, CROWDED)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.75), "of 16 threads 12 have no core"
    assert found.prescriptions[0].settings == {"threads": 4}
    assert RULE in named(CROWDED)


def test_a_quota_of_the_container_counts() -> None:
    assert sick(RULE, CROWDED.but(cores=1.5)).prescriptions[0].settings == {"threads": 1}


def test_workers_that_compute_take_cores_as_well() -> None:
    assert sick(RULE, WORKERS).prescriptions[0].settings == {"threads": 2}


def test_well() -> None:
    assert asked(RULE, Loop(cores=4.0, setup={"torch_threads": 4})) is None
    assert asked(RULE, Loop(cores=4.0)) is None  # the number of threads was not read


def test_workers_that_sleep_take_no_core() -> None:
    assert asked(RULE, WORKERS.but(fetch_cpu=0.5)) is None
    assert asked(RULE, WORKERS.but(cpu_util=50.0)) is None


def test_a_loop_that_waits_most_of_its_time_loses_little() -> None:
    waits = CROWDED.but(wait=190.0)
    assert RULE not in named(waits)


def test_on_a_gpu_the_threads_have_nothing_to_do() -> None:
    assert asked(RULE, on_gpu(cores=4.0, setup={"torch_threads": 16})) is None
