"""What is read off a recording: shares of the right rows, made of sums, None where nothing was measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure, warmup_rows
from gpu_doctor.recording import PHASES, LineCost, Recording, Steps
from gpu_doctor.recording.steps import INFERENCE, STEP_COLUMNS
from tests.support.recordings import Loop, on_gpu

SHARES = [f"{phase}_share" for phase in (*PHASES, "other")]


def of(**columns: object) -> Vitals:
    """Vitals of a recording of some columns."""
    return measure(Recording(steps=Steps.of(**columns)))  # type: ignore[arg-type]


def whole(vitals: Vitals) -> float:
    """All phases' shares together."""
    return sum(getattr(vitals, name) or 0.0 for name in SHARES)


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),
        Loop(wait=30.0, edge=100.0, steps_per_epoch=20),
        Loop(evaluation=5.0, other=3.0, loss=1.0),
        on_gpu(wait=4.0, gpu_gap=4.0, sync=3.0),
    ],
)
def test_shares_sum_to_one(loop: Loop) -> None:
    assert whole(loop.vitals()) == pytest.approx(1.0)


def test_the_shares_are_those_of_the_loop() -> None:
    vitals = Loop(wait=10.0, forward=4.0, backward=4.0, optimizer=2.0).vitals()
    assert vitals.data_wait_share == pytest.approx(0.5)
    assert vitals.forward_share == pytest.approx(0.2)
    assert vitals.step_wall_s == pytest.approx(0.020)
    assert vitals.samples_per_s == pytest.approx(32 / 0.020)
    assert vitals.consumer_s == pytest.approx(0.010)


def test_a_step_of_nothing_measured_has_no_shares() -> None:
    vitals = of(wall_s=[0.1] * 10)
    assert vitals.data_wait_share is None and vitals.samples is None and vitals.samples_per_s is None
    assert vitals.other_share == 1.0
    assert vitals.exposed_wait_share is None and vitals.cpu_util_pct is None and vitals.peak_bytes is None


def test_an_empty_recording_has_counts_alone() -> None:
    vitals = of(wall_s=[])
    assert vitals.steps == vitals.measured_steps == 0
    assert all(getattr(vitals, name) is None for name in (*SHARES, "samples", "step_wall_s", "warmup_s", "epochs"))


def test_one_gap_in_a_column_costs_its_row_alone() -> None:
    wait = np.full(20, 0.05)
    wait[12] = np.nan
    samples = np.full(20, 32.0)
    samples[7] = np.nan
    vitals = of(wall_s=np.full(20, 0.1), data_wait_s=wait, samples=samples, forward_s=np.full(20, 0.05))
    assert vitals.data_wait_share == pytest.approx(0.5)
    assert vitals.exposed_wait_share == pytest.approx(0.5)
    assert vitals.samples_per_s == pytest.approx(320.0)
    assert vitals.samples == 19 * 32
    assert whole(vitals) == pytest.approx(1.0)


def test_a_gap_is_weighed_with_the_wall_of_its_own_row() -> None:
    # The unmeasured row is ten times as long as the others: it must stand in neither sum.
    wall, wait = np.full(20, 0.1), np.full(20, 0.02)
    wall[15], wait[15] = 1.0, np.nan
    assert of(wall_s=wall, data_wait_s=wait).data_wait_share == pytest.approx(0.2)


def test_a_column_that_was_never_measured_stays_none() -> None:
    vitals = Loop(wait=5.0).vitals()
    assert vitals.sync_share is None and vitals.gpu_gap_share is None and vitals.pageable_share is None


def test_a_row_without_a_wall_is_left_out() -> None:
    wall = np.full(20, 0.1)
    wall[9] = np.nan
    vitals = of(wall_s=wall, data_wait_s=np.full(20, 0.05))
    assert vitals.data_wait_share == pytest.approx(0.5) and vitals.steps == 19


def test_a_damaged_recording_shows_no_share_above_one() -> None:
    vitals = of(wall_s=np.full(20, 0.1), data_wait_s=np.full(20, 2.586), forward_s=np.full(20, 0.1))
    assert 0.9 < (vitals.data_wait_share or 0) <= 1.0
    assert whole(vitals) == pytest.approx(1.0)


