"""How long steps took: by the host's clock, by the device's where the host ran ahead, by a trial's two waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.vitals.pace import paced_s, paced_steps
from gpu_doctor.recording import Recording
from gpu_doctor.recording.recording import Timed
from tests.support.recordings import Loop, on_gpu

LOOP = on_gpu()
HOST_S = 0.010
"""Of a step after the warm-up."""


def read_on_device(loop: Loop, times: float, every: int = 1) -> Recording:
    """The loop, whose device took so many times the host's seconds for a step; every so many of them were looked at."""
    found = loop.recording()
    looked = np.arange(len(found.steps)) % every == every - 1
    since_s = np.where(looked, times * HOST_S * every, np.nan)
    steps = replace(found.steps, gpu_since_s=since_s, gpu_since_steps=np.where(looked, float(every), 0.0))
    return replace(found, steps=steps)


def stretch(found: Recording, first: int, count: int, times: float) -> Recording:
    """The recording as of a trial that waited for its device before and after some steps, which took so much longer."""
    begin, end = found.steps.start_s[first], found.steps.start_s[first + count]
    host_s = float(found.steps.wall_s[first : first + count].sum())
    return replace(found, timed=Timed(float(begin), float(end), times * host_s))


@pytest.mark.parametrize("every", [1, 4])
def test_a_device_that_takes_longer_than_its_host_says_how_long_steps_take(every: int) -> None:
    vitals, host = measure(read_on_device(LOOP, 3.0, every)), measure(LOOP.recording())
    assert vitals.step_wall_s == pytest.approx(3.0 * HOST_S) and vitals.host_ahead == pytest.approx(3.0)
    assert vitals.host_step_s == pytest.approx(HOST_S), "the phases are shares of the host's own seconds"
    assert vitals.samples_per_s == pytest.approx((host.samples_per_s or 0.0) / 3.0)


def test_where_the_device_kept_up_the_hosts_clock_is_the_better_one() -> None:
    for found in (read_on_device(LOOP, 0.8), read_on_device(LOOP, 1.005), Loop().recording()):
        assert paced_s(found, found.steps) is found.steps.wall_s
        assert measure(found).host_ahead == 1.0


def test_a_device_that_was_hardly_read_is_not_believed() -> None:
    few = read_on_device(LOOP, 3.0, every=len(LOOP.recording().steps))
    few = replace(few, steps=replace(few.steps, gpu_since_steps=np.minimum(few.steps.gpu_since_steps, 4.0)))
    assert measure(few).host_ahead == 1.0


def test_a_trials_stretch_lasts_from_wait_to_wait() -> None:
    found = stretch(LOOP.recording(), 20, 50, times=2.0)
    assert len(paced_steps(found, found.steps)) == 50
    vitals = measure(found)
    assert vitals.step_wall_s == pytest.approx(2.0 * HOST_S), "the host ran ahead, and the steps are taken to be alike"
    assert measure(stretch(LOOP.recording(), 20, 50, times=1.0)).step_wall_s == pytest.approx(HOST_S)


def test_how_a_stretch_is_shared_among_its_steps_the_device_says() -> None:
    found = read_on_device(LOOP, 3.0)
    slow = found.steps.gpu_since_s.copy()
    slow[30:40] *= 5.0
    found = stretch(replace(found, steps=replace(found.steps, gpu_since_s=slow)), 20, 50, times=4.0)
    took = paced_s(found, paced_steps(found, found.steps))
    assert took.sum() == pytest.approx(4.0 * 50 * HOST_S)
    assert took[15] == pytest.approx(5.0 * took[0])


def test_a_stretch_of_a_recording_that_was_cut_tells_nothing() -> None:
    found = replace(LOOP.recording(), timed=Timed(1e6, 2e6, 5.0))
    assert measure(found).step_wall_s == pytest.approx(HOST_S)
