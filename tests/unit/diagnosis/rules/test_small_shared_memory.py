"""small-shared-memory: the batches in flight do not fit into /dev/shm."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.recording.setup import World
from tests.support.found import asked, named, threat
from tests.support.recordings import KEY, Loop, with_more

RULE = "small-shared-memory"
DOCKER = {"world": World(shm_free_bytes=64e6)}
# 8 workers x 2 ahead x 10 MB = 160 MB in docker's 64 MB
TIGHT = Loop(workers=8, fetch=4.0, batch_bytes=10e6, setup=DOCKER)


def failed(reason: str, workers: int = 4) -> Loop:
    """A run that ended before its first batch."""
    setup = Setup(loaders=(LoaderSetup(key=KEY, role="unknown", num_workers=workers),))
    return with_more(Loop(steps=1), outcome="failed", reason=reason, setup=setup)


def test_sick() -> None:
    found = threat(RULE, TIGHT)
    assert found.kind == "hint"
    assert found.evidence[0].endswith("= 153 MiB")
    more, fewer = found.prescriptions
    assert "--shm-size" in more.code
    assert fewer.settings == {"num_workers": 3}
    assert RULE in named(TIGHT)


def test_well() -> None:
    assert asked(RULE, TIGHT.but(setup={"world": World(shm_free_bytes=8e9)})) is None
    assert asked(RULE, TIGHT.but(batch_bytes=1e6)) is None


def test_without_workers_nothing_lies_there() -> None:
    assert asked(RULE, TIGHT.but(workers=0, wait=4.0)) is None


def test_where_there_is_no_such_memory_nothing_is_said() -> None:
    assert asked(RULE, TIGHT.but(setup={"world": World()})) is None
    assert asked(RULE, TIGHT.but(setup={})) is None


@pytest.mark.parametrize(
    "reason",
    [
        "RuntimeError: unable to write to file </torch_4012_1718_3>: No space left on device (28)",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_74_32_0>: No space left on device (28) "
        "(in a DataLoader worker)",
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
    ],
)
def test_a_run_that_ended_so(reason: str) -> None:
    found = threat(RULE, failed(reason))
    assert found.evidence[0] == reason
    assert RULE in named(failed(reason))
    assert asked(RULE, failed(reason, workers=0)) is None


def test_another_failure_is_not_this_one() -> None:
    assert asked(RULE, failed("RuntimeError: mat1 and mat2 shapes cannot be multiplied")) is None


def test_no_more_workers_are_advised_than_find_room() -> None:
    sleeping = Loop(wait=80.0, fetch_cpu=1.0, batch_bytes=10e6, setup={"world": World(shm_free_bytes=8e9)})
    free, tight, none = (
        best_workers(sleeping.but(setup={"world": World(shm_free_bytes=room)}).vitals()) for room in (8e9, 64e6, 1e6)
    )
    assert free is not None and free[0] > 4
    assert tight is not None and tight[0] == 3
    assert none is None