def test_bursts_are_not_hidden_by_a_median() -> None:
    # Four workers deliver four batches at once: the median wait is 0, the mean is 25 ms.
    wait = np.where(np.arange(100) % 4 == 0, 0.1, 0.0)
    assert of(wall_s=wait + 0.01, data_wait_s=wait).data_wait_share == pytest.approx(0.1 / 0.14, rel=0.02)


def test_warm_up_is_not_billed() -> None:
    wall = np.full(100, 0.01)
    wall[:3] = 2.0
    vitals = of(wall_s=wall, data_wait_s=np.where(wall > 1, 1.99, 0.0))
    assert vitals.warmup_steps == 3 and vitals.warmup_s == pytest.approx(6.0)
    assert vitals.data_wait_share == 0.0


def test_warm_up_takes_a_fifth_of_the_rows_at_most() -> None:
    steps = Steps.of(wall_s=np.linspace(1.0, 0.01, 50) ** 2)
    assert warmup_rows(steps) == 10
    assert warmup_rows(Steps.of(wall_s=np.full(4, 1.0))) == 0


def test_the_first_batches_of_workers_are_warm_up() -> None:
    assert warmup_rows(Steps.of(wall_s=np.full(100, 1.0)), workers=4) == 5


def test_the_first_batch_of_each_epoch_is_seen() -> None:
    vitals = Loop(workers=2, fetch=1.0, edge=100.0, steps_per_epoch=20).vitals()
    # 4 later epochs begin in 99 measured steps of 10 ms
    assert vitals.edge_share == pytest.approx(400 / (400 + 990), rel=0.03)
    assert vitals.epochs == 5


def test_the_epochs_of_steps_that_go_over_the_data_several_times_are_all_counted() -> None:
    assert of(wall_s=np.full(4, 1.0), epoch=[19, 39, 59, 79]).epochs == 80
    assert of(wall_s=np.full(6, 1.0), epoch=[1, 3, 5, 7, 9, 11]).epochs == 10, "the first step is warm-up"
    assert of(wall_s=np.full(10, 1.0), epoch=[0, 1, 1, 1, 1, 2, 2, 2, 2, 2]).epochs == 2


def test_thinned_rows_count_as_the_steps_they_stand_for() -> None:
    one = of(wall_s=np.full(100, 0.01), data_wait_s=np.full(100, 0.004), samples=np.full(100, 8.0))
    ten = of(wall_s=np.full(10, 0.1), data_wait_s=np.full(10, 0.04), samples=np.full(10, 80.0), count=np.full(10, 10.0))
    for name in ("steps", "samples_per_s", "step_wall_s", "data_wait_share", "samples_per_step"):
        assert getattr(one, name) == pytest.approx(getattr(ten, name)), name


def test_evaluation_batches_are_not_training_steps() -> None:
    kind = np.where(np.arange(60) % 3 == 2, INFERENCE, 0.0)
    wall = np.where(kind == INFERENCE, 1.0, 0.1)
    vitals = of(wall_s=wall, kind=kind, data_wait_s=wall * 0.5)
    assert vitals.steps == 40 and vitals.step_wall_s == pytest.approx(0.1)


def test_a_loop_without_optimizer_is_measured_by_its_batches() -> None:
    vitals = of(wall_s=np.full(30, 0.1), kind=np.full(30, INFERENCE), data_wait_s=np.full(30, 0.06))
    assert vitals.steps == 30 and vitals.data_wait_share == pytest.approx(0.6)


def test_a_wait_that_the_gpu_does_not_notice_is_not_exposed() -> None:
    hidden = on_gpu(wait=6.0, gpu_gap=0.1, gpu_work=16.0).vitals()
    starved = on_gpu(wait=6.0, gpu_gap=6.0, gpu_work=10.0).vitals()
    assert (hidden.data_wait_share or 0) > 0.3 and (hidden.exposed_wait_share or 1) < 0.02
    assert starved.exposed_wait_share == pytest.approx(6.0 / 16.0, rel=0.02)


