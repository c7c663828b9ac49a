"""How many cores stand behind the logical ones, and what that is worth to a forecast."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers, forecast
from gpu_doctor.diagnosis.forecast.stages import computing
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.machine.host import physical_cores
from tests.support.recordings import Loop, read


def machine(folder: Path, siblings: list[str]) -> Path:
    """A folder as Linux describes its processors in: for each the threads of its core."""
    for number, one in enumerate(siblings):
        (folder / f"cpu{number}" / "topology").mkdir(parents=True)
        (folder / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(one + "\n")
    return folder


def test_two_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,2", "1,3", "0,2", "1,3"])
    assert physical_cores(range(4), root) == 2
    assert physical_cores([0, 2], root) == 1
    assert physical_cores([0, 1], root) == 2  # one thread of each
    assert physical_cores([0, 7], root) is None  # not described: not known


@pytest.mark.skipif(sys.platform != "linux", reason="Linux describes its processors in /sys")
def test_this_machine_tells_its_cores() -> None:
    found = physical_cores()
    assert found is not None and 1 <= found <= len(os.sched_getaffinity(0))


def test_a_second_thread_adds_a_quarter_at_most_a_half() -> None:
    assert computing(1.0, 1) == (1.0, 1.0, 1.0)
    assert computing(2.0, 1) == (1.0, 1.25, 1.5)
    assert computing(4.0, 8) == (4.0, 4.0, 4.0)  # a quota of 4 on a machine of 16 threads


SPINNING = Loop(wait=30.0, fetch_cpu=30.0, consumer_cpu=10.0, cores=2.0)
"""40 ms a step, all of it computing, on two logical cores."""


def test_a_worker_on_the_second_thread_of_the_loops_own_core_gains_little() -> None:
    """Two cores give 40 ms of work in 30 at best (the fetch itself); the two threads of one core need 32 at 1.25."""
    own = forecast(SPINNING.vitals(), {"num_workers": 1})
    shared = forecast(SPINNING.but(setup={"physical_cores": 1}).vitals(), {"num_workers": 1})
    two = forecast(SPINNING.but(setup={"physical_cores": 2}).vitals(), {"num_workers": 2})
    both = forecast(SPINNING.but(setup={"physical_cores": 1}).vitals(), {"num_workers": 2})
    assert own is not None and shared is not None and two is not None and both is not None
    assert shared.speedup < own.speedup
    assert two.speedup > 1.6
    assert 1.0 <= both.speedup < 1.25 and both.low < 1.0 < both.high < 1.8
    assert "2 hardware threads that share cores" in both.why and "2 usable cores" not in both.why


def test_a_sleeping_dataset_does_not_care_whose_threads_they_are() -> None:
    sleeping = SPINNING.but(fetch_cpu=1.0, setup={"physical_cores": 1})
    best = best_workers(sleeping.vitals())
    assert best is not None and best[1].speedup > 2.5


def test_forking_a_notebook_full_of_small_objects_takes_longer() -> None:
    """4 workers at each begin of 25 batches, 10 ms a MB of page tables and worker: 4.2 MB more are 0.1 s an epoch."""

    def step_s(page_tables: float) -> float:
        loop = SPINNING.but(fetch_cpu=1.0, steps_per_epoch=25)
        found = forecast(
            measure(read(loop.recording(), None, process_page_table_bytes=page_tables)), {"num_workers": 4}
        )
        assert found is not None
        return found.step_s

    # With four workers the loop's own 10 ms bind, and it stands still until all of them have started.
    assert step_s(5e6) - step_s(8e5) == pytest.approx(4.2e6 * 1e-8 * 4 / 25, rel=0.05)
