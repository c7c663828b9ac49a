"""Vitals of memory and hardware: what readings of the machine come to, and that what was not read is None."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic_kind
from gpu_doctor.diagnosis.vitals.hardware import HardwareVitals, hardware
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.vitals.memory import MemoryVitals, memory
from gpu_doctor.diagnosis.vitals.trend import Growth, rising
from gpu_doctor.recording import DeviceSetup, Recording, Series, Setup, Steps
from gpu_doctor.recording.setup import World
from tests.support.recordings import READINGS, Loop, on_gpu, read

RAMP = np.linspace(0.0, 1.0, READINGS)


@pytest.mark.parametrize("loop", [Loop(), on_gpu()])
def test_what_was_not_read_is_none(loop: Loop) -> None:
    vitals = measure(dataclasses.replace(loop.recording(), series=()))
    for part in (MemoryVitals, HardwareVitals):
        found = {one.name: getattr(vitals, one.name) for one in dataclasses.fields(part)}
        assert {name for name, value in found.items() if value is not None} <= {"growth_past_first_epoch"}, found


def test_an_empty_run_and_a_run_without_steps() -> None:
    empty = Recording(steps=Steps.of(wall_s=[]), setup=Setup(device="cuda:0"))
    assert memory(empty, empty.steps, 0.0)["host_memory_available_bytes"] is None
    assert hardware(empty, empty.steps, 0.0).get("throttled_share") is None


def test_the_card_that_trains_is_told_of_and_no_other() -> None:
    recording = read(on_gpu().recording(), 0, gpu_util_pct=0.0, tensor_active_pct=0.0)
    recording = read(recording, 1, gpu_util_pct=97.0, tensor_active_pct=40.0)
    vitals = measure(dataclasses.replace(recording, setup=dataclasses.replace(recording.setup, device="cuda:1")))
    assert (vitals.gpu_util_pct, vitals.tensor_active_pct) == (97.0, 40.0)


def test_what_a_cell_does_after_its_loop_is_not_the_loops() -> None:
    recording = on_gpu(gpu_util=98.0).recording()
    end_s = float(recording.steps.start_s[-1] + recording.steps.wall_s[-1])
    metric = next(one.metric for one in recording.series if one.metric.name == "gpu_util_pct")
    times = np.concatenate([np.linspace(0.0, end_s, 20), np.linspace(1.05 * end_s, 4 * end_s, 60)])
    series = Series(metric, times, np.repeat([98.0, 0.0], [20, 60]))
    others = tuple(one for one in recording.series if one.metric is not metric)
    assert measure(dataclasses.replace(recording, series=(*others, series))).gpu_util_pct == 98.0
    # A run that is over before anything is read twice: its only reading comes after the end, and tells of the run.
    once = Series(metric, np.array([1.2 * end_s]), np.array([98.0]))
    assert measure(dataclasses.replace(recording, series=(*others, once))).gpu_util_pct == 98.0


@pytest.mark.parametrize(
    ("usable", "cores", "own"),
    [(16.0, 16, 2.0), (8.0, 16, 1.0), (2.0, 16, 2.0), (4.0, 4, 1.0)],
    ids=["shared", "a quota", "bound to its part", "more ranks than cores"],
)
def test_ranks_that_share_a_machine_share_its_cores(usable: float, cores: int, own: float) -> None:
    recording = Loop().recording()
    world = World(world_size=16, local_size=8)
    setup = dataclasses.replace(recording.setup, usable_cores=usable, os_cores=cores, world=world)
    assert measure(dataclasses.replace(recording, setup=setup)).usable_cores == own


def test_growth_is_a_line_through_steps_and_leads_to_the_limit() -> None:
    loop = on_gpu(steps=1000, steps_per_epoch=100)
    recording = read(loop.recording(), 0, torch_allocated_bytes=10e9 + 10e9 * RAMP, torch_peak_bytes=20e9 + 10e9 * RAMP)
    vitals = measure(recording)
    assert vitals.device_growth_bytes_per_step == pytest.approx(10e9 / 1000, rel=0.02)
    assert vitals.device_steps_to_full == pytest.approx((80e9 - 30e9) / 1e7, rel=0.02)
    assert vitals.growth_past_first_epoch
    still = measure(read(loop.recording(), 0, torch_allocated_bytes=10e9, torch_peak_bytes=20e9))
    assert still.device_growth_bytes_per_step == 0.0 and still.device_steps_to_full is None
    few = measure(read(loop.recording(), 0, torch_allocated_bytes=[1e9, 2e9], torch_peak_bytes=[1e9, 2e9]))
    assert few.device_growth_bytes_per_step is None


def test_memory_grows_where_the_runs_own_peak_is_not_known() -> None:
    """An earlier run needed more; what is held still rises, and falls a little in between."""
    loop = on_gpu(steps=1000, steps_per_epoch=100)
    swings = 1e7 * np.resize([0.0, -1.0], len(RAMP))
    vitals = measure(read(loop.recording(), 0, torch_allocated_bytes=10e9 + 10e9 * RAMP + swings))
    assert vitals.device_growth_bytes_per_step == pytest.approx(10e9 / 1000, rel=0.02)
    assert vitals.device_steps_to_full == pytest.approx((80e9 - 20e9) / 1e7, rel=0.02)


def test_too_few_readings_are_none_and_a_flat_line_is_false() -> None:
    assert rising(np.arange(5.0) * 10, np.arange(5.0)) is None
    assert rising(np.arange(20.0) * 10, np.zeros(20)) is False


def test_a_rise_within_one_long_step_is_none_a_step() -> None:
    """PyOD: 35 MiB of a compiler in the scoring after the last step were 35 MiB a step, 4.9 GiB in all."""
    done = np.concatenate([np.linspace(0, 229, 12), 229 + np.linspace(0.01, 1, 60)])
    held = np.concatenate([np.full(12, 4e8), 4e8 + np.linspace(0, 35e6, 60)])
    assert rising(done, held) is False


def test_what_a_step_gives_back_is_no_rise() -> None:
    within = np.tile(np.linspace(0, 0.9, 10), 30)
    steps = np.repeat(np.arange(30.0), 10)
    grown = rising(steps + within, 1e9 + 2e6 * steps + 3e8 * within)
    assert isinstance(grown, Growth)
    assert grown.bytes_per_step == pytest.approx(2e6)
    assert grown.rise_bytes == pytest.approx(58e6)


def test_the_second_card_is_read_where_the_loop_trains_on_it() -> None:
    loop = on_gpu(setup={"device": "cuda:1"})
    recording = read(
        read(loop.recording(), 0, gpu_temperature_c=90, torch_alloc_retries=7),
        1,
        gpu_temperature_c=50,
        torch_alloc_retries=0,
    )
    vitals = measure(recording)
    assert (vitals.temperature_c, vitals.alloc_retries) == (50, 0)


def test_joules_of_a_sample() -> None:
    loop = on_gpu(steps=1000, batch=32, gpu_work=10.0)
    vitals = measure(read(loop.recording(), 0, gpu_energy_j=5e6 + 3200 * RAMP))
    assert vitals.energy_per_sample_j == pytest.approx(3200 / 32_000, rel=0.02)
    assert measure(read(loop.recording(), 0, gpu_energy_j=5e6)).energy_per_sample_j is None


def test_facts_of_a_card_stand_without_a_gpu_loop() -> None:
    vitals = measure(read(Loop().recording(), 0, gpu_memory_total_bytes=8e9, driver_cuda=12040))
    assert (vitals.cards_seen, vitals.driver_cuda) == (1, (12, 4))
    assert vitals.temperature_c is None


def test_bits_that_were_averaged_in_a_very_long_run_are_none() -> None:
    bits = np.where(np.arange(READINGS) % 2 == 0, 0.0, 32.5)
    vitals = measure(read(on_gpu().recording(), 0, clock_limit_bits=bits, sm_clock_mhz=1980, gpu_util_pct=90))
    assert vitals.throttled_share == 0.0


def test_a_straight_line_is_growth_however_its_readings_lie() -> None:
    """Readings come when there is time for them: two seconds apart at first, one later on."""
    done = np.array([0.0, 20, 60, 100, 120, 140, 160, 180, 199])
    assert isinstance(rising(done, 2e8 + 4e6 * done), Growth)


@pytest.mark.parametrize("readings", [9, 12, 40])
def test_one_allocation_that_stays_is_no_growth(readings: int) -> None:
    done = np.linspace(0.0, 200.0, readings)
    once = 2e8 + 5e8 * (done > 110) + 1e4 * done
    assert rising(done, once) is False


@pytest.mark.parametrize(("name", "kind"), [("NVIDIA A100", "tf32"), ("AMD Instinct MI300X", "float32")])
def test_tf32_is_nvidias(name: str, kind: str) -> None:
    card = DeviceSetup(0, name, capability=(9, 4))
    setup = Setup(device="cuda:0", devices=(card,), dtype="float32", flags={"matmul_precision": "high"})
    assert arithmetic_kind(setup) == kind