def test_launching_is_the_device_s_time_in_phases_in_which_it_kept_up() -> None:
    loop = on_gpu(evaluation=2.0, other=1.0, gpu_gap=1.0, gpu_work=9.0, caught_up=1.0)  # 13 ms of the host's
    assert loop.vitals().caught_up_share == 1.0 and loop.vitals().gpu_outruns_host
    assert loop.vitals().launching_share == pytest.approx(9 / 13)
    assert loop.but(gpu_util=0.0).vitals().launching_share == pytest.approx(9 / 13), "whatever NVML reads"
    assert loop.but(caught_up=0.0).vitals().launching_share == 0.0
    recording = loop.recording()
    steps = recording.steps
    half = dataclasses.replace(steps, gpu_caught_up_s=np.where(np.arange(len(steps)) % 2, 9e-3, 0.0))
    assert measure(dataclasses.replace(recording, steps=half)).launching_share == pytest.approx(4.5 / 13, abs=0.01)
    # rows of 10 steps, of which 2 were read
    thin = of_rows(steps, 10, device_steps=2.0, gpu_s=18e-3, gpu_gap_s=2e-3, gpu_caught_up_s=9e-3)
    assert measure(dataclasses.replace(recording, steps=thin)).launching_share == pytest.approx(4.5 / 13)
    assert Loop().vitals().launching_share is None


def of_rows(steps: Steps, many: int, **columns: float) -> Steps:
    """The second of the steps as rows that stand for so many of it."""
    rows = {name: np.full(10, many * getattr(steps, name)[1]) for name in STEP_COLUMNS if name.endswith("_s")}
    rows["start_s"] = np.arange(10) * rows["wall_s"]
    own = {name: np.full(10, one) for name, one in columns.items()}
    return Steps.of(**{**rows, "count": np.full(10, float(many)), **own})


def test_a_gpu_without_its_clock_has_no_exposed_shares() -> None:
    loop = on_gpu(wait=6.0, gpu_gap=6.0).recording()
    unread = dataclasses.replace(loop.steps, device_steps=np.zeros(len(loop.steps)))
    vitals = measure(dataclasses.replace(loop, steps=unread))
    assert vitals.data_wait_share and vitals.exposed_wait_share is None and vitals.gpu_busy_share is None


def test_the_machine_is_read_after_warm_up() -> None:
    assert Loop(cpu_util=80.0).vitals().cpu_util_pct == pytest.approx(80.0)


def test_the_fetch_of_a_batch() -> None:
    walls = [2.0] * 58 + [50.0] * 2
    vitals = Loop(workers=2, fetch=3.6, fetch_cpu=1.0, fetch_walls=walls).vitals()
    assert vitals.fetch_wall_s == pytest.approx(3.6e-3) and vitals.fetch_cpu_s == pytest.approx(1e-3)
    assert vitals.fetch_median_s == pytest.approx(2e-3) and vitals.fetch_p99_s == pytest.approx(50e-3)


def test_fetching_in_the_training_process_is_not_its_consumers_cpu() -> None:
    own = Loop(wait=20.0, fetch=20.0, fetch_cpu=20.0).vitals()
    apart = Loop(wait=20.0, workers=1, fetch=20.0, fetch_cpu=20.0).vitals()
    assert own.consumer_cpu_s == pytest.approx(0.010, rel=0.1) == apart.consumer_cpu_s


def test_no_phase_has_more_lines_than_it_has_time() -> None:
    # Looks of the whole run: a slow first step puts 60 % on the forward, of which the step clock later clocked 40 %.
    seen = (
        LineCost("<cell>", 2, "f", "y = model(x)", "forward", 0.6),
        LineCost("<cell>", 3, "f", "loss.backward()", "backward", 0.3),
        LineCost("data.py", 9, "__getitem__", "decode(i)", "data_wait", 0.9, in_worker=True),
    )
    worker, forward, backward = Loop(lines=seen).vitals().lines
    assert forward.share == pytest.approx(0.4) and backward.share == 0.3
    assert worker.share == 0.9  # of the workers' time
